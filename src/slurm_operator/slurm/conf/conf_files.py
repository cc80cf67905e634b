"""The text of slurm.conf, slurmdbd.conf and cgroup.conf.

A file is a list of sections, each under a heading of its own, in an order that never changes: the text feeds
hashes, and a hash that changes restarts a daemon. For equal input it is equal to the byte to what the Go
operator wrote, so that taking a cluster over restarts nothing.

Of two lines that set the same parameter Slurm believes the last one. So the user's lines stand behind the
operator's, and win. Three parameters are lists that the cluster cannot work without (`enable_configless` is
how workers get their configuration at all). Where the user sets one of these, the union of both lists
follows behind the user's line, in a section of its own (`merged`).

A value that would break the file raises ConfError, which names its parameter (`conf_lines`).
"""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

from slurm_operator.slurm.conf.conf_lines import check_line, merged, password, port, settings, text, word
from slurm_operator.slurm.model import hostlist

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_AUTH_INFO = ("use_client_ids",)
_NOTHING = "/bin/true"
# A year. Only a finite time switches power saving on for the nodes that have a shorter one.
_NEVER_IDLE = 31_536_000
# The end of the name of a partition in which no job can run.
_TIMES_ONLY = "-power-saving"
# Items of a list of nodes: a comma in brackets does not end one.
_EXCLUDED = re.compile(r"(?:[^,\[]|\[[^\]]*\]?)+")
_CONTROLLER_PARAMETERS = ("enable_configless", "reconfig_on_restart")


@dataclass(frozen=True, slots=True)
class Host:
    """One slurmctld: its host name, and the address of it if that is another."""

    name: str
    address: str = ""


@dataclass(frozen=True, slots=True)
class DaemonAddress:
    """Where a daemon listens."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Scripts:
    """Prologs and epilogs: full paths for those of slurmctld, names of files beside slurm.conf otherwise."""

    prolog_slurmctld: tuple[str, ...] = ()
    epilog_slurmctld: tuple[str, ...] = ()
    prolog: tuple[str, ...] = ()
    epilog: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PowerSaving:
    """How long Slurm waits for the nodes of a node set, and how many idle ones it keeps.

    When it powers them down is part of their records (`slurmd_records`). A partition with such a time would
    give it to all nodes without one that have the feature, also to those of other node sets.
    """

    suspend_timeout: int
    resume_timeout: int
    keeps: int = 0


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """A node set that collects nodes by the feature of its name; a partition if options for one are given."""

    name: str
    partition: str | None = None
    power: PowerSaving | None = None


@dataclass(frozen=True, slots=True)
class JwtKeys:
    """The files that hold the key of tokens and, if others may sign tokens too, their key set."""

    key: str
    key_set: str = ""

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return them as options of AuthAltParameters."""
        return (f"jwt_key={self.key}", *((f"jwks={self.key_set}",) if self.key_set else ()))


@dataclass(frozen=True, slots=True)
class SlurmConf:
    """A cluster whose slurmctld the operator runs."""

    _: KW_ONLY
    cluster_name: str
    hosts: tuple[Host, ...]
    port: int
    client_address: str
    state_directory: str
    slurmd_port: int
    slurmd_spool: str
    max_nodes: int
    controller_log: str
    slurmd_log: str
    jwt: JwtKeys
    metrics: bool = False
    accounting: DaemonAddress | None = None
    scripts: Scripts = Scripts()
    node_groups: tuple[NodeGroup, ...] = ()
    extra: str = ""
    user: str = "slurm"
    slurmd_user: str = "root"
    constrain_memory: bool = False


@dataclass(frozen=True, slots=True)
class ExternalSlurmConf:
    """A cluster whose slurmctld runs elsewhere: only what slurmrestd needs to find it."""

    _: KW_ONLY
    cluster_name: str
    address: DaemonAddress
    accounting: DaemonAddress | None = None
    user: str = "slurm"


@dataclass(frozen=True, slots=True)
class Database:
    """The database in which slurmdbd keeps its records."""

    _: KW_ONLY
    host: str
    port: int
    user: str
    name: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SlurmdbdConf:
    """A slurmdbd that the operator runs."""

    _: KW_ONLY
    host: str
    port: int
    jwt: JwtKeys
    database: Database
    extra: str = ""
    user: str = "slurm"


# ------------------------------------------------------------------------------------------------- the files


def slurm_conf(conf: SlurmConf) -> str:
    """Return the slurm.conf of a cluster."""
    required = {
        "AuthAltParameters": conf.jwt.parameters,
        "AuthInfo": _AUTH_INFO,
        "SlurmctldParameters": _CONTROLLER_PARAMETERS,
    }
    kept = _kept_up(conf)
    general = [
        word("ClusterName", conf.cluster_name),
        word("SlurmUser", conf.user),
        *(_host(host) for host in conf.hosts),
        port("SlurmctldPort", conf.port),
        word("SlurmctldAddr", conf.client_address),
        word("StateSaveLocation", conf.state_directory),
        word("SlurmdUser", conf.slurmd_user),
        port("SlurmdPort", conf.slurmd_port),
        word("SlurmdSpoolDir", conf.slurmd_spool),
        f"MaxNodeCount={conf.max_nodes}",
    ]
    logging = [
        word("SlurmctldLogFile", conf.controller_log),
        word("SlurmSchedLogFile", conf.controller_log),
        word("SlurmdLogFile", conf.slurmd_log),
    ]
    plugins = [
        "AuthType=auth/slurm",
        "CredType=cred/slurm",
        "AuthAltTypes=auth/jwt",
        *(word(name, ",".join(options)) for name, options in required.items()),
        *(("MetricsType=metrics/openmetrics",) if conf.metrics else ()),
        *_task_plugin(conf),
    ]
    return text(
        ("GENERAL", general),
        ("LOGGING", logging),
        ("PLUGINS & PARAMETERS", plugins),
        ("ACCOUNTING", _accounting(conf.accounting)),
        (
            "SLURMCTLD PROLOG & EPILOG",
            [
                *(word("PrologSlurmctld", path) for path in conf.scripts.prolog_slurmctld),
                *(word("EpilogSlurmctld", path) for path in conf.scripts.epilog_slurmctld),
            ],
        ),
        (
            "PROLOG & EPILOG",
            [
                *(word("Prolog", name) for name in conf.scripts.prolog),
                *(word("Epilog", name) for name in conf.scripts.epilog),
            ],
        ),
        ("POWER SAVING", _power_saving(conf, kept)),
        ("NODESET & PARTITION", [line for group in conf.node_groups for line in _node_group(group)]),
        ("EXTRA CONFIG", [conf.extra] if conf.extra else []),
        ("MERGED CONFIG", [*merged(conf.extra, required), *_kept_up_too(conf.extra, kept)]),
    )


def external_slurm_conf(conf: ExternalSlurmConf) -> str:
    """Return the slurm.conf with which slurmrestd finds a slurmctld that runs elsewhere."""
    general = [
        word("ClusterName", conf.cluster_name),
        word("SlurmUser", conf.user),
        word("SlurmctldHost", conf.address.host),
        port("SlurmctldPort", conf.address.port),
    ]
    plugins = ["AuthType=auth/slurm", "CredType=cred/slurm", "AuthAltTypes=auth/jwt"]
    return text(
        ("GENERAL", general),
        ("PLUGINS & PARAMETERS", plugins),
        ("ACCOUNTING", _accounting(conf.accounting)),
    )


def slurmdbd_conf(conf: SlurmdbdConf) -> str:
    """Return the slurmdbd.conf, which contains the password of the database."""
    required = {"AuthAltParameters": conf.jwt.parameters, "AuthInfo": _AUTH_INFO}
    general = [
        word("DbdHost", conf.host),
        port("DbdPort", conf.port),
        word("SlurmUser", conf.user),
    ]
    plugins = [
        "AuthType=auth/slurm",
        "AuthAltTypes=auth/jwt",
        *(word(name, ",".join(options)) for name, options in required.items()),
    ]
    storage = [
        "StorageType=accounting_storage/mysql",
        word("StorageHost", conf.database.host),
        port("StoragePort", conf.database.port),
        *((word("StorageUser", conf.database.user),) if conf.database.user else ()),
        word("StorageLoc", conf.database.name),
        *((password("StoragePass", conf.database.password),) if conf.database.password else ()),
    ]
    return text(
        ("GENERAL", general),
        ("PLUGINS & PARAMETERS", plugins),
        ("STORAGE", storage),
        ("LOGGING", ["LogFile=/dev/null"]),
        *_extra(conf.extra, required),
    )


def cgroup_conf(*, constrain_memory: bool = False) -> str:
    """Return the cgroup.conf for workers in pods: no systemd to ask, control groups of the second version."""
    limits = "ConstrainRAMSpace=yes\n" if constrain_memory else ""
    return f"CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n{limits}"


# ----------------------------------------------------------------------------------------------------- parts


def _task_plugin(conf: SlurmConf) -> tuple[str, ...]:
    """Return what makes cgroup.conf's limits hold for tasks, unless the user has a word in this."""
    wanted = conf.constrain_memory and "taskplugin" not in settings(conf.extra)
    return ("TaskPlugin=task/cgroup",) if wanted else ()


def _extra(extra: str, required: Mapping[str, Iterable[str]]) -> tuple[tuple[str, list[str]], ...]:
    return (("EXTRA CONFIG", [extra] if extra else []), ("MERGED CONFIG", merged(extra, required)))


def _host(host: Host) -> str:
    if not host.address:
        return word("SlurmctldHost", host.name)
    return word("SlurmctldHost", f"{host.name}({host.address})")


def _accounting(address: DaemonAddress | None) -> list[str]:
    if address is None:
        return ["AccountingStorageType=accounting_storage/none"]
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        word("AccountingStorageHost", address.host),
        port("AccountingStoragePort", address.port),
    ]


def _kept_up(conf: SlurmConf) -> tuple[str, ...]:
    """Return of which node sets Slurm keeps how many idle nodes; a count of 0 would mean all."""
    return tuple(
        f"{group.name}:{group.power.keeps}"
        for group in conf.node_groups
        if group.power is not None and group.power.keeps > 0
    )


def _kept_up_too(extra: str, kept: tuple[str, ...]) -> list[str]:
    """Return the line that keeps up the nodes that the user excludes, too, if both name some.

    Where one of them has a count, Slurm splits at every comma, so none may be left in brackets.
    """
    given = settings(extra).get("suspendexcnodes")
    if not kept or given is None:
        return []
    others = [name for item in _EXCLUDED.findall(given.strip('"')) for name in _without_commas(item)]
    return [f"SuspendExcNodes={','.join(dict.fromkeys((*kept, *others)))}"]


def _without_commas(item: str) -> list[str]:
    if "," not in item or ":" in item:
        return [item]
    try:
        return hostlist.expand(item)
    except ValueError:
        return [item]  # Slurm reports what is wrong with it


def _power_saving(conf: SlurmConf, kept: Iterable[str]) -> list[str]:
    """Return what switches power saving on, where a node set asks for it, and for no other one.

    The operator reads the states of nodes, so the programs have nothing to do. Nodes whose record and whose
    partitions have no SuspendTime are powered down after a year. The rates have no bound: pods come and go by
    the hundred.
    """
    if not any(group.power for group in conf.node_groups):
        return []
    return [
        f"SuspendProgram={_NOTHING}",
        f"ResumeProgram={_NOTHING}",
        f"SuspendTime={_NEVER_IDLE}",
        "SuspendRate=0",
        "ResumeRate=0",
        *((word("SuspendExcNodes", ",".join(kept)),) if kept else ()),
    ]


def _node_group(group: NodeGroup) -> list[str]:
    lines = [word("NodeSet", group.name) + f" Feature={group.name}"]
    if group.partition is None and group.power is None:
        return lines
    power = "" if group.power is None else f" {_times(group.power)}"
    if group.partition is not None:
        check_line(f"PartitionName={group.name}", group.partition)
        lines.append(f"PartitionName={group.name} Nodes={group.name}{power} {group.partition}")
    else:
        # Slurm has the timeouts by partition only; of the partitions of a node the longest counts.
        name = f"{group.name}{_TIMES_ONLY}"
        lines.append(f"{word('PartitionName', name)} Nodes={group.name}{power} Hidden=YES State=INACTIVE")
    return lines


def _times(power: PowerSaving) -> str:
    return f"SuspendTimeout={power.suspend_timeout} ResumeTimeout={power.resume_timeout}"
