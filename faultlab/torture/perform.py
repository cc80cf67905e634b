"""Carries out the actions of the schedule; each returns, in words, on what it was done and what came of it.

An action that is refused, or that finds nothing to be done to, is part of the run and no failure: what counts
is what becomes of the jobs. What was stopped is continued, and what was cordoned is uncordoned, also when an
action is interrupted; `repair` ends everything that is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from typing import TYPE_CHECKING, Final

from faultlab.torture.keys import JWT, Rotation, write_secret
from faultlab.torture.stage import OPERATOR, REASON, SPARE, TAINT, Postponed, slurm_name
from kubebox.errors import BoxError
from scripts.demo_cluster import NODESET, OPERATOR_NAMESPACE, RELEASE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from faultlab.torture.schedule import Action
    from faultlab.torture.stage import Json, Stage

REPLICAS: Final = 2
_MOST: Final = 3
_EVICTIONS, _EVICTION_PAUSE = 3, 5.0
_API_SERVER: Final = "kube-apiserver"
_WORKERS_ONLY: Final = (
    "--pod-selector=app.kubernetes.io/name=slurmd",
    "--force",
    "--delete-emptydir-data",
)
# The pods of each daemon, and the program that is stopped or killed in them.
_PROGRAMS: Final = {
    "slurmctld": ("slurmctld", "slurmctld"),
    "slurmrestd": ("slurmrestd", "slurmrestd"),
    "operator": (OPERATOR, OPERATOR),
    "webhook": (f"{OPERATOR}-webhook", OPERATOR),
}


class Performer:
    """Carries out actions, each in a thread of its own."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._rotation = Rotation(stage)
        self._helm = threading.Lock()
        self._hurry = threading.Event()
        """Set when lasting actions are to end now."""

    def perform(self, action: Action) -> str:
        """Carry out an action, and return what came of it; BoxError says why it could not be done."""
        return ACTIONS[action.do](self, action)

    def hurry(self) -> None:
        """Let lasting actions end now."""
        self._hurry.set()

    def _last(self, action: Action) -> None:
        self._hurry.wait(action.seconds)

    # --- NodeSets

    def scale(self, action: Action) -> str:
        """Change the number of replicas."""
        replicas = 1 + action.number % _MOST
        self._stage.cluster.kubectl("scale", f"nodeset/{NODESET}", f"--replicas={replicas}")
        return f"{replicas} replicas"

    def update(self, action: Action) -> str:
        """Change the template, so that workers are replaced."""
        env = [{"name": "TORTURE", "value": str(action.number)}]
        self._stage.cluster.patch("nodeset", NODESET, {"spec": {"slurmd": {"env": env}}})
        return f"TORTURE={action.number}"

    def create_nodeset(self, _action: Action) -> str:
        """Create the spare NodeSet."""
        if self._stage.exists("nodeset", SPARE):
            raise Postponed(f"{SPARE} exists")
        other = self._stage.cluster.get("nodeset", NODESET)
        spec = {**other["spec"], "replicas": 1, "template": {"spec": {"hostname": "spare-"}}}
        made = {
            "apiVersion": other["apiVersion"],
            "kind": "NodeSet",
            "metadata": {"name": SPARE},
            "spec": spec,
        }
        self._stage.cluster.kubectl("create", "--filename=-", stdin=json.dumps(made))
        return SPARE

    def delete_nodeset(self, _action: Action) -> str:
        """Delete the spare NodeSet."""
        if not self._stage.exists("nodeset", SPARE):
            raise Postponed(f"there is no {SPARE}")
        self._stage.cluster.kubectl("delete", "nodeset", SPARE, "--wait=false")
        return SPARE

    # --- nodes and workers

    def cordon(self, action: Action) -> str:
        """Cordon a node for a while."""
        node = self._stage.node(action.number)
        self._stage.cluster.kubectl("cordon", node)
        try:
            self._last(action)
        finally:
            self._uncordon(node)
        return node

    def _uncordon(self, node: str) -> None:
        self._again(lambda: self._stage.cluster.kubectl("uncordon", node))

    def _again(self, call: Callable[[], object]) -> None:
        """Do what ends an action, several times if the API server is away just then."""
        for _ in range(5):
            try:
                call()
            except BoxError:
                self._hurry.wait(5.0)
            else:
                return

    def drain(self, action: Action) -> str:
        """Drain a node with kubectl, and uncordon it."""
        node = self._stage.node(action.number)
        command = ("drain", node, *_WORKERS_ONLY, f"--timeout={action.seconds:.0f}s")
        try:
            with self._stage.cluster.started("kubectl", *command) as draining:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    draining.communicate(timeout=action.seconds + 10)
                code = draining.poll()
        finally:
            self._uncordon(node)
        return f"{node}: {'drained' if code == 0 else 'given up'}"

    def taint(self, action: Action) -> str:
        """Taint a node for a while."""
        node = self._stage.node(action.number)
        effect = "NoExecute" if action.do == "evacuate" else "NoSchedule"
        self._stage.cluster.kubectl("taint", "node", node, f"{TAINT}=yes:{effect}", "--overwrite")
        try:
            self._last(action)
        finally:
            self._again(lambda: self._stage.cluster.kubectl("taint", "node", node, f"{TAINT}-"))
        return node

    def slurm_drain(self, action: Action) -> str:
        """Drain a worker with scontrol, and resume it."""
        node = slurm_name(self._stage.worker(action.number))
        update = ("scontrol", "update", f"nodename={node}")
        self._stage.cluster.slurm(*update, "state=drain", f"reason={REASON}")
        self._last(action)
        try:
            self._stage.resume(node)
        except BoxError as error:
            return f"{node}, not resumed: {error}"
        return node

    def evict(self, action: Action) -> str:
        """Ask for the eviction of a worker, a few times."""
        pod = self._stage.worker(action.number)
        answers = []
        for _ in range(_EVICTIONS):
            answers.append(str(self._stage.evict(pod)))
            if self._hurry.wait(_EVICTION_PAUSE):
                break
        return f"{pod['metadata']['name']}: {', '.join(answers)}"

    def delete_worker(self, action: Action) -> str:
        """Ask for the deletion of a worker."""
        name = self._stage.worker(action.number)["metadata"]["name"]
        try:
            self._stage.cluster.kubectl("delete", "pod", name, "--wait=false")
        except BoxError as error:
            # Refused and recorded: that is what protects jobs.
            return f"{name}: refused, {str(error).rpartition('forbidden: ')[2]}"
        return f"{name}: deleted"

    # --- daemons

    def _target(self, action: Action) -> tuple[Json, str]:
        app, program = _PROGRAMS[action.do.partition("-")[2]]
        return self._stage.pod_of(app), program

    def delete_pod(self, action: Action) -> str:
        """Delete the pod of a daemon."""
        meta = self._target(action)[0]["metadata"]
        where = ("--namespace", meta["namespace"])
        self._stage.cluster.kubectl("delete", "pod", meta["name"], "--wait=false", *where)
        return str(meta["name"])

    def kill(self, action: Action) -> str:
        """Kill a daemon."""
        pod, program = self._target(action)
        self._stage.send(pod, program, signal.SIGKILL)
        return str(pod["metadata"]["name"])

    def freeze(self, action: Action) -> str:
        """Stop a daemon for a while."""
        pod, program = self._target(action)
        return self._stop(pod, program, action)

    def freeze_slurmd(self, action: Action) -> str:
        """Stop the slurmd of a worker for a while."""
        return self._stop(self._stage.worker(action.number), "slurmd", action)

    def _stop(self, pod: Json, program: str, action: Action) -> str:
        stopped = self._stage.send(pod, program, signal.SIGSTOP)
        try:
            self._last(action)
        finally:
            for process in stopped:
                process.signal(signal.SIGCONT)
        return str(pod["metadata"]["name"])

    def freeze_kubelet(self, action: Action) -> str:
        """Stop a kubelet for a while."""
        node = self._stage.node(action.number)
        with self._paused(f"{node}.kubelet"):
            self._last(action)
        return node

    def kill_kubelet(self, action: Action) -> str:
        """Kill a kubelet."""
        node = self._stage.node(action.number)
        self._stage.box.crash(f"{node}.kubelet")
        return node

    def freeze_apiserver(self, action: Action) -> str:
        """Stop kube-apiserver for a while."""
        with self._paused(_API_SERVER):
            self._last(action)
        return ""

    @contextlib.contextmanager
    def _paused(self, component: str) -> Iterator[None]:
        self._stage.box.pause(component)
        try:
            yield
        finally:
            self._stage.box.resume(component)

    def restart_apiserver(self, _action: Action) -> str:
        """Kill kube-apiserver, and start it again."""
        self._stage.box.restart(_API_SERVER, kill=True)
        return ""

    def cut(self, action: Action) -> str:
        """Cut the operator off from slurmrestd for a while."""
        pod, addresses = self._stage.pod_of(OPERATOR), self._stage.rest_addresses()
        try:
            self._stage.cut(pod, addresses)
            self._last(action)
        finally:
            # With the pod, its routes are gone as well.
            with contextlib.suppress(BoxError):
                self._stage.cut(pod, addresses, mend=True)
        return ", ".join(addresses)

    # --- keys and helm

    def jwt_key(self, _action: Action) -> str:
        """Replace the JWT key."""
        write_secret(self._stage, JWT, "jwt.key", os.urandom(32))
        return ""

    def key_step(self, _action: Action) -> str:
        """Take the next step of a rotation of the Slurm key."""
        with self._helm:
            return self._rotation.step()

    def helm_upgrade(self, action: Action) -> str:
        """Upgrade the release with another value."""
        value = f"controller.extraConfMap.KillWait={30 + action.number % 60}"
        with self._helm:
            cluster = self._stage.cluster
            cluster.install(RELEASE, "slurm", cluster.namespace, "--reuse-values", "--set", value)
        return value

    # --- the end

    def repair(self) -> None:
        """End what actions have left: cordons, taints, drains, the spare NodeSet, other replicas."""
        cluster = self._stage.cluster
        for item in cluster.get("nodes")["items"]:
            name, spec = item["metadata"]["name"], item["spec"]
            if spec.get("unschedulable"):
                cluster.kubectl("uncordon", name)
            if any(taint["key"] == TAINT for taint in spec.get("taints", ())):
                cluster.kubectl("taint", "node", name, f"{TAINT}-")
        for node in self._stage.drained_by_us():
            with contextlib.suppress(Postponed):
                self._stage.resume(node)
        if self._stage.exists("nodeset", SPARE):
            cluster.kubectl("delete", "nodeset", SPARE, "--wait=false")
        if cluster.get("nodeset", NODESET)["spec"]["replicas"] != REPLICAS:
            cluster.kubectl("scale", f"nodeset/{NODESET}", f"--replicas={REPLICAS}")
        rollout = ("rollout", "status", f"deployment/{OPERATOR}", "--timeout=100s")
        cluster.kubectl(*rollout, "--namespace", OPERATOR_NAMESPACE)


# How each action is carried out.
ACTIONS: Final[dict[str, Callable[[Performer, Action], str]]] = {
    "scale": Performer.scale,
    "update": Performer.update,
    "create-nodeset": Performer.create_nodeset,
    "delete-nodeset": Performer.delete_nodeset,
    "cordon": Performer.cordon,
    "drain": Performer.drain,
    "taint": Performer.taint,
    "evacuate": Performer.taint,
    "slurm-drain": Performer.slurm_drain,
    "evict": Performer.evict,
    "delete-worker": Performer.delete_worker,
    "freeze-slurmd": Performer.freeze_slurmd,
    "freeze-kubelet": Performer.freeze_kubelet,
    "kill-kubelet": Performer.kill_kubelet,
    "restart-apiserver": Performer.restart_apiserver,
    "freeze-apiserver": Performer.freeze_apiserver,
    "cut": Performer.cut,
    "jwt-key": Performer.jwt_key,
    "key-step": Performer.key_step,
    "helm-upgrade": Performer.helm_upgrade,
    **{f"delete-{daemon}": Performer.delete_pod for daemon in _PROGRAMS},
    **{f"kill-{daemon}": Performer.kill for daemon in _PROGRAMS},
    **{f"freeze-{daemon}": Performer.freeze for daemon in _PROGRAMS},
}
