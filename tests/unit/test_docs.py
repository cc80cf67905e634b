"""The documentation, compared with the tree: what it names exists, and what exists is in it."""

from __future__ import annotations

import ast
import base64
import functools
import itertools
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from slurm_operator.api import wellknown

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "charts/*/README.md", "tests/**/*.md")
    for path in ROOT.glob(pattern)
)
GUIDES = [path for path in PAGES if path.parent.name in {"guides", "operations"}]
# Pages whose reasons, conditions and Events must be those of the program.
CHECKED = [
    *GUIDES,
    ROOT / "docs" / "migration" / "from-slinky.md",
    *(ROOT / "docs" / "concepts" / f"{name}.md" for name in ("workers", "control-plane", "tokens")),
]
CHARTS = {path.parent.name: path for path in ROOT.glob("charts/*/values.yaml")}
EVERY = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))

_FENCE = re.compile(r"^( *)(```+)(\w*)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(`+)(.+?)\1", re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


# ---------------------------------------------------------------------------------------------------- reading
@functools.cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def prose(path: Path) -> str:
    """Return a page without its blocks of code."""
    return _FENCE.sub("", text_of(path))


def blocks(path: Path, *languages: str) -> list[str]:
    """Return the blocks of code of a page, of some languages or of all."""
    return [found[4] for found in _FENCE.finditer(text_of(path)) if not languages or found[3] in languages]


def spans(path: Path) -> list[str]:
    """Return what is set in backticks within sentences, each on one line."""
    return [" ".join(found[2].split()) for found in _SPAN.finditer(prose(path))]


def commands(path: Path) -> Iterator[str]:
    """Yield every command that a reader may copy: lines of shells, and those within sentences."""
    lines = "\n".join(blocks(path, "", "sh", "console")).replace("\\\n", " ").splitlines()
    for line in [*lines, *spans(path)]:
        yield line.strip().removeprefix("$ ").partition(" #")[0]


# ------------------------------------------------------------------------------------------------------ links
@functools.cache
def anchors(path: Path) -> frozenset[str]:
    """Return the names by which headings of a page can be linked to, as GitHub makes them."""
    found: dict[str, int] = {}
    names = []
    for heading in _HEADING.findall(prose(path)):
        plain = _LINK.sub(lambda match: match[0][1 : match[0].index("]")], heading).replace("`", "")
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number = found[name] = found.get(name, -1) + 1
        names.append(f"{name}-{number}" if number else name)
    return frozenset(names)


@EVERY
def test_links_lead_somewhere(page: Path) -> None:
    """Every link to a file or a heading of the tree has a target."""
    broken = []
    for link in _LINK.findall(_SPAN.sub("", prose(page)) + " ".join(_links_in_tables(page))):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def _links_in_tables(page: Path) -> list[str]:
    # A link around a word in backticks is none once these are taken away.
    return [found[0] for found in re.finditer(r"\[`[^`]+`\]\([^()\s]+\)", prose(page))]


def test_every_page_is_in_the_index() -> None:
    """Each page is linked from the index, and the index from the front page."""
    docs = ROOT / "docs"
    listed = {link.partition("#")[0] for link in _LINK.findall(text_of(docs / "README.md"))}
    pages = {str(page.relative_to(docs)) for page in docs.glob("**/*.md")} - {"README.md"}
    assert pages - listed == set()
    assert "docs/README.md" in _LINK.findall(text_of(ROOT / "README.md"))


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


# ------------------------------------------------------------------------------------------------------ words
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


@functools.cache
def defined_tests() -> dict[str, frozenset[Path]]:
    """Return the files of every test, and of every test file, by its name."""
    found: dict[str, set[Path]] = {}
    for path in ROOT.glob("tests/**/test_*.py"):
        for name in (path.name, *re.findall(r"def (test_\w+)", text_of(path))):
            found.setdefault(name, set()).add(path)
    return {name: frozenset(paths) for name, paths in found.items()}


# Pages for contributors speak of tests as they like, as long as these exist.
_FOR_CONTRIBUTORS = (
    "docs/development/",
    "docs/architecture.md",
    "docs/decisions/",
    "CONTRIBUTING.md",
    "tests/",
)
# Lists of what is guaranteed, path by path.
_GUARANTEES = {"guarantees.md", "differences.md"}
_SECTION = re.compile(r"^#{1,6} ", re.MULTILINE)


def named_tests(page: Path) -> Iterator[tuple[str, str, bool]]:
    """Yield the tests that a page names, the heading each is under, and whether it is a link to its file."""
    known = defined_tests()
    for section in _SECTION.split(prose(page)):
        heading = section.partition("\n")[0]
        linked = {
            found[1]
            for found in re.finditer(r"\[`(test_\w+(?:\.py)?)`\]\(([^()\s#]+)\)", section)
            if (page.parent / found[2]).resolve() in known.get(found[1], ())
        }
        text = " ".join(found[2] for found in _SPAN.finditer(section))
        for word in re.findall(r"\btest_\w+\b(?!\*)(?:\.py)?", text):
            yield word, heading, word in linked


def test_named_tests_exist() -> None:
    """A test that a page names is there."""
    known = defined_tests()
    told = {(page.name, word) for page in PAGES for word, _, _ in named_tests(page)}
    assert told
    assert {(page, word) for page, word in told if word not in known} == set()


def test_tests_are_links_in_sections_of_guarantees() -> None:
    """For users, a test is evidence: linked, and only where something is guaranteed."""
    known, wrong = defined_tests(), []
    for page in PAGES:
        if str(page.relative_to(ROOT)).startswith(_FOR_CONTRIBUTORS):
            continue
        for word, heading, linked in named_tests(page):
            if not linked:
                path = os.path.relpath(min(known[word]), page.parent)
                wrong.append(f"{page.name}: write [`{word}`]({path})")
            elif heading != "Guarantees" and page.name not in _GUARANTEES:
                wrong.append(f"{page.name}: {word} is under {heading!r}")
    assert wrong == []


def test_guides_have_the_same_sections() -> None:
    """Each guide has its sections in one order, and names tests for what it guarantees."""
    sections = ["Overview", "Steps", "Verify", "Troubleshooting", "Guarantees"]
    for page in PAGES:
        if page.parent.name != "guides":
            continue
        assert re.findall(r"^## (.+)$", prose(page), re.MULTILINE) == sections, page.name
        assert any(heading == "Guarantees" for _, heading, _ in named_tests(page)), page.name


def test_code_that_pages_for_contributors_name_exists() -> None:
    """A module or a folder that the architecture page or a decision names is in the tree."""
    pages = [ROOT / "docs" / "architecture.md", *ROOT.glob("docs/decisions/*.md")]
    tops = {path.name for path in (ROOT / "src" / "slurm_operator").iterdir() if path.is_dir()}
    named = re.compile(rf"(?:{'|'.join(tops)}|charts|images|kubebox|tests)/[\w./-]*")
    told = {(page.name, span) for page in pages for span in spans(page) if named.fullmatch(span)}
    assert ("architecture.md", "controllers/nodeset/decide/scale.py") in told
    roots = (ROOT, ROOT / "src" / "slurm_operator")
    assert {(page, path) for page, path in told if not any((root / path).exists() for root in roots)} == set()


def test_pages_that_the_tree_names_exist() -> None:
    """A page that a message, a chart or a script names is there."""
    folders = ("src", "charts", "scripts", "examples", "bench", "kubebox", "images")
    files = [path for name in folders for path in (ROOT / name).rglob("*") if path.suffix in _TEXTS]
    told = {
        (str(path.relative_to(ROOT)), name)
        for path in [*files, ROOT / "Makefile"]
        if "__pycache__" not in path.parts
        for name in re.findall(r"\bdocs/[\w/-]+\.md\b", text_of(path))
    }
    assert told
    assert {(path, name) for path, name in told if not (ROOT / name).is_file()} == set()


_TEXTS = {".py", ".yaml", ".tpl", ".txt", ".json", ".md"}


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
    *("Manifest", "Safe", "ScheduledUpdate", "Slot"),
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
        ROOT / "src/slurm_operator/slurm/errors.py",
    ]
    reasons = {word for path in files for word in words_in(path)} - _OTHER_WORDS
    reasons |= {value for name, value in vars(wellknown).items() if name.startswith("REASON_RESERVATION")}
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
        (page.name, word) for page in pages for word in riddle.findall(_SPAN.sub("", prose(page)))
    } == set()


def test_charts_have_the_icon() -> None:
    """The icon in each Chart.yaml is the committed one, so no address is needed to show it."""
    icon = base64.b64encode((ROOT / "docs" / "assets" / "icon.svg").read_bytes()).decode()
    for path in ROOT.glob("charts/*/Chart.yaml"):
        assert yaml.safe_load(text_of(path))["icon"] == f"data:image/svg+xml;base64,{icon}"


# Of Kubernetes, and parameters of Slurm that a user may set.
_WORDS_OF_OTHERS = {
    *("ClusterFirstWithHostNet", "FailedScheduling", "NotReady"),
    *("AutoDetect", "GresTypes", "KillWait", "MessageTimeout", "PartitionName", "RealMemory"),
    *("SelectType", "SlurmctldTimeout", "SlurmdTimeout"),
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
