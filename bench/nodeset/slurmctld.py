"""What the stand-in for Slurm knows: nodes, jobs and reservations, and how requests and slurmds change them.

Records have every field of a real one (`recorded.json`), so that decoding them costs what it costs in life.
Each is encoded once per change, since a cluster of thousands is listed far more often than it changes. Times
are whole seconds, and "unchanged" follows Slurm's own rule: a list asked for in the second of a change may
show it or not, so only a question about a later second can be answered with "nothing new".

Records that are created with `State=CLOUD` are powered down until a job or a request powers them up, and up
when their slurmd has registered. A node that is told to power down is powered down as soon as its slurmd has
ended; a real one is so after SuspendTimeout.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from ClusterShell.NodeSet import NodeSet  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Json = dict[str, Any]

RECORDED: Final[Json] = json.loads(Path(__file__).with_name("recorded.json").read_text(encoding="utf-8"))
_BUSY: Final = frozenset({"ALLOCATED", "MIXED"})
_TERMINATING: Final = "slurm-operator: Pod is terminating"
_CLOUD: Final = "CLOUD"
_UP, _DOWN, _GOING_UP, _GOING_DOWN = "POWER_UP", "POWERED_DOWN", "POWERING_UP", "POWERING_DOWN"
_POWER: Final = frozenset({_DOWN, _GOING_UP, _GOING_DOWN, "NOT_RESPONDING"})


def number(value: float) -> Json:
    """Return a number in the way Slurm writes one."""
    return {"set": True, "infinite": False, "number": value}


class Table:
    """The records of one list, each with its JSON, and the second of the last change.

    `detail` is a field that is null unless a client asks for it.
    """

    def __init__(self, detail: str = "") -> None:
        self._detail = detail
        self.changed = int(time.time())
        self._records: dict[str, Json] = {}
        self._encoded: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, name: str) -> bool:
        return name in self._records

    def __getitem__(self, name: str) -> Json:
        return self._records[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def put(self, name: str, record: Json) -> None:
        """Add a record or replace it."""
        self._records[name] = record
        shown = {**record, self._detail: None} if self._detail else record
        self._encoded[name] = msgspec.json.encode(shown)
        self.changed = int(time.time())

    def change(self, name: str, **fields: object) -> None:
        """Give a record other values in some fields."""
        self.put(name, {**self._records[name], **fields})

    def drop(self, name: str) -> None:
        """Remove a record."""
        del self._records[name], self._encoded[name]
        self.changed = int(time.time())

    def unchanged(self, since: int) -> bool:
        """Return whether there is nothing new since a moment."""
        return since - 1 >= self.changed

    def encoded(self, *, detailed: bool = False) -> bytes:
        """Return the whole list as JSON."""
        if detailed and self._detail:
            return msgspec.json.encode([*self._records.values()])
        return b"[" + b",".join(self._encoded.values()) + b"]"


class Slurmctld:
    """A cluster without any daemons."""

    def __init__(self) -> None:
        self.nodes = Table()
        self.jobs = Table(detail="job_resources")
        self.reservations = Table()
        self._next_job = 1
        self._alive: set[str] = set()
        """The nodes whose slurmd runs."""
        # A slurmctld of the first minute is not believed; this one has been up for a day.
        self.started = int(time.time()) - 86_400

    # --- what slurmds and users do

    def register(self, name: str) -> None:
        """Take in a slurmd that has started: a drain outlives the daemon, being down does not."""
        now = int(time.time())
        self._alive.add(name)
        if name not in self.nodes:
            record = {**RECORDED["node"], "name": name, "hostname": name, "slurmd_start_time": number(now)}
            self.nodes.put(name, record)
            return
        base, *flags = self.nodes[name]["state"]
        drain = "DRAIN" in flags
        if _CLOUD in flags:
            state = ["IDLE" if base == "DOWN" else base, *(word for word in flags if word not in _POWER)]
        else:
            state = ["IDLE", *(["DRAIN"] if drain else []), "DYNAMIC_NORM"]
        reason = self.nodes[name]["reason"] if drain else ""
        self.nodes.change(name, state=state, slurmd_start_time=number(now), reason=reason)

    def terminate(self, name: str) -> None:
        """Do what a worker does before it ends: put its node down; the reason of a drain stays."""
        self._alive.discard(name)
        if name in self.nodes and {_GOING_DOWN, _DOWN} & {*self.nodes[name]["state"]}:
            self._powered(name, _DOWN)
        elif name in self.nodes:
            flags = [word for word in self.nodes[name]["state"][1:] if word != "NOT_RESPONDING"]
            reason = self.nodes[name]["reason"] if "DRAIN" in flags else _TERMINATING
            self.nodes.change(name, state=["DOWN", *flags], reason=reason, alloc_cpus=0)

    def run_job(self, hostlist: str) -> str:
        """Start a job on one CPU of each node and return its id; powered-down nodes are powered up."""
        job = str(self._next_job)
        self._next_job += 1
        now = int(time.time())
        times = {"start_time": number(now), "end_time": number(now + 3600), "time_limit": number(60)}
        names = [*NodeSet(hostlist)]
        record = {**RECORDED["job"], "job_id": int(job), "nodes": hostlist, "batch_host": names[0], **times}
        self.jobs.put(job, record)
        for name in names:
            self.nodes.change(name, state=["MIXED", *self.nodes[name]["state"][1:]], alloc_cpus=1)
            if _DOWN in self.nodes[name]["state"]:
                self._powered(name, _GOING_UP, "NOT_RESPONDING")
        return job

    def end_job(self, job: str) -> None:
        """Let a job complete; Slurm remembers it for a while."""
        self.jobs.change(job, job_state=["COMPLETED"], end_time=number(int(time.time())))
        for name in NodeSet(self.jobs[job]["nodes"]):
            if name in self.nodes and self.nodes[name]["state"][0] in _BUSY:
                self.nodes.change(name, state=["IDLE", *self.nodes[name]["state"][1:]], alloc_cpus=0)

    def suspend(self, hostlist: str) -> None:
        """Power idle nodes down, as Slurm does when they have been idle for long enough."""
        for name in NodeSet(hostlist):
            self._powered(name, _GOING_DOWN if name in self._alive else _DOWN)

    def _powered(self, name: str, *words: str) -> None:
        """Give a node other words of power saving."""
        base, *flags = self.nodes[name]["state"]
        self.nodes.change(name, state=[base, *words, *(word for word in flags if word not in _POWER)])

    # --- what slurmrestd passes on; each returns the names that do not exist

    def update(self, hostlist: Iterable[str], body: Json) -> list[str]:
        """Change nodes; those that exist are changed also when others do not."""
        plain = {
            field: body[key]
            for key, field in (
                ("comment", "comment"),
                ("extra", "extra"),
                ("features", "features"),
                ("features_act", "active_features"),
                ("topology_str", "topology"),
                ("reason", "reason"),
            )
            if key in body
        }
        missing: list[str] = []
        for name in NodeSet(",".join(hostlist)):
            if name not in self.nodes:
                missing.append(name)
                continue
            fields: Json = dict(plain)
            for word in body.get("state", ()):
                fields |= self._told(name, word)
            if body.get("reason"):
                fields |= {"reason_changed_at": number(int(time.time())), "reason_set_by_user": "slurm"}
            self.nodes.change(name, **fields)
        return missing

    def _told(self, name: str, word: str) -> Json:
        """Return what becomes of a node that is told a state."""
        base, *flags = self.nodes[name]["state"]
        flags = [flag for flag in flags if flag != "DRAIN"]
        if word == _UP:
            flags = [flag for flag in flags if flag not in _POWER]
            return {"state": [base, _GOING_UP, "NOT_RESPONDING", *flags]}
        if word == "POWER_DOWN":
            flags = [flag for flag in flags if flag not in _POWER]
            return {"state": [base, _GOING_DOWN if name in self._alive else _DOWN, *flags]}
        if word == "DRAIN":
            return {"state": [base, "DRAIN", *flags]}
        if word in ("UNDRAIN", "RESUME"):
            # A reason says why a node is out of service; this one no longer is.
            return {"state": ["IDLE" if base == "DOWN" else base, *flags], "reason": ""}
        return {"state": [word, *flags]}

    def create(self, conf: str) -> None:
        """Create the nodes of a line of slurm.conf."""
        words = dict(word.split("=", 1) for word in conf.split())
        fields: Json = {"gres": words.get("Gres", ""), "features": words.get("Features", "").split(",")}
        fields |= {
            field: int(words[word])
            for word, field in (("CPUs", "cpus"), ("RealMemory", "real_memory"))
            if word in words
        }
        if "SuspendTime" in words:
            fields["suspend_time"] = number(int(words["SuspendTime"]))
        if words.get("State") == _CLOUD:
            fields["state"] = ["IDLE", _CLOUD, _DOWN, "DYNAMIC_NORM"]
        for name in NodeSet(words["NodeName"]):
            self.nodes.put(name, {**RECORDED["node"], **fields, "name": name, "hostname": name})

    def busy(self, name: str) -> bool:
        """Return whether a node has work."""
        return self.nodes[name]["state"][0] in _BUSY

    def reserve(self, body: Json) -> None:
        """Make a reservation, or change it."""
        name = body["name"]
        given: Json = {"name": name}
        given |= {key: body[key] for key in ("flags", "partition") if key in body}
        given |= {key: number(body[key]["number"]) for key in ("start_time", "end_time") if key in body}
        given |= {key: ",".join(body[key]) for key in ("node_list", "users") if key in body}
        before = self.reservations[name] if name in self.reservations else RECORDED["reservation"]
        self.reservations.put(name, {**before, **given})
