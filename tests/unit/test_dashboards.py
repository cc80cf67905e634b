"""The dashboards of the chart, without a Prometheus."""

from __future__ import annotations

import re

from tests.support.dashboards import dashboards, expressions


def test_dashboards_agree_with_themselves() -> None:
    """Variables that expressions use are defined, ids are unique, and no data source is named."""
    found = dashboards()
    assert sorted(found) == ["cluster", "jobs", "nodeset", "operator"]
    assert len({one["uid"] for one in found.values()}) == len(found)
    for name, one in found.items():
        defined = {variable["name"] for variable in one["templating"]["list"]} | {"__rate_interval"}
        used = {word for expression in expressions(one) for word in re.findall(r"\$(\w+)", expression)}
        assert used <= defined, name
        assert defined - {"datasource", "__rate_interval"} <= used, name
        ids = [panel["id"] for panel in one["panels"]]
        assert sorted({*ids}) == sorted(ids), name
        sources = {
            part["datasource"]["uid"] for panel in one["panels"] for part in (panel, *panel["targets"])
        }
        assert sources == {"${datasource}"}, name
