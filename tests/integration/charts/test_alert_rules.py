"""The alerts of the chart, as Prometheus evaluates them: `promtool check rules` and `promtool test rules`."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import yaml

from slurm_operator.api.reasons import BLOCKING
from tests.support.charts.helm import CHARTS, OPERATOR, render

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kubebox.prometheus import PrometheusPrograms

TESTS = CHARTS.parent / "tests" / "fixtures" / "alerts" / "tests.yaml"
RUNBOOK = CHARTS.parent / "docs" / "operations" / "alerts.md"
WITHOUT_LEADER = "SlurmOperatorWithoutLeader"
ENABLED = ("--set", "monitoring.prometheusRule.enabled=true")


def rule_groups(helm: Path, *arguments: str) -> list[dict[str, Any]]:
    """Return the groups of rules that the chart makes."""
    (found,) = [
        one for one in render(helm, OPERATOR, *ENABLED, *arguments) if one["kind"] == "PrometheusRule"
    ]
    groups: list[dict[str, Any]] = found["spec"]["groups"]
    return groups


def promtool(programs: PrometheusPrograms, *arguments: str, folder: Path) -> None:
    """Run promtool, which must succeed."""
    done = subprocess.run(
        [*programs.promtool, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def names(groups: Sequence[dict[str, Any]]) -> list[str]:
    return [rule["alert"] for group in groups for rule in group["rules"]]


def test_promtool_accepts_the_rules_and_their_tests_pass(
    helm_program: Path, prometheus: PrometheusPrograms, tmp_path: Path
) -> None:
    """Each alert fires when it should and stays silent when it should, also with no operator at all."""
    rules = yaml.safe_dump({"groups": rule_groups(helm_program)}, width=1000)
    (tmp_path / "rules.yaml").write_text(rules, encoding="utf-8")
    shutil.copy(TESTS, tmp_path / "tests.yaml")
    promtool(prometheus, "check", "rules", "--lint-fatal", "rules.yaml", folder=tmp_path)
    promtool(prometheus, "test", "rules", "tests.yaml", folder=tmp_path)


def test_an_operator_without_an_election_is_not_missed(
    helm_program: Path, prometheus: PrometheusPrograms, tmp_path: Path
) -> None:
    """Without leader election no series names a leader: the alert fires only while no operator is scraped."""
    groups = rule_groups(helm_program, "--set", "operator.leaderElection=false")
    (rule,) = (one for one in groups[0]["rules"] if one["alert"] == WITHOUT_LEADER)
    alone = {"groups": [{"name": "alone", "rules": [rule]}]}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(alone, width=1000), encoding="utf-8")
    runs = 'slurm_operator_stuck_keys{controller="nodeset-controller"}'
    fired = {"exp_labels": {"severity": "warning", "controller": "nodeset-controller"}}
    fired["exp_annotations"] = rule["annotations"]
    cases = [
        {
            "input_series": [{"series": series, "values": "0x10"}],
            "alert_rule_test": [{"eval_time": "8m", "alertname": WITHOUT_LEADER, "exp_alerts": expected}],
        }
        for series, expected in ((runs, []), ("up", [fired]))
    ]
    tests = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": cases}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tests), encoding="utf-8")
    promtool(prometheus, "test", "rules", "tests.yaml", folder=tmp_path)


def test_each_alert_has_a_test_that_fires_and_one_that_does_not(helm_program: Path) -> None:
    """No alert is without both."""
    fires: set[str] = set()
    silent: set[str] = set()
    for case in yaml.safe_load(TESTS.read_text(encoding="utf-8"))["tests"]:
        for check in case["alert_rule_test"]:
            (fires if check["exp_alerts"] else silent).add(check["alertname"])
    alerts = set(names(rule_groups(helm_program)))
    assert fires == silent == alerts


def test_each_alert_has_a_runbook(helm_program: Path) -> None:
    """Each alert names a section of the page of runbooks, which has what a person on call needs."""
    text = RUNBOOK.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    groups = rule_groups(helm_program)
    assert [*sections] == names(groups)
    for group in groups:
        for rule in group["rules"]:
            page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
            assert (CHARTS.parent / page, anchor) == (RUNBOOK, rule["alert"].lower())
            found = re.findall(r"^\*\*(\w+)\.\*\*", sections[rule["alert"]], re.MULTILINE)
            assert found == ["Symptom", "Meaning", "Check", "Fix"], rule["alert"]


def test_the_alert_on_blocked_nodesets_names_reasons_that_exist(helm_program: Path) -> None:
    """Each reason in its expression is one of the operator's, and the runbook has a fix for it."""
    (expression,) = (
        rule["expr"]
        for group in rule_groups(helm_program)
        for rule in group["rules"]
        if rule["alert"] == "SlurmNodeSetBlocked"
    )
    (reasons,) = re.findall(r'reason=~"([^"]+)"', expression)
    runbook = RUNBOOK.read_text(encoding="utf-8")
    for reason in reasons.split("|"):
        assert reason in BLOCKING
        assert f"| `{reason}` |" in runbook
