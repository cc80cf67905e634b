"""The figures of many clusters: what they are made of."""

from __future__ import annotations

from bench.clusters.figures import Sizes, changes, goals, spread, words


def test_the_spread_of_rolling_updates_is_the_last_by_the_median() -> None:
    """One cluster that is late shows, however quick the others are."""
    assert spread([10.0, 20.0, 50.0]) == {
        "roll_first_seconds": 10.0,
        "roll_median_seconds": 20.0,
        "roll_last_seconds": 50.0,
        "roll_last_by_median": 2.5,
    }


def test_changes_beside_rolling_updates_are_compared_by_their_medians() -> None:
    """One slow change shows as the longest, and does not move the ratio."""
    found = changes([0.1, 0.2, 0.3], [0.4, 0.2, 9.0, 0.4])
    assert found["change_ratio"] == 2.0
    assert (found["change_alone_most_ms"], found["change_beside_most_ms"]) == (300.0, 9000.0)
    assert (found["change_alone_count"], found["change_beside_count"]) == (3, 4)


def test_every_goal_belongs_to_a_figure_with_a_name() -> None:
    """A goal without a row in the table would be missed unseen."""
    assert goals(Sizes()).keys() <= words(Sizes()).keys()
    assert goals(Sizes(clusters=10, workers=100))["rss_mib"] == ("≤", 100 + 1000 * 10 / 1024)
