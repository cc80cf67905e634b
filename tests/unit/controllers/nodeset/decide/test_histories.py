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

from tests.support.property_settings import examples
from tests.support.simulation import world_events, world_faults
from tests.support.simulation.end_state import live_through
from tests.support.simulation.world_faults import FAULTS, NEWS, PEACE, POWER

if TYPE_CHECKING:
    from tests.support.simulation.end_state import News
    from tests.support.simulation.world_faults import Event

HISTORIES = examples(3000)

THEMES: dict[str, tuple[Event, ...]] = {
    "everything": (),
    "outages": (world_events.scale, world_events.new_template, world_events.start_job, *FAULTS),
    "people": (
        *(
            world_events.cordon_pod,
            world_events.uncordon_pod,
            world_events.drain_by_hand,
            world_events.resume_by_hand,
        ),
        *(
            world_events.cordon_node,
            world_events.uncordon_node,
            world_events.delete_pod_by_hand,
            world_events.scale,
        ),
    ),
    "machines": (
        *(
            world_events.change_mode,
            world_events.add_node,
            world_events.remove_node,
            world_events.lose_label,
            world_events.rename_node,
        ),
        *(
            world_events.cordon_node,
            world_events.uncordon_node,
            world_events.pin_to_node,
            world_events.change_pruning,
        ),
    ),
    "windows": (
        *(
            world_events.schedule_update,
            world_events.schedule_update,
            world_events.new_template,
            world_events.change_strategy,
        ),
        *(world_events.scale, world_faults.half_an_answer, *PEACE),
    ),
    "removals": (
        *(
            world_events.evict,
            world_events.preempt,
            world_events.taint_node,
            world_events.cordon_node,
            world_events.uncordon_node,
        ),
        *(
            world_events.cordon_pod,
            world_events.uncordon_pod,
            world_faults.slurmctld_loses_state,
            world_faults.crash_soon,
            *PEACE,
        ),
    ),
    "endings": (
        *(
            world_events.delete_nodeset,
            world_events.skip_drain,
            world_events.controller_leaves,
            world_events.schedule_update,
        ),
        *(world_events.change_retention, world_faults.crash_soon, *PEACE),
    ),
    "power": (
        *(*POWER, *POWER, world_faults.slurmctld_loses_state, world_faults.half_an_answer),
        *(world_faults.crash_soon, world_faults.slurm_away, world_faults.slurm_back, world_events.evict),
        *(world_events.cordon_node, world_events.uncordon_node, world_events.drain_by_hand),
        *(world_events.delete_pod_by_hand, world_events.delete_nodeset),
    ),
}

# Without this, one history in fourteen resumes a node at all.
BEGINNINGS: dict[str, list[News]] = {
    "power": [(world_events.autoscale, 3), (world_events.suspend_time, 7)],
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
    live_through([*BEGINNINGS.get(theme, ()), *data.draw(histories(theme), label="history")])
