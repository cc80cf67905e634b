from __future__ import annotations

import json

import msgspec
import pytest
import yaml

from slurm_operator.plugin.commands import colours, formatted, only_cluster
from slurm_operator.plugin.dashboard import has_display
from slurm_operator.status_rows import BlockedCounts, ObjectRef, Overview
from tests.support.plugin.sample_rows import NOW, cluster, decision, nodeset, worker
from tests.support.plugin.states import STATES


@pytest.mark.parametrize(
    ("terminal", "environment", "on"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colours(terminal: bool, environment: dict[str, str], on: bool) -> None:  # noqa: FBT001 - a table
    """Colours need a terminal that wants them."""
    assert colours(environment, terminal=terminal).on is on


def test_json_and_yaml_are_the_fields_of_the_api() -> None:
    """What is printed decodes to the same view, and has no control character in it."""
    view = Overview(
        at=NOW, clusters=(cluster(message="a\x1b\x9bb"),), blocked=STATES["scaling-in-with-jobs"].workers
    )
    for text, read in ((formatted(view, "json"), json.loads), (formatted(view, "yaml"), yaml.safe_load)):
        assert msgspec.convert(read(text), Overview) == view
        assert "\x1b" not in text
        assert "\x9b" not in text


def test_status_of_one_cluster() -> None:
    """Only what belongs to a cluster is left, by name and namespace."""
    view = Overview(
        clusters=(cluster(), cluster(name="other")),
        nodesets=(nodeset(), nodeset(name="far", cluster="other")),
        blocked=(worker(0), worker(1, nodeset="far")),
        blocked_total=2,
        decisions=(decision("x", "y"), decision("x", "y", "far", "NodeSet", nodeset="")),
    )
    found = only_cluster(view, "other")
    assert [one.name for one in found.nodesets] == ["far"]
    assert [one.pod for one in found.blocked] == ["workers-1"]
    assert (found.blocked_total, len(found.decisions)) == (1, 1)
    assert found.decisions[0].object == ObjectRef(kind="NodeSet", namespace="slurm", name="far")
    assert only_cluster(view, "none").clusters == ()


def test_blocked_workers_of_one_cluster_are_counted_without_those_of_others() -> None:
    """Only some blocked workers are sent, and all of these may be of one cluster: its own are counted."""
    view = Overview(
        clusters=(cluster(), cluster(name="other")),
        nodesets=(
            nodeset(blocked=BlockedCounts(total=150)),
            nodeset(name="far", cluster="other", blocked=BlockedCounts(total=350)),
        ),
        blocked=tuple(worker(number) for number in range(100)),
        blocked_total=500,
    )
    assert only_cluster(view, "slurm").blocked_total == 150
    assert only_cluster(view, "other").blocked_total == 350


def test_a_browser_needs_a_screen() -> None:
    """On a server without a display only the address is printed."""
    assert has_display({"DISPLAY": ":0"}, "linux")
    assert has_display({}, "darwin")
    assert not has_display({}, "linux")
