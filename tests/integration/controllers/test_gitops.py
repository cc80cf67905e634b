"""Health as the real kstatus and the interpreter of Argo CD see it."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from kubebox.binaries import provide
from tests.support.gitops_states import IN_PROGRESS, PROGRESSING, cases, kstatus, script
from tests.support.manifests import GOOD, manifest

if TYPE_CHECKING:
    from pathlib import Path

    from kubebox import Box


@pytest.fixture(scope="module")
def program() -> Path:
    """Hand out the program that asks both, built once."""
    return provide(["gitops"], print)["gitops"]


def _judged(program: Path, folder: Path, objects: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return what kstatus and Argo CD say of objects."""
    lua = folder / "health.lua"
    lua.write_text(script(), encoding="utf-8")
    result = subprocess.run(
        [program, lua], input=json.dumps(objects), capture_output=True, text=True, check=False, timeout=60
    )
    assert result.returncode == 0, result.stderr
    return [(one["kstatus"], one["argo"]) for one in json.loads(result.stdout)]


def test_kstatus_and_argo_cd_agree_with_the_table(program: Path, tmp_path: Path) -> None:
    """Every kind in every state is what Flux and Argo CD should show."""
    table = [*cases()]
    found = _judged(program, tmp_path, [case.object for case in table])
    assert {case.name: one for case, one in zip(table, found, strict=True)} == {
        case.name: (case.kstatus, case.argo) for case in table
    }
    assert [kstatus(case.object) for case in table] == [one for one, _ in found]


def test_a_new_object_is_in_progress(
    program: Path, slinky_box: Box, kube_namespace: str, tmp_path: Path
) -> None:
    """An object of any kind that no operator has seen is not taken for complete."""
    file = tmp_path / "objects.json"
    items = [manifest(kind, spec) for kind, spec in GOOD.items()]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), encoding="utf-8")
    slinky_box.kubectl("create", "--namespace", kube_namespace, "--filename", str(file))
    kinds = ",".join(f"{kind.lower()}.slinky.slurm.net" for kind in GOOD)
    listed = slinky_box.kubectl("get", kinds, "--namespace", kube_namespace, "--output=json")
    objects = json.loads(listed)["items"]
    assert len(objects) == len(GOOD) == 7
    assert set(_judged(program, tmp_path, objects)) == {(IN_PROGRESS, PROGRESSING)}
