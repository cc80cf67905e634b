"""The five invariants in any history that Hypothesis can think of.

Each history is a list of news from `events` and `faults`, in a world where the first three are checked at
every write (`acting`): no pod goes while a job runs in it, no drain and no cordon of a person is undone, no
more workers than allowed are taken out of service. Then all faults end, and what was asked for last must come
about (`outcome`), with the operator called only by what changes; and then nothing more may be written.

Anything may happen in every history; each theme makes some of it happen more often. CI runs `HISTORIES` of
them, always the same; `make explore` runs more, and others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.exploring import examples
from tests.unit.nodeset import events, faults
from tests.unit.nodeset.faults import FAULTS, NEWS, PEACE
from tests.unit.nodeset.outcome import live_through

if TYPE_CHECKING:
    from tests.unit.nodeset.faults import Event
    from tests.unit.nodeset.outcome import News

HISTORIES = examples(3000)

THEMES: dict[str, tuple[Event, ...]] = {
    "everything": (),
    "outages": (events.scale, events.new_template, events.start_job, *FAULTS),
    "people": (
        *(events.cordon_pod, events.uncordon_pod, events.drain_by_hand, events.resume_by_hand),
        *(events.cordon_node, events.uncordon_node, events.delete_pod_by_hand, events.scale),
    ),
    "machines": (
        *(events.change_mode, events.add_node, events.remove_node, events.lose_label, events.rename_node),
        *(events.cordon_node, events.uncordon_node, events.pin_to_node, events.change_pruning),
    ),
    "windows": (
        *(events.schedule_update, events.schedule_update, events.new_template, events.change_strategy),
        *(events.scale, faults.half_an_answer, *PEACE),
    ),
    "removals": (
        *(events.evict, events.preempt, events.taint_node, events.cordon_node, events.uncordon_node),
        *(events.cordon_pod, events.uncordon_pod, faults.slurmctld_loses_state, faults.crash_soon, *PEACE),
    ),
    "endings": (
        *(events.delete_nodeset, events.skip_drain, events.controller_leaves, events.schedule_update),
        *(events.change_retention, faults.crash_soon, *PEACE),
    ),
}


def histories(theme: str) -> st.SearchStrategy[list[News]]:
    """Return histories in which what belongs to a theme happens about as often as all the rest."""
    often = THEMES[theme]
    news = NEWS + often * (len(NEWS) // max(1, len(often)))
    return st.lists(st.tuples(st.sampled_from(news), st.integers(0, 5)), min_size=1, max_size=40)


@pytest.mark.parametrize("theme", THEMES)
@settings(max_examples=HISTORIES // len(THEMES))
@given(data=st.data())
def test_whatever_happens_no_job_is_killed_and_what_was_asked_for_comes_about(
    theme: str, data: st.DataObject
) -> None:
    """In no history is a pod deleted under a job, nor a person overruled; it ends as wished, and silent."""
    live_through(data.draw(histories(theme), label="history"))
