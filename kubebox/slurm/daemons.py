"""Configuration files and command lines of the daemons. Pure: ports and wishes in, text out."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kubebox.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kubebox.slurm.spec import SlurmSpec

SLURMCTLD, SLURMRESTD, SLURMDBD, MARIADB, SLURMD = "slurmctld", "slurmrestd", "slurmdbd", "mariadb", "slurmd-"
# The name of the compartment in which a caller's commands run; no component can have it.
COMMANDS = "commands"
CLUSTER, DATABASE = "kubebox", "slurm_acct"
_SLURM_CONF = """\
ClusterName={cluster}
{hosts}
SlurmctldPort={slurmctld}
SlurmUser=slurm
AuthType=auth/slurm
CredType=cred/slurm
AuthInfo=use_client_ids
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=/etc/slurm/jwt.key
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmctldParameters=enable_configless
SlurmdParameters=config_overrides
MaxNodeCount={max_nodes}
TreeWidth=65533
ReturnToService={return_to_service}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=batch_sched_delay=0
DefMemPerCPU=100
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MailProg=/bin/true
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd/%n
SlurmctldPidFile=/run/slurmctld/slurmctld.pid
SlurmdPidFile=/run/slurmd/slurmd.pid
KillWait=1
CompleteWait=0
MessageTimeout=5
SlurmdTimeout=20
"""
_SLURMDBD_CONF = """\
AuthType=auth/slurm
AuthInfo=use_client_ids
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=/etc/slurm/jwt.key
DbdHost=localhost
DbdAddr={loopback}
DbdPort={slurmdbd}
SlurmUser=slurm
PidFile=/run/slurmdbd/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageLoc={database}
StorageUser=slurm
"""
_MARIADB = (
    "mariadbd", "--no-defaults", "--datadir=/var/lib/mysql", "--socket=/run/mysqld/mysqld.sock",
    "--pid-file=/run/mysqld/mysqld.pid", "--skip-networking", "--skip-grant-tables",
    # slurmdbd's statements need the older behaviour; the rest trades safety for a quick start.
    "--innodb-snapshot-isolation=OFF", "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M",
    "--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync", "--innodb-doublewrite=0",
    "--innodb-lock-wait-timeout=900", "--skip-log-bin", "--performance-schema=OFF",
)  # fmt: skip
INSTALL_DATABASE = (
    "mariadb-install-db", "--no-defaults", "--datadir=/var/lib/mysql", "--skip-test-db",
    "--auth-root-authentication-method=normal", "--innodb-log-file-size=8M",
)  # fmt: skip


@dataclass(frozen=True)
class Daemon:
    """One daemon of a box: what is run, as whom, and where it listens."""

    name: str
    argv: tuple[str, ...]
    user: str
    port: int | None
    env: Mapping[str, str] = field(default_factory=dict)
    # The node whose pod this is; None for daemons that see the whole box.
    node: str | None = None
    # What it takes its own name to be, its own if empty, and the address at which it listens.
    host: str = ""
    address: str = LOOPBACK
    # Whether it has a /run of its own, for there are others of its kind.
    own_run: bool = False


def port_names(spec: SlurmSpec) -> list[str]:
    """Name the ports that a box needs from the start."""
    return [SLURMCTLD, SLURMRESTD, *([SLURMDBD] if spec.accounting else [])]


def slurm_conf(spec: SlurmSpec, ports: Mapping[str, int], extra: str) -> str:
    """Return slurm.conf; `extra` lines come last, and the last word counts."""
    text = _SLURM_CONF.format(
        cluster=CLUSTER,
        hosts="\n".join(f"SlurmctldHost={host}({address})" for host, address in addresses(spec).items()),
        slurmctld=ports[SLURMCTLD],
        max_nodes=max(2048, spec.cloud_nodes + 1024),
        return_to_service=spec.return_to_service,
    )
    if spec.accounting:
        text += "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=localhost\n"
        text += f"AccountingStoragePort={ports[SLURMDBD]}\n"
    if spec.cloud_nodes:
        text += f"NodeName=c[0000-{spec.cloud_nodes - 1:04}] {spec.node_conf} State=CLOUD\n"
    text += "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
    return text + (extra if extra.endswith("\n") or not extra else extra + "\n")


def slurmdbd_conf(ports: Mapping[str, int]) -> str:
    """Return slurmdbd.conf."""
    return _SLURMDBD_CONF.format(loopback=LOOPBACK, slurmdbd=ports[SLURMDBD], database=DATABASE)


def cgroup_conf() -> str:
    """Return cgroup.conf: test machines lend nobody their cgroups."""
    return "CgroupPlugin=disabled\n"


def addresses(spec: SlurmSpec) -> dict[str, str]:
    """Return where each slurmctld listens: all on one port, so each has a loopback address of its own."""
    ours = ipaddress.ip_address(LOOPBACK)
    return {host: str(ours + number) for number, host in enumerate(spec.controllers)}


def hosts(spec: SlurmSpec, nodes: Iterable[str]) -> str:
    """Return /etc/hosts: every name of the box is this machine."""
    central = ("localhost", SLURMRESTD, SLURMDBD, MARIADB, COMMANDS)
    lines = {**dict.fromkeys((*central, *nodes), LOOPBACK), SLURMCTLD: LOOPBACK, **addresses(spec)}
    return "".join(f"{address} {name}\n" for name, address in lines.items())


def mariadb() -> Daemon:
    """Return MariaDB, reachable by a socket file only."""
    return Daemon(MARIADB, _MARIADB, "mysql", None)


def slurmdbd(ports: Mapping[str, int]) -> Daemon:
    """Return slurmdbd."""
    return Daemon(SLURMDBD, ("slurmdbd", "-D"), "slurm", ports[SLURMDBD])


def slurmctlds(spec: SlurmSpec, ports: Mapping[str, int]) -> list[Daemon]:
    """Return slurmctld and its standbys."""
    return [
        Daemon(
            f"{SLURMCTLD}-{number}" if number else SLURMCTLD,
            ("slurmctld", "-D"),
            "slurm",
            ports[SLURMCTLD],
            host=host,
            address=address,
            own_run=number > 0,
        )
        for number, (host, address) in enumerate(addresses(spec).items())
    ]


def slurmrestd(spec: SlurmSpec, ports: Mapping[str, int]) -> Daemon:
    """Return slurmrestd, with no right of its own: every request brings its token."""
    parts = "openapi/slurmctld,openapi/slurmdbd" if spec.accounting else "openapi/slurmctld"
    address = f"{LOOPBACK}:{ports[SLURMRESTD]}"
    argv = ("slurmrestd", "-s", parts, "-a", "rest_auth/jwt", address)
    return Daemon(SLURMRESTD, argv, "nobody", ports[SLURMRESTD], {"SLURM_JWT": "daemon"})


def slurmd(node: str, conf: str, port: int, ports: Mapping[str, int]) -> Daemon:
    """Return a slurmd that registers itself, as the operator's pods do."""
    argv = (
        "slurmd", "-D", "-Z", "-N", node, "--conf-server", f"{LOOPBACK}:{ports[SLURMCTLD]}",
        "--conf", f"NodeAddr={LOOPBACK} Port={port} {conf}".strip(),
    )  # fmt: skip
    return Daemon(SLURMD + node, argv, "root", port, node=node)
