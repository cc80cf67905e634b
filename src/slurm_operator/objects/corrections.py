"""Configuration files of Slinky slurm-operator that a daemon runs on with after a migration.

Some of what we write into slurm.conf and slurmdbd.conf differs from what a release of Slinky slurm-operator
wrote for the same custom resources: the port of slurmdbd's Service, a password that needs quotes, more room
for nodes, other addresses of slurmctld, settings that 1.0 and 1.1 always had. None of these is worth a
restart that the user did not ask for. So while nothing else differs, the files stay as they are; the next
change that restarts the daemon brings the corrections too, and so does the user's consent, an annotation.

A difference is a correction if each line that would go is one that a release wrote for this very spec, and
each line that would come sets a parameter that we are known to write otherwise. Everything else is a change.

Whether to wait is decided together with the pod template (`migration`): files and template stay, or both
become ours. Otherwise a daemon could be told to read a file that names what its pod does not have.
"""

from __future__ import annotations

import base64
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from slurm_operator.api import wellknown
from slurm_operator.objects.content_references import data_checksum
from slurm_operator.objects.migration import is_adopted, settle

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from slurm_operator.api import Kind
    from slurm_operator.objects.desired import Desired, Manifest, ObjectName
    from slurm_operator.objects.slurm_conf import SlurmCluster

# Parameters that a release of Slinky slurm-operator lacks, or writes otherwise.
_CORRECTED: Final = frozenset(
    {
        "AccountingStorageHost",
        "AccountingStoragePort",
        "AuthAltParameters",
        "AuthInfo",
        "MaxNodeCount",
        "SlurmctldAddr",
        "SlurmctldHost",
        "SlurmctldParameters",
        "StoragePass",
    }
)
# Settings that releases wrote into every cluster, and that are the user's since.
_FORMER: Final = frozenset(
    {
        "MaxNodeCount=1024",
        # 1.0 and 1.1
        "AccountingStorageTRES=gres/gpu",
        "AutoDetect=nvidia",
        "CommunicationParameters=block_null_hash",
        "GresTypes=gpu",
        "JobAcctGatherType=jobacct_gather/cgroup",
        "JobAcctGatherType=jobacct_gather/linux",
        "JobAcctGatherType=jobacct_gather/none",
        "LogTimeFormat=iso8601,format_stderr",
        "ProctrackType=proctrack/cgroup",
        "ProctrackType=proctrack/linuxproc",
        "PrologFlags=Contain",
        "ReturnToService=2",
        "SelectTypeParameters=CR_Core_Memory",
        "SlurmctldParameters=enable_configless",
        "SlurmctldParameters=enable_configless,enable_stepmgr",
        "TaskPlugin=task/affinity",
        "TaskPlugin=task/affinity,task/cgroup",
        # 1.0
        f"AuthAltParameters=jwt_key={wellknown.DIR_SLURM_ETC}/{wellknown.FILE_JWT_HS256_KEY}",
    }
)
_FIXED: Final = ("serviceName", "podManagementPolicy")
_SECRET: Final = frozenset({"StoragePass"})


class Files(NamedTuple):
    """The object with the files of a daemon, and the annotation of its pods with their hash."""

    kind: str
    name: str
    annotation: str


@dataclass(frozen=True, slots=True)
class Kept:
    """What to apply, and what waits: one text for each parameter, without secrets."""

    desired: Desired
    waiting: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------------- what they wrote


def former_slurm_lines(cluster: SlurmCluster) -> frozenset[str]:
    """Return the lines that releases of Slinky slurm-operator write into slurm.conf, and we do not."""
    controller = cluster.controller
    lines = {f"SlurmctldHost={controller.primary_name}({controller.service_address})"}
    if cluster.accounting is not None:
        # An external slurmdbd, and the port of a Service, are not looked at there.
        lines |= {
            f"AccountingStorageHost={cluster.accounting.service_name}",
            f"AccountingStoragePort={wellknown.PORT_SLURMDBD}",
        }
    return _FORMER | lines


def former_slurmdbd_lines(password: bytes) -> frozenset[str]:
    """Return the lines that releases of Slinky slurm-operator write into slurmdbd.conf, and we do not."""
    text = password.decode(errors="replace")
    return _FORMER | {"StorageUser=", *_lines(f"StoragePass={text}")}


def consented(live: Kind) -> bool:
    """Return whether the user wants corrections at once, with the restart that they need."""
    return live.metadata.annotations.get(wellknown.ANNOTATION_APPLY_CORRECTIONS) == wellknown.TRUE


# -------------------------------------------------------------------------------------------------- decision


def differences(
    theirs: Mapping[str, str], ours: Mapping[str, str], former: Collection[str]
) -> list[str] | None:
    """Return what each correction changes; None if something differs that is no correction."""
    found: list[str] = []
    for name in sorted({*theirs, *ours}):
        before, after = Counter(_lines(theirs.get(name, ""))), Counter(_lines(ours.get(name, "")))
        gone, new = before - after, after - before
        if any(line not in former for line in gone):
            return None
        if any(_parameter(line) not in _CORRECTED for line in new):
            return None
        found += _described(gone, new)
    return found or ["comments and empty lines"]


def keep(
    desired: Desired,
    files: Files,
    workload: ObjectName,
    live: Mapping[str, Any] | None,
    written: Mapping[str, str],
    former: Collection[str],
) -> Kept:
    """Return what to apply: the files as they were written, as long as nothing but corrections differs.

    `live` is the workload as it runs: its annotations, template and what cannot be changed. `written` has the
    files as they were written last.
    """
    item, config = desired.find(workload.kind, workload.name), desired.find(files.kind, files.name)
    if live is None or not written or item is None or config is None:
        return Kept(desired)
    ours = _texts(config)
    if written == ours:
        return Kept(desired)
    waiting = differences(written, ours, former)
    running = _template_annotations(live).get(files.annotation)
    current = running in (None, data_checksum({name: text.encode() for name, text in written.items()}))
    if waiting is not None and current:
        settled = settle(item, live, kept=frozenset({files.annotation}))
        if is_adopted(settled):
            return Kept(
                _replaced(desired, item, _in_place(settled, live), config, _with_texts(config, written)),
                tuple(waiting),
            )
    if running is None and files.annotation in item["spec"]["template"]["metadata"]["annotations"]:
        # The pods know nothing of these files, and yet must not stay behind them.
        return Kept(_replaced(desired, item, settle(item, None), config, config))
    return Kept(desired)


def _in_place(settled: Manifest, live: Mapping[str, Any]) -> Manifest:
    """Return a workload that keeps what cannot be changed without recreating it."""
    fixed = {name: live["spec"][name] for name in _FIXED if live["spec"].get(name)}
    return {**settled, "spec": {**settled["spec"], **fixed}}


def _replaced(
    desired: Desired, item: Manifest, new_item: Manifest, config: Manifest, new_config: Manifest
) -> Desired:
    new = {id(item): new_item, id(config): new_config}
    return replace(desired, objects=tuple(new.get(id(one), one) for one in desired.objects))


# ----------------------------------------------------------------------------------------------------- texts


def _texts(config: Manifest) -> dict[str, str]:
    if config["kind"] == "Secret":
        return {name: base64.b64decode(text).decode() for name, text in config["data"].items()}
    return dict(config["data"])


def _with_texts(config: Manifest, texts: Mapping[str, str]) -> Manifest:
    if config["kind"] == "Secret":
        data = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
    else:
        data = dict(texts)
    return {**config, "data": data}


def _lines(text: str) -> list[str]:
    """Return the lines that set something, one by one."""
    lines = (line.strip() for line in text.split("\n"))
    return [line for line in lines if line and not line.startswith("#")]


def _parameter(line: str) -> str:
    return line.partition("=")[0]


def _described(gone: Counter[str], new: Counter[str]) -> list[str]:
    texts = {}
    for name in dict.fromkeys(map(_parameter, (*gone, *new))):
        before = [line for line in gone if _parameter(line) == name]
        after = [line for line in new if _parameter(line) == name]
        if name in _SECRET:
            texts[name] = f"{name} gets quotes"
        elif not after:
            texts[name] = f"{' and '.join(before)} is removed"
        elif not before:
            texts[name] = f"{' and '.join(after)} is added"
        else:
            texts[name] = f"{' and '.join(before)} becomes {' and '.join(after)}"
    return [*texts.values()]


def _template_annotations(live: Mapping[str, Any]) -> Mapping[str, str]:
    return live["spec"]["template"].get("metadata", {}).get("annotations") or {}
