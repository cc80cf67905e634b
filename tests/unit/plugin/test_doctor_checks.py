"""Each check of doctor, passing and failing; tests/integration/plugin has those of a real API server."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from slurm_operator.api import KINDS
from slurm_operator.plugin import doctor_checks as checks
from slurm_operator.plugin.doctor import render_report
from slurm_operator.plugin.doctor_checks import CheckResult, DoctorReport, Grade
from tests.support.plugin.sample_authority import authority
from tests.support.plugin.sample_rows import cluster, condition, nodeset

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def hook(bundle: str | None = None, group: str = "slinky.slurm.net") -> dict[str, Any]:
    client: dict[str, Any] = {"service": {"namespace": "slinky", "name": "slurm-operator-webhook"}}
    if bundle is not None:
        client["caBundle"] = bundle
    return {"webhooks": [{"name": "x.kb.io", "clientConfig": client, "rules": [{"apiGroups": [group]}]}]}


def endpoints(*, ready: bool) -> list[dict[str, Any]]:
    return [{"endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}]}]


def definition(plural: str, version: str, *, established: bool = True) -> dict[str, Any]:
    status = "True" if established else "False"
    return {
        "metadata": {"name": f"{plural}.slinky.slurm.net"},
        "spec": {"group": "slinky.slurm.net", "versions": [{"name": version, "served": True}]},
        "status": {"conditions": [{"type": "Established", "status": status}]},
    }


ALL = [definition(kind.RESOURCE.plural, kind.RESOURCE.version) for kind in KINDS]


def waiting(reason: str) -> dict[str, Any]:
    status = {"image": "registry.example/x:1", "state": {"waiting": {"reason": reason}}}
    return {"metadata": {"namespace": "slurm", "name": "p"}, "status": {"containerStatuses": [status]}}


def claim(phase: str, asked: str | None) -> dict[str, Any]:
    spec = {} if asked is None else {"storageClassName": asked}
    return {"metadata": {"namespace": "slurm", "name": "c"}, "spec": spec, "status": {"phase": phase}}


def storage_class(name: str, *, default: bool = False) -> dict[str, Any]:
    mark = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    return {"metadata": {"name": name, "annotations": mark}}


def policy(label: str) -> dict[str, Any]:
    return {"spec": {"matchConstraints": {"objectSelector": {"matchLabels": {label: "true"}}}}}


PROTECT = "nodeset.slinky.slurm.net/pod-protect"


@pytest.mark.parametrize(
    ("result", "grade", "told"),
    [
        (checks.kubernetes_version({"gitVersion": "v1.36.2"}), "ok", "v1.36.2"),
        (checks.kubernetes_version({"gitVersion": "v1.28.3"}), "fail", "not supported"),
        (checks.kubernetes_version({"gitVersion": "v1.29.0"}), "warn", "ValidatingAdmissionPolicy"),
        (checks.kubernetes_version({"gitVersion": "v1.99.0"}), "warn", "newer"),
        (checks.kubernetes_version({}), "warn", "cannot be checked"),
        (checks.crds(ALL), "ok", "all 7"),
        (checks.crds(ALL[1:]), "fail", "is missing"),
        (checks.crds([*ALL, definition("nodesets", "v1alpha1")]), "fail", "does not serve v1beta1"),
        (
            checks.crds([*ALL, definition("nodesets", "v1beta1", established=False)]),
            "fail",
            "nodesets is not established",
        ),
        (checks.webhook([], []), "warn", "no webhook"),
        (checks.webhook([hook(group="other.example")], []), "warn", "no webhook"),
        (checks.webhook([hook()], []), "fail", "no pod serves Service slinky/slurm-operator-webhook"),
        (checks.webhook([hook()], endpoints(ready=False)), "fail", "no pod serves"),
        (checks.webhook([hook()], endpoints(ready=True)), "ok", "1 pod"),
        (checks.certificates([], NOW), "ok", "none are needed"),
        (checks.certificates([hook()], NOW), "fail", "no caBundle"),
        (checks.certificates([hook("bm9uc2Vuc2U=")], NOW), "fail", "not a PEM certificate"),
        (checks.certificates([hook("%")], NOW), "fail", "not a PEM certificate"),
        (checks.certificates([hook(authority("2026-11-15"))], NOW), "fail", "expired on 2026-11-15"),
        (checks.certificates([hook(authority("2026-11-26"))], NOW), "warn", "expires on 2026-11-26"),
        (checks.certificates([hook(authority("2027-12-21"))], NOW), "ok", "valid until 2027-12-21"),
        (checks.images([waiting("ContainerCreating")]), "ok", "no pod waits"),
        (
            checks.images([waiting("ImagePullBackOff")]),
            "fail",
            "slurm/p: ImagePullBackOff for registry.example/x:1",
        ),
        (checks.storage([claim("Bound", None)], []), "ok", "no volume claim"),
        (checks.storage([claim("Pending", "fast")], []), "fail", "StorageClass fast, which does not exist"),
        (checks.storage([claim("Pending", None)], [storage_class("slow")]), "fail", "there is none"),
        (
            checks.storage([claim("Pending", None)], [storage_class("slow", default=True)]),
            "warn",
            "is Pending",
        ),
        (checks.storage([claim("Pending", "slow")], [storage_class("slow")]), "warn", "is Pending"),
        (checks.dns(None, []), "warn", "no Service kube-system/kube-dns"),
        (checks.dns({}, endpoints(ready=False)), "fail", "cannot find each other"),
        (checks.dns({}, endpoints(ready=True)), "ok", "1 pod"),
        (checks.cgroups({}), "warn", "no node has a worker"),
        (checks.cgroups({"n": "other 1\n"}), "warn", "no kubelet reports"),
        (checks.cgroups({"n": "# HELP\nkubelet_cgroup_version 1\n"}), "warn", "node n has cgroup v1"),
        (checks.cgroups({"n": "kubelet_cgroup_version 2\n"}), "ok", "cgroup v2"),
        (checks.permissions({"list nodesets in x": True, "patch pods in x": True}), "ok", "every command"),
        (
            checks.permissions({"list nodesets in x": True, "patch pods in x": False}),
            "warn",
            "may not patch pods",
        ),
        (checks.permissions({"list nodesets in x": False}), "fail", "may not list nodesets"),
        (checks.protection([policy("other")]), "warn", "no ValidatingAdmissionPolicy"),
        (checks.protection([policy(PROTECT)]), "ok", "refused"),
        (checks.versions("1.0", "1.0", [cluster()]), "ok", "operator 1.0"),
        (checks.versions("1.0", "0.9", [cluster()]), "warn", "this command is 1.0, the operator 0.9"),
        (checks.versions("1.0", "1.0", [cluster(slurm_version="23.02.1")]), "fail", "too old"),
        (checks.versions("1.0", "1.0", [cluster(slurm_version="25.11.2")]), "warn", "not tested"),
        (checks.versions("1.0", "1.0", [cluster(slurm_version="27.05.0")]), "warn", "not in the matrix"),
        (checks.versions("1.0", "1.0", [cluster(slurm_version="")]), "ok", "operator 1.0"),
        (checks.connections([]), "ok", "no Slurm cluster yet"),
        (checks.connections([cluster()]), "ok", "1 cluster"),
        (
            checks.connections([cluster(connected=False, reason="Refused", message="m")]),
            "fail",
            "slurm/slurm: Refused: m",
        ),
        (checks.nodesets([nodeset()]), "ok", "none is degraded"),
        (
            checks.nodesets([nodeset(conditions=(condition("Degraded", "True", "NameTaken", "m"),))]),
            "fail",
            "NameTaken: m",
        ),
    ],
)
def test_check(result: CheckResult, grade: str, told: str) -> None:
    """A check is ok only if what it looks at is fine; what is wrong is named, and has a fix."""
    assert result.grade == grade
    assert told in result.message
    assert bool(result.fix) == (grade != "ok") or "cannot be checked" in result.message


def test_many_problems_are_cut() -> None:
    """A long list of problems shows the first three and how many there are."""
    result = checks.images([waiting("ErrImagePull")] * 5)
    assert result.message.endswith("; and 2 more")


def test_the_report_is_a_table_with_fixes() -> None:
    """What is not ok has its fix below the table."""
    report = DoctorReport(
        items=(
            CheckResult(check="CRDs", grade=Grade.OK, message="all 7 are established"),
            CheckResult(check="DNS", grade=Grade.FAIL, message="no pod", fix="look"),
        )
    )
    assert render_report(report) == (
        "RESULT   CHECK   FOUND\nok       CRDs    all 7 are established\nfail     DNS     no pod\n"
        "\nWhat to do\n  DNS: look\n"
    )


def test_the_versions_are_those_of_the_documented_matrix() -> None:
    """What doctor accepts is what docs/reference/compatibility.md has."""
    page = (Path(__file__).parents[3] / "docs" / "reference" / "compatibility.md").read_text("utf-8")
    kubernetes = dict(re.findall(r"^\| (?:before )?(1\.\d+)(?: to 1\.\d+)? \| (\w+)", page, re.MULTILINE))
    found = {word: version for version, word in kubernetes.items()}
    assert found["tested"] == "{}.{}".format(*checks.KUBERNETES_TESTED)
    assert found["unsupported"] == "{}.{}".format(*checks.KUBERNETES_OLDEST)
    slurm = dict(re.findall(r"^\| (\d\d\.\d\d) \|[^|]*\| (\w+)", page, re.MULTILINE))
    assert {version for version, word in slurm.items() if word == "tested"} == {*checks.SLURM_TESTED}
    assert {version for version, word in slurm.items() if word == "expected"} == {*checks.SLURM_EXPECTED}
