"""Commands and values in pages: make targets, kinds of kubectl and values of the charts exist."""

from __future__ import annotations

import functools
import itertools
import re
from typing import TYPE_CHECKING, Any

import yaml

from slurm_operator.api import wellknown
from tests.support.pages import PAGES, ROOT, blocks, commands, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator


CHARTS = {path.parent.name: path for path in ROOT.glob("charts/*/values.yaml")}


# --------------------------------------------------------------------------------------------------- commands
def test_make_targets_exist() -> None:
    """What a page tells to make can be made."""
    targets = set(re.findall(r"^([a-z-]+):", text_of(ROOT / "Makefile"), re.MULTILINE))
    told = {
        (page.name, words[1])
        for page in PAGES
        for command in commands(page)
        if (words := command.split())[:1] == ["make"] and re.fullmatch(r"[a-z-]+", "".join(words[1:2]))
    }
    assert told
    assert {(page, target) for page, target in told if target not in targets} == set()


_KINDS_OF_OTHERS = (
    *("configmap", "controllerrevision", "crd", "deployment", "endpointslice", "event", "lease"),
    *("namespace", "node", "pdb", "pod", "pvc", "secret", "service", "serviceaccount", "statefulset"),
    "storageclass",
)


@functools.cache
def kinds() -> frozenset[str]:
    """Return every word by which kubectl knows a kind that pages may speak of."""
    known = set()
    for path in ROOT.glob("charts/slurm-operator-crds/templates/*.yaml"):
        # What Helm puts in is no YAML.
        names = yaml.safe_load(re.sub(r"\{\{.*?\}\}", "", text_of(path)))["spec"]["names"]
        ours = {names["singular"], names["plural"], *names.get("shortNames", ())}
        known |= ours | {f"{name}.{wellknown.GROUP}" for name in ours} | set(names.get("categories", ()))
    return frozenset({*known, *_KINDS_OF_OTHERS, *(f"{name}s" for name in _KINDS_OF_OTHERS), "all", "cm"})


_ABOUT = {"get", "describe", "delete", "scale", "patch", "annotate", "label", "wait", "edit", "taint"}
_WITH_VALUE = re.compile(r"-n|-l|-o|-L|-c|-p|-f|--for|--namespace|--selector|--output")


def named_kinds(command: str) -> Iterator[str]:
    """Yield the kinds that a kubectl command names."""
    words = [
        word
        for before, word in zip(["", *command.split()], command.split(), strict=False)
        if not word.startswith("-") and not _WITH_VALUE.fullmatch(before)
    ]
    for verb, word in itertools.pairwise(words[1:]):
        if verb not in _ABOUT or not re.fullmatch(r"[a-z.,]+(/\S*)?", word):
            continue
        yield from word.partition("/")[0].split(",")
        break


def test_kubectl_is_asked_for_kinds_that_exist() -> None:
    """Commands of kubectl name kinds of Kubernetes or of ours."""
    told = {
        (page.name, kind)
        for page in PAGES
        for command in commands(page)
        if command.startswith("kubectl ")
        for kind in named_kinds(command)
    }
    assert ("scaling.md", "nodeset") in told
    assert {(page, kind) for page, kind in told if kind not in kinds()} == set()


# ----------------------------------------------------------------------------------------------------- values
_FREE = {  # objects of Kubernetes, and maps of a user's own
    *("affinity", "image", "nodeSelector", "persistence", "podSpec", "resources", "secretRef", "service"),
    *("login", "logfile", "metadata", "slurmctld", "slurmd", "slurmdbd", "slurmrestd"),
    *("clusters", "configFiles", "configMap", "extraConfMap", "partitions", "scheduledUpdate", "tokens"),
    "slurm-operator-crds",
}
_SETS = {"nodesets": "nodesetDefaults", "loginsets": "loginsetDefaults"}


@functools.cache
def values_of(chart: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text_of(CHARTS[chart]))
    return found


def unknown_values(chart: str, given: dict[str, Any], known: dict[str, Any], path: str = "") -> list[str]:
    """Return the names in some values that the chart does not have."""
    found = []
    for name, value in given.items():
        if name not in known:
            found.append(f"{path}{name}")
        elif name in _SETS and not path:
            defaults = values_of(chart)[_SETS[name]]
            for entry, inside in value.items():
                found += unknown_values(chart, inside or {}, defaults, f"{name}.{entry}.")
        elif isinstance(value, dict) and isinstance(known[name], dict) and name not in _FREE:
            found += unknown_values(chart, value, known[name], f"{path}{name}.")
    return found


def test_values_in_pages_exist() -> None:
    """Values that a page shows for a chart are values of that chart."""
    shown, wrong = 0, []
    for page in PAGES:
        for block in blocks(page, "yaml"):
            if (head := re.match(r"# values of the chart ([\w-]+)\n", block)) is None:
                continue
            shown += 1
            wrong += [
                f"{page.name}: {name}"
                for name in unknown_values(head[1], yaml.safe_load(block), values_of(head[1]))
            ]
    assert shown
    assert wrong == []


def test_values_in_commands_exist() -> None:
    """Values that a command sets are values of the chart that it installs."""
    told = [
        (page.name, chart, assignment)
        for page in PAGES
        for command in commands(page)
        for chart in re.findall(r"\./charts/([\w-]+)", command)
        for given in re.findall(r"--set[ =](\S+)", command)
        for assignment in given.split(",")
    ]
    assert told
    wrong = []
    for page, chart, assignment in told:
        given: Any = None
        for name in reversed(assignment.partition("=")[0].split(".")):
            given = {name: given}
        wrong += [f"{page}: {name}" for name in unknown_values(chart, given, values_of(chart))]
    assert wrong == []
