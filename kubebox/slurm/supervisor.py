"""The process that owns a Slurm box: slurmctld, slurmrestd, slurmd and what else was asked for.

How it lives, answers and ends is in keeper.py; here is what makes a Slurm cluster of it. Each daemon has a
compartment of its own (see sandbox.py), so that ending one is what deleting its pod would be: a slurmd takes
its jobs along. One more compartment holds nothing: the caller's commands are run there.
"""

from __future__ import annotations

import os
import resource
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from kubebox.api import Api
from kubebox.errors import BoxError, SpecError
from kubebox.keeper import Action, Keeper, Report, report
from kubebox.ports import LOOPBACK
from kubebox.procs import ProcessId, tail
from kubebox.slurm import daemons, files, jwt
from kubebox.slurm.daemons import COMMANDS, Daemon
from kubebox.slurm.layout import Places, SlurmLaunch
from kubebox.slurm.ports import SlurmPort, listening
from kubebox.slurm.rest import nodes as listed_nodes
from kubebox.slurm.sandbox import Compartment, View
from kubebox.slurm.spec import check_node_name
from kubebox.state import Record

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping
    from pathlib import Path

_OPEN_FILES = 8192


class SlurmSupervisor(Keeper[Daemon]):
    """The keeper of one Slurm cluster."""

    def __init__(self, launch: SlurmLaunch, tell: Report) -> None:
        super().__init__(launch.folder, launch.owner, launch.spec.ready_timeout, tell)
        self._spec = launch.spec
        self._rootfs = launch.rootfs
        self._places = Places(launch.folder)
        self._held: dict[str, SlurmPort] = {}
        self._retired: dict[str, SlurmPort] = {}
        self._compartments: dict[str, Compartment] = {}
        self._kept: set[str] = set()
        self._version = ""

    # ---------------------------------------------------------------------------------------------- coming up

    def bring_up(self) -> None:
        """Start the cluster and wait until its nodes have registered."""
        self._prepare()
        if self._spec.accounting:
            self._bring_up_accounting()
        for daemon in daemons.slurmctlds(self._spec, self._ports):
            self.run_all([daemon])  # a standby that starts first would wait for the one in charge
        self.step("slurmctld ready")
        nodes = [self._make_node(name, self._spec.node_conf) for name in self._spec.node_names]
        self.run_all([daemons.slurmrestd(self._spec, self._ports), *nodes])
        self.step(f"slurmrestd ready at {self._url}")
        self.until(self._all_registered, "registration of the nodes", self.children)
        self.step(
            f"Slurm {self._version} with {len(nodes)} slurmd and {self._spec.cloud_nodes} cloud nodes ready"
        )

    def _prepare(self) -> None:
        (self.layout.folder / "log").mkdir(mode=0o700)
        self.listen()
        for name in daemons.port_names(self._spec):
            self._held[name] = SlurmPort()
        files.lay_out(self._places, self._spec, self._ports)
        self._compartments[COMMANDS] = self._compartment(COMMANDS, self._places.binds())
        self.record()
        self.step("keys and configuration written")

    def _bring_up_accounting(self) -> None:
        self._make_database()
        self.run_all([daemons.mariadb()])
        self.step("MariaDB ready")
        self.run_all([daemons.slurmdbd(self._ports)])
        self.step("slurmdbd ready")

    def _make_database(self) -> None:
        log = self.layout.log("mariadb-install-db")
        child = self._compartments[COMMANDS].spawn(daemons.INSTALL_DATABASE, user="mysql", log=log, env={})
        try:
            self.until(lambda: child.poll() is not None, "a new database", [])
        finally:
            child.kill()
            child.wait()
        if child.returncode != 0:
            raise BoxError(f"mariadb-install-db failed: {tail(log)}")
        files.add_database(self._places)

    # --------------------------------------------------------------------------------------------- components

    @property
    def _ports(self) -> Mapping[str, int]:
        return {name: held.port for name, held in self._held.items()}

    @property
    def _url(self) -> str:
        return f"http://{LOOPBACK}:{self._ports[daemons.SLURMRESTD]}"

    def _compartment(self, name: str, binds: Mapping[str, Path], hostname: str = "") -> Compartment:
        view = View(self._rootfs, self._places.root, hostname or name, binds)
        return Compartment(view, self.layout.log(name))

    def launch(self, component: Daemon) -> subprocess.Popen[bytes]:
        """Start a daemon in its compartment, a new one unless its last life left one."""
        name = component.name
        self._kept.discard(name)
        if name not in self._compartments:
            binds = self._places.binds()
            if component.node is not None:
                binds = self._places.node_binds(component.node)
            if component.own_run:
                files.add_run(self._places, name)
                binds = {**binds, "run": self._places.node_run(name)}
            hostname = component.node or component.host or name
            self._compartments[name] = self._compartment(name, binds, hostname)
        log, env = self.layout.log(name), component.env
        return self._compartments[name].spawn(component.argv, user=component.user, log=log, env=env)

    def healthy(self, component: Daemon) -> bool | None:
        """Say whether a daemon listens where it should."""
        if component.name == daemons.MARIADB:
            return self._database_answers()
        return None if component.port is None else listening(component.port, component.address)

    def _database_answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(1.0)
            return client.connect_ex(str(self._places.folder / "run" / "mysqld" / "mysqld.sock")) == 0

    def _all_registered(self) -> bool:
        """Say whether slurmctld has heard of every node that was started."""
        key = (self._places.etc / "jwt.key").read_bytes()
        with Api(self._url, timeout=10.0) as api:
            self._version, found = listed_nodes(api, jwt.mint(key, "slurm", 60.0, time.time()))
        waiting = {name: found.get(name, ["MISSING"]) for name in self._spec.node_names}
        return not any({"MISSING", "NOT_RESPONDING", "UNKNOWN"} & set(state) for state in waiting.values())

    def ended(self, name: str) -> None:
        """End what a daemon left running, jobs among it, unless that was asked to stay."""
        if name not in self._kept and name in self._compartments:
            self._compartments.pop(name).close()

    def release(self) -> None:
        """End every compartment."""
        for compartment in self._compartments.values():
            compartment.close()

    # ----------------------------------------------------------------------------------------------- requests

    def actions(self) -> dict[str, Action]:
        """Serve what only a Slurm box has: nodes that come and go, jobs that may outlive their slurmd."""
        return {
            "add-node": self._add_node,
            "remove-node": self._remove_node,
            "stop": lambda request: self.stop(self._with_all(request)),
            "kill": lambda request: self.kill(self._with_all(request)),
            "stop-only": self._stop_only,
        }

    def _make_node(self, name: str, settings: str) -> Daemon:
        node = check_node_name(name)
        if daemons.SLURMD + node in self.components:
            raise SpecError(f"node name: {node!r} is taken by a node of this box")
        files.add_node(self._places, node)
        name = daemons.SLURMD + node
        held = self._retired.pop(name) if name in self._retired else SlurmPort()
        self._held[name] = held
        return daemons.slurmd(node, settings, held.port, self._ports)

    def _add_node(self, request: Mapping[str, Any]) -> None:
        daemon = self._make_node(str(request["node"]), str(request["conf"]) or self._spec.node_conf)
        self.spawn(daemon)
        try:
            self.await_ready(daemon, [daemon.name])
        except BoxError:
            self._forget_node(daemon.name)
            raise

    def _remove_node(self, request: Mapping[str, Any]) -> None:
        self._forget_node(self.known(daemons.SLURMD + str(request["node"])).name)

    def _forget_node(self, name: str) -> None:
        if self.children[name].poll() is None:
            self.kill(name)
        self._kept.discard(name)
        self.ended(name)
        self.pids.pop(name, None)
        del self.components[name], self.children[name]
        # slurmctld keeps the record with this port, and does not reach a later slurmd of the name on another.
        self._retired[name] = self._held.pop(name)
        self.record()

    def _with_all(self, request: Mapping[str, Any]) -> str:
        name = self.known(str(request["component"])).name
        self._kept.discard(name)
        return name

    def _stop_only(self, request: Mapping[str, Any]) -> None:
        name = self.known(str(request["component"])).name
        self._kept.add(name)
        self.stop(name)

    def describe(self, supervisor: ProcessId) -> Record:
        """Describe the cluster and its processes, that of the caller's commands among them."""
        commands = ProcessId.of(self._compartments[COMMANDS].pid)
        return Record(
            name=self.layout.name,
            server=self._url,
            etcd="",
            version=self._version,
            ready=self.ready,
            created=self.created,
            spec=self._spec.to_json(),
            supervisor=supervisor,
            owner=self.owner,
            processes={**self.pids, **({} if commands is None else {COMMANDS: commands})},
            ports=self._ports,
        )


def main() -> None:
    """Run the supervisor of the box that standard input describes."""
    # Files in the box are read by users that are not ours.
    os.umask(0o022)
    # Every daemon takes a few: its compartment's namespaces and its held port.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, _OPEN_FILES), most))
    SlurmSupervisor(SlurmLaunch.from_json(sys.stdin.read()), report).run()


if __name__ == "__main__":
    main()
