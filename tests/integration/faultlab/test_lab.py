"""The whole lab, with operators whose behaviour under a crash is known."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from faultlab.cli import main
from faultlab.cluster import client, laboratory
from faultlab.proxy import KUBERNETES, Director, serving

if TYPE_CHECKING:
    import pytest

TOY = Path(__file__).with_name("toy.py")
SCENARIO = """
about: a ConfigMap is copied
steps:
- create: {apiVersion: v1, kind: ConfigMap, metadata: {name: order}}
end:
- {kind: ConfigMap, name: order, fields: {metadata.annotations.done: "yes"}}
quiet: 1
"""


def run(folder: Path, how: str, *more: str) -> tuple[int, dict[str, list[str]]]:
    """Run the toy under crashes, and return the exit code and the problems of each run."""
    scenario, report = folder / "copy.yaml", folder / "report.json"
    scenario.write_text(SCENARIO)
    command = f"{sys.executable} {TOY} {how}"
    code = main(["run", str(scenario), "--operator", command, "--json", str(report), *more])
    (section,) = json.loads(report.read_text())["scenarios"]
    return code, {one["fault"]: one.get("problems", []) for one in section["runs"]}


def test_a_right_operator_passes_every_crash(tmp_path: Path) -> None:
    """Two writes, three ways each: the same end state, no second Secret."""
    code, runs = run(tmp_path, "careful", "--at-once", "3")
    assert (code, len(runs), [*filter(None, runs.values())]) == (0, 6, [])


def test_a_wrong_operator_is_found_and_the_run_can_be_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The one crash that leaves a second object behind fails, and the printed fault repeats it."""
    fault = "do=kill-accepted write='POST secrets made-… #1'"
    code, runs = run(tmp_path, "careless", "--ways", "kill-accepted", "--at-once", "2")
    assert code == 1
    assert "Secret/made-… (2)" in runs[fault][0]
    assert "--fault" in capsys.readouterr().out
    code, again = run(tmp_path, "careless", "--fault", fault)
    assert (code, [*again]) == (1, [fault])


async def test_admission_sees_the_operators_own_account(tmp_path: Path) -> None:
    """Through the proxy kube-apiserver knows the ServiceAccount, over TLS that the kubeconfig trusts."""
    async with laboratory(tmp_path) as lab:
        director = Director("default", lambda: None)
        async with serving(director, KUBERNETES, lab.box.server, trust=lab.trust, tls=lab.tls) as url:
            config = lab.kubeconfig(tmp_path / "kubeconfig", url, await lab.token(), "default")
            out = lab.box.kubectl("--kubeconfig", str(config), "auth", "whoami", "-o", "json")
        assert json.loads(out)["status"]["userInfo"]["username"] == "system:serviceaccount:faultlab:operator"
        async with client(lab.box) as kube:
            assert await kube.get("ConfigMap", "default", "absent") is None
