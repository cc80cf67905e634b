"""The whole lab, with operators whose behaviour under a crash is known."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from faultlab import scenario, suite
from faultlab.cli import main
from faultlab.cluster import laboratory
from faultlab.director import Director
from faultlab.kubelets import playing
from faultlab.proxy import serving
from faultlab.run import Bench
from faultlab.writes import KUBERNETES

if TYPE_CHECKING:
    import pytest

    from faultlab.cluster import Lab

TOY = Path(__file__).with_name("toy.py")
SCENARIO = """
about: a ConfigMap is copied
steps:
- create: {apiVersion: v1, kind: ConfigMap, metadata: {name: order}}
end:
- {kind: ConfigMap, name: order, fields: {metadata.annotations.done: "yes"}}
quiet: 1
"""


def written(folder: Path) -> Path:
    """Write the scenario."""
    path = folder / "copy.yaml"
    path.write_text(SCENARIO)
    return path


def test_a_wrong_operator_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The crash that leaves a second object behind fails, and the command that repeats it is printed.

    The same command once more has that result without another run.
    """
    fault = "do=kill-accepted write='POST secrets made-… #1'"
    path, report = written(tmp_path), tmp_path / "report.json"
    command = f"{sys.executable} {TOY} careless"
    # The run that fails lasts as long as it may.
    words = ["run", str(path), "--operator", command, "--ways", "kill-accepted", "--json", str(report)]
    words += ["--patience", "0.3", "--reports", str(tmp_path / "kept"), "--version", "1"]
    assert main(words) == 1
    (section,) = json.loads(report.read_text())["scenarios"]
    failed = {one["fault"]: one for one in section["runs"] if one["verdict"] == "failed"}
    assert [*failed] == [fault]
    assert "Secret/made-… (2)" in failed[fault]["problems"][0]
    assert failed[fault]["repeat"] in capsys.readouterr().out
    assert main(words) == 1
    assert json.loads(report.read_text())["scenarios"] == [section]
    assert "==>" not in capsys.readouterr().out


async def test_a_right_operator_passes_every_crash(tmp_path: Path) -> None:
    """Two writes, three ways each: the same end state. kube-apiserver sees the operator's own account."""
    async with laboratory(tmp_path) as lab, playing(lab, tmp_path) as kubelets:
        kinds = await lab.kube.discover()
        bench = Bench(lab, kubelets, kinds, f"{sys.executable} {TOY} careful", tmp_path)
        copy = scenario.load(written(tmp_path))
        found, _ = await suite.reference(bench, copy)
        planned = suite.plan("crash", found, 0)
        outcomes = await suite.run_all(bench, copy, planned, found, lambda _outcome: None)
        assert [(one.verdict, one.problems) for one in outcomes] == [("passed", [])] * 6
        assert all(one.lives == 2 for one in outcomes)
        await check_cleared(lab)
        await check_identity(lab, tmp_path)


async def check_cleared(lab: Lab) -> None:
    """Wait until no namespace of a run is left."""
    async with asyncio.timeout(60):
        while await left_of_runs(lab):  # noqa: ASYNC110 - kube-controller-manager sets no event
            await asyncio.sleep(0.2)


async def left_of_runs(lab: Lab) -> list[str]:
    """Return the namespaces of runs."""
    found = await lab.kube.request("GET", "/api/v1/namespaces")
    names = [item["metadata"]["name"] for item in found["items"]]
    return [name for name in names if name.startswith("copy-")]


async def check_identity(lab: Lab, folder: Path) -> None:
    """Ask kube-apiserver through a proxy who is asking, over TLS that the kubeconfig trusts."""
    director = Director("default", lambda: None)
    async with serving(director, KUBERNETES, lab.box.server, trust=lab.trust, tls=lab.tls) as url:
        config = lab.kubeconfig(folder / "kubeconfig", url, await lab.token(), "default")
        out = await asyncio.to_thread(
            lab.box.kubectl, "--kubeconfig", str(config), "auth", "whoami", "-o", "json"
        )
    assert json.loads(out)["status"]["userInfo"]["username"] == "system:serviceaccount:faultlab:operator"
