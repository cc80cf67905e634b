"""The words of pages: labels, reasons and Events are those of the program, and the prose is plain."""

from __future__ import annotations

import ast
import base64
import re
from typing import TYPE_CHECKING

import yaml

from slurm_operator.api import wellknown
from tests.support.pages import PAGES, ROOT, SPAN, prose, spans, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


GUIDES = [path for path in PAGES if path.parent.name in {"guides", "operations"}]
# Pages whose reasons, conditions and Events must be those of the program.
CHECKED = [
    *GUIDES,
    ROOT / "docs" / "migration" / "from-slinky.md",
    *(ROOT / "docs" / "concepts" / f"{name}.md" for name in ("workers", "control-plane", "tokens")),
]


def test_labels_and_annotations_exist() -> None:
    """Every label, annotation and finalizer of ours that a page names is one of the API."""
    known = {value for value in vars(wellknown).values() if isinstance(value, str)}
    known |= {f"{wellknown.GROUP}/{version}" for version in (wellknown.VERSION, wellknown.CLUSTER_VERSION)}
    name = re.compile(rf"(?:[a-z]+\.)?{re.escape(wellknown.GROUP)}/[a-z][a-z0-9-]*")
    unknown = {
        (page.name, found)
        for page in PAGES
        for found in name.findall(text_of(page))
        # kubectl prints names of objects in the same form; those of the examples begin with the release's.
        if found.removesuffix("-") not in known and not re.search(r"[a-z]\.slinky.*/slurm", found)
    }
    assert unknown == set()


# ---------------------------------------------------------------------------------------------------- reasons
# Words in the controllers that are neither reasons nor Events, but kinds and states of Kubernetes and Slurm.
_OTHER_WORDS = {
    *("Cluster", "Controller", "ConfigMap", "Container", "RestApi", "Secret", "Service", "ServiceMonitor"),
    *("StatefulSet", "StorageClass", "Unreadable"),
    *("Allocated", "Completing", "Idle", "Mixed", "NotResponding"),
    *("Bound", "False", "Pending", "Ready", "Running", "Succeeded", "True", "Unknown"),
    *("Failed", "Normal", "Opaque", "Orphan", "ReadWriteMany", "Warning"),
    *("ContainerCreating", "DeletionByTaintManager", "DisruptionTarget", "NamespaceTerminating"),
    *(
        "PodInitializing",
        "PodScheduled",
        "ProgressDeadlineExceeded",
        "Progressing",
        "ReplicaFailure",
        "Unschedulable",
    ),
    # Actions of Events.
    *("Connect", "Cordon", "Create", "Delete", "Drain", "Info", "Patch", "ScaleDown", "ScaleUp", "Sync"),
    # Of SlurmSafeToDelete being True, and of the class of a child.
    *("Manifest", "Safe", "ScheduledUpdate", "ChildKey"),
}


def words_in(path: Path) -> Iterator[str]:
    """Yield the texts in a module that look like a reason."""
    for node in ast.walk(ast.parse(text_of(path))):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and re.fullmatch(r"[A-Z][a-z]+(?:[A-Z][A-Za-z]+)*", text):
            yield text


def test_every_reason_is_in_the_index() -> None:
    """Whatever reason, cause or Event the controllers can report, the index has it."""
    files = [
        *ROOT.glob("src/slurm_operator/controllers/**/*.py"),
        ROOT / "src/slurm_operator/api/reasons.py",
        ROOT / "src/slurm_operator/slurm/errors.py",
    ]
    reasons = {word for path in files for word in words_in(path)} - _OTHER_WORDS
    index = set(re.findall(r"\w+", " ".join(spans(ROOT / "docs" / "operations" / "troubleshooting.md"))))
    assert "JobsRunning" in reasons
    assert reasons - index == set()


def test_every_alert_has_a_runbook() -> None:
    """The page about monitoring has a row for each alert of the chart."""
    alerts = re.findall(r'\(list "(\w+)"', text_of(ROOT / "charts/slurm-operator/templates/monitoring.yaml"))
    page = text_of(ROOT / "docs" / "operations" / "monitoring.md")
    assert alerts
    assert [alert for alert in alerts if f"| `{alert}` |" not in page] == []


# --------------------------------------------------------------------------------------------------- identity
def test_the_front_page_says_what_this_is() -> None:
    """The front page has the status, and whose project it is not."""
    page = text_of(ROOT / "README.md")
    assert "**Status: alpha**" in page
    assert "not affiliated with SchedMD" in page


def test_the_other_operator_has_one_name() -> None:
    """Pages call it Slinky slurm-operator, and nothing else."""
    other = re.compile(
        r"\bGo operator|\bthe reference\b(?!:)|\breference operator|\bSlinky (?:project's )?operator\b"
    )
    found = {(page.name, text) for page in PAGES for text in other.findall(" ".join(prose(page).split()))}
    assert found == set()


def test_pages_use_plain_words() -> None:
    """Pages for users name the actor, and have the words of Kubernetes and Slurm."""
    riddle = re.compile(
        r"\b(?:nobody|somebody|everybody|anybody|whoever|anew|is no news|has to go|have to go)\b",
        re.IGNORECASE,
    )
    generated = ROOT / "docs" / "reference" / "api.md"
    pages = [
        page
        for page in PAGES
        if "tests" not in page.parts and page not in {generated, ROOT / "CONTRIBUTING.md"}
    ]
    assert {
        (page.name, word) for page in pages for word in riddle.findall(SPAN.sub("", prose(page)))
    } == set()


def test_charts_have_the_icon() -> None:
    """The icon in each Chart.yaml is the committed one, so no address is needed to show it."""
    icon = base64.b64encode((ROOT / "docs" / "assets" / "icon.svg").read_bytes()).decode()
    for path in ROOT.glob("charts/*/Chart.yaml"):
        assert yaml.safe_load(text_of(path))["icon"] == f"data:image/svg+xml;base64,{icon}"


# Of Kubernetes, and parameters of Slurm that a user may set.
_WORDS_OF_OTHERS = {
    "PartitionNodeLimit",
    *("ClusterFirstWithHostNet", "FailedScheduling", "NotReady"),
    *("AutoDetect", "GresTypes", "KillWait", "MessageTimeout", "OverSubscribe", "PartitionName"),
    *("PartitionTimeLimit", "RealMemory", "SelectType", "SlurmctldTimeout", "SlurmdTimeout"),
    *("SuspendExcParts", "SuspendExcStates"),
}


def test_words_of_conditions_and_events_exist() -> None:
    """A reason, a condition or an Event that a page names is a word of the program or of its charts."""
    sources = [*ROOT.glob("src/slurm_operator/**/*.py"), *ROOT.glob("charts/**/*.yaml")]
    known = set(re.findall(r"\w+", "\n".join(map(text_of, sources)))) | _WORDS_OF_OTHERS
    # Put together from what was tried and how it went, and from a kind.
    known |= {f"{action}Failed" for action in ("Create", "Delete", "Patch")}
    known |= {f"{kind}Unreadable" for kind in ("Cluster", "RestApi")}
    told = {
        (page.name, word)
        for page in CHECKED
        for span in spans(page)
        for word in re.findall(r"(?<![\w./-])[A-Z][a-z]+(?:[A-Z][a-z]+)+(?![\w./-])", span)
    }
    assert ("scaling.md", "JobsRunning") in told
    assert {(page, word) for page, word in told if word not in known} == set()
