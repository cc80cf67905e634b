"""The checks of `doctor`: each turns facts into ok, warn or fail, with the fix; pure.

Facts are what the API server returned, as plain dicts. A fact that could not be read is a warning that says
so: it is not known to be fine.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from slurm_operator.api import KINDS, wellknown
from slurm_operator.plugin.text_tables import counted, visible
from slurm_operator.status_rows import StatusRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from slurm_operator.status_rows import ClusterRow, NodeSetRow

Dict = dict[str, Any]


class Grade(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class CheckResult(StatusRow, frozen=True):
    """One check: what was found, and what to do about it."""

    check: str
    grade: Grade
    message: str
    fix: str = ""


class DoctorReport(StatusRow, frozen=True):
    """All checks."""

    items: tuple[CheckResult, ...] = ()


# docs/reference/compatibility.md has the same numbers.
KUBERNETES_TESTED: Final = (1, 36)
KUBERNETES_OLDEST: Final = (1, 29)
KUBERNETES_POLICIES: Final = (1, 30)
SLURM_TESTED: Final = ("24.11", "26.05")
SLURM_EXPECTED: Final = ("25.05", "25.11")
_SOON: Final = timedelta(days=30)
_SHOWN: Final = 3
_CGROUP_V2: Final = 2
_CRD_FIX: Final = "helm upgrade --install slurm-operator-crds ./charts/slurm-operator-crds -n slinky"
_IMAGE_REASONS: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}
)
_CGROUP_METRIC: Final = re.compile(r"^kubelet_cgroup_version(?:\{[^}]*\})? +([0-9.e+]+)$", re.MULTILINE)


def unreadable(check: str, why: str) -> CheckResult:
    """Return the result of a check whose facts could not be read."""
    return CheckResult(check=check, grade=Grade.WARN, message=f"cannot be checked: {visible(why)}")


def _result(check: str, wrong: Sequence[str], fine: str, fix: str, grade: Grade = Grade.FAIL) -> CheckResult:
    if not wrong:
        return CheckResult(check=check, grade=Grade.OK, message=fine)
    shown = "; ".join(visible(one) for one in wrong[:_SHOWN])
    more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    return CheckResult(check=check, grade=grade, message=f"{shown}{more}", fix=fix)


def kubernetes_version(version: Mapping[str, Any]) -> CheckResult:
    """Check the version of Kubernetes against the matrix."""
    check = "kubernetes version"
    found = re.match(r"v?(\d+)\.(\d+)", str(version.get("gitVersion", "")))
    if found is None:
        return unreadable(check, "the API server reports no version")
    number = (int(found[1]), int(found[2]))
    told = str(version.get("gitVersion"))
    if number < KUBERNETES_OLDEST:
        return CheckResult(
            check=check,
            grade=Grade.FAIL,
            message=f"{told} is not supported",
            fix="upgrade Kubernetes to 1.30 or newer",
        )
    if number < KUBERNETES_POLICIES:
        message = f"{told} has no ValidatingAdmissionPolicy: deletions of busy workers are not refused"
        return CheckResult(
            check=check, grade=Grade.WARN, message=message, fix="upgrade Kubernetes to 1.30 or newer"
        )
    if number > KUBERNETES_TESTED:
        message = f"{told} is newer than the newest tested version, 1.36"
        return CheckResult(check=check, grade=Grade.WARN, message=message, fix="look for a newer operator")
    return CheckResult(check=check, grade=Grade.OK, message=told)


def crds(found: Iterable[Mapping[str, Any]]) -> CheckResult:
    """Check that all CRDs are there, established, and serve the version that the operator uses."""
    by_name = {str(one["metadata"]["name"]): one for one in found}
    wrong = []
    for kind in KINDS:
        resource = kind.RESOURCE
        one = by_name.get(f"{resource.plural}.{resource.group}")
        if one is None:
            wrong.append(f"{resource.plural}.{resource.group} is missing")
            continue
        served = {entry.get("name") for entry in one["spec"].get("versions", ()) if entry.get("served")}
        if resource.version not in served:
            wrong.append(f"{resource.plural} does not serve {resource.version}")
        elif not any(
            entry.get("type") == "Established" and entry.get("status") == "True"
            for entry in one.get("status", {}).get("conditions", ())
        ):
            wrong.append(f"{resource.plural} is not established")
    return _result("CRDs", wrong, f"all {len(KINDS)} are established", _CRD_FIX)


def webhook(configurations: Iterable[Mapping[str, Any]], slices: Iterable[Mapping[str, Any]]) -> CheckResult:
    """Check that the webhook is registered and that a pod serves it; slices are those of its Service."""
    check = "webhook"
    hooks = ours(configurations)
    if not hooks:
        return CheckResult(
            check=check,
            grade=Grade.WARN,
            message="no webhook validates custom resources",
            fix="set webhook.enabled=true in the values of the chart slurm-operator",
        )
    service = hooks[0]["clientConfig"].get("service") or {}
    name = f"{service.get('namespace')}/{service.get('name')}"
    ready = _ready_addresses(slices)
    fix = (
        f"kubectl -n {service.get('namespace')} get pods; until one serves, changes of our kinds are refused"
    )
    return _result(
        check,
        [] if ready else [f"no pod serves Service {name}"],
        f"{counted(ready, 'pod')} behind {name}",
        fix,
    )


def ours(configurations: Iterable[Mapping[str, Any]]) -> list[Dict]:
    """Return the webhooks that validate our kinds."""
    return [
        hook
        for one in configurations
        for hook in one.get("webhooks", ())
        if any(wellknown.GROUP in rule.get("apiGroups", ()) for rule in hook.get("rules", ()))
    ]


def _ready_addresses(slices: Iterable[Mapping[str, Any]]) -> int:
    return sum(
        len(endpoint.get("addresses", ()))
        for one in slices
        for endpoint in one.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready") is not False
    )


def certificates(configurations: Iterable[Mapping[str, Any]], now: datetime) -> CheckResult:
    """Check the authority by which the API server trusts the webhook."""
    from cryptography import x509  # noqa: PLC0415 - large, and used by this check alone

    check = "certificates"
    hooks = ours(configurations)
    if not hooks:
        return CheckResult(check=check, grade=Grade.OK, message="no webhook, so none are needed")
    wrong, soon, ends = [], [], []
    for bundle in {str(hook["clientConfig"].get("caBundle") or "") for hook in hooks}:
        if not bundle:
            wrong.append("a webhook has no caBundle, so the API server does not trust it")
            continue
        try:
            chain = x509.load_pem_x509_certificates(base64.b64decode(bundle))
        except (ValueError, binascii.Error):
            wrong.append("a caBundle is not a PEM certificate")
            continue
        end = max(one.not_valid_after_utc for one in chain)
        ends.append(end)
        if end <= now:
            wrong.append(f"the authority of the webhook expired on {end:%Y-%m-%d}")
        elif end - now < _SOON:
            soon.append(f"the authority of the webhook expires on {end:%Y-%m-%d}")
    fix = (
        "with cert-manager: see that its Certificate is Ready; else helm upgrade of the chart slurm-operator "
        "makes a new one"
    )
    if wrong or not soon:
        told = f"valid until {min(ends):%Y-%m-%d}" if ends else ""
        return _result(check, wrong, told, fix)
    return _result(check, soon, "", fix, Grade.WARN)


def images(pods: Iterable[Mapping[str, Any]]) -> CheckResult:
    """Check that no pod waits for its image."""
    wrong = []
    for pod in pods:
        status = pod.get("status", {})
        for one in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
            waiting = (one.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") in _IMAGE_REASONS:
                where = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
                wrong.append(f"{where}: {waiting['reason']} for {one.get('image')}")
    fix = "push the image, correct its name in the values, or name imagePullSecrets"
    return _result("images", wrong, "no pod waits for an image", fix)


def storage(claims: Iterable[Mapping[str, Any]], classes: Sequence[Mapping[str, Any]]) -> CheckResult:
    """Check that volume claims of Slurm are bound, or can be."""
    known = {str(one["metadata"]["name"]) for one in classes}
    default = any(
        (one["metadata"].get("annotations") or {}).get("storageclass.kubernetes.io/is-default-class")
        == "true"
        for one in classes
    )
    wrong, waiting = [], []
    for claim in claims:
        if claim.get("status", {}).get("phase") != "Pending":
            continue
        where = f"PVC {claim['metadata']['namespace']}/{claim['metadata']['name']}"
        asked = claim["spec"].get("storageClassName")
        if asked and asked not in known:
            wrong.append(f"{where} asks for StorageClass {asked}, which does not exist")
        elif asked is None and not default:
            wrong.append(f"{where} asks for the default StorageClass, and there is none")
        else:
            waiting.append(f"{where} is Pending")
    fix = (
        "create the StorageClass, or name one in persistence.storageClassName; kubectl describe pvc says more"
    )
    if wrong or not waiting:
        return _result("storage", wrong, "no volume claim of Slurm waits", fix)
    return _result("storage", waiting, "", "kubectl describe pvc", Grade.WARN)


def dns(service: Mapping[str, Any] | None, slices: Iterable[Mapping[str, Any]]) -> CheckResult:
    """Check that the DNS of the cluster runs: daemons of Slurm find each other by name."""
    check = "DNS"
    if service is None:
        return CheckResult(
            check=check,
            grade=Grade.WARN,
            message="there is no Service kube-system/kube-dns; another DNS may serve the cluster",
            fix="kubectl -n kube-system get pods",
        )
    ready = _ready_addresses(slices)
    wrong = [] if ready else ["no pod serves kube-system/kube-dns: Slurm daemons cannot find each other"]
    return _result(
        check,
        wrong,
        f"{counted(ready, 'pod')} behind kube-system/kube-dns",
        "kubectl -n kube-system get pods",
    )


def cgroups(metrics: Mapping[str, str]) -> CheckResult:
    """Check which cgroups the kubelets have; `metrics` has the text of each Kubernetes node."""
    check = "cgroup"
    versions = {name: _CGROUP_METRIC.search(text) for name, text in metrics.items()}
    old = [name for name, found in versions.items() if found is not None and float(found[1]) < _CGROUP_V2]
    unknown = [name for name, found in versions.items() if found is None]
    if not metrics or len(unknown) == len(metrics):
        return unreadable(
            check, "no kubelet reports its cgroup version" if metrics else "no node has a worker"
        )
    fix = "use the values for nodes without cgroup v2 (docs/getting-started/installation.md), or other nodes"
    return _result(check, [f"node {name} has cgroup v1" for name in old], "cgroup v2", fix, Grade.WARN)


def permissions(answers: Mapping[str, bool]) -> CheckResult:
    """Check what the user may do; the key says what, and `list nodesets` is needed for everything."""
    missing = [what for what, allowed in answers.items() if not allowed]
    needed = [what for what in missing if what.startswith("list nodesets")]
    fix = "ask an administrator for the Role slurm-operator-viewer, and for `patch pods` to drain"
    told = [f"you may not {what}" for what in missing]
    return _result(
        "permissions", told, "you may use every command", fix, Grade.FAIL if needed else Grade.WARN
    )


def protection(policies: Iterable[Mapping[str, Any]]) -> CheckResult:
    """Check that the API server refuses to delete busy workers."""
    found = any(
        wellknown.LABEL_POD_PROTECT
        in (one["spec"].get("matchConstraints", {}).get("objectSelector", {}).get("matchLabels") or {})
        for one in policies
    )
    wrong = [] if found else ["no ValidatingAdmissionPolicy refuses to delete workers with running jobs"]
    fix = "set deletionProtection.enabled=true in the values of the chart slurm-operator (Kubernetes 1.30)"
    return _result("deletion protection", wrong, "deletions of busy workers are refused", fix, Grade.WARN)


def versions(ours_is: str, operator: str, clusters: Iterable[ClusterRow]) -> CheckResult:
    """Check the versions of command, operator and Slurm against the matrix."""
    wrong, odd = [], []
    if operator and operator != ours_is:
        odd.append(f"this command is {ours_is}, the operator {operator}")
    for one in clusters:
        release = ".".join(one.slurm_version.split(".")[:2])
        if not release or release in SLURM_TESTED:
            continue
        name = f"Slurm {one.slurm_version} of {one.namespace}/{one.name}"
        if release in SLURM_EXPECTED:
            odd.append(f"{name} should work and is not tested")
        elif release < min(SLURM_TESTED):
            wrong.append(f"{name} is too old")
        else:
            odd.append(f"{name} is not in the matrix")
    fix = "see docs/reference/compatibility.md; `pip install -U` for the command"
    if wrong or not odd:
        return _result("versions", wrong, f"operator {operator or 'unknown'}", fix)
    return _result("versions", odd, "", fix, Grade.WARN)


def connections(clusters: Sequence[ClusterRow]) -> CheckResult:
    """Check that the operator reaches each Slurm cluster."""
    wrong = [
        f"{one.namespace}/{one.name}: {one.reason or 'no connection yet'}: {one.message}".rstrip(": ")
        for one in clusters
        if not one.connected
    ]
    fine = f"{counted(len(clusters), 'cluster')} connected" if clusters else "there is no Slurm cluster yet"
    return _result(
        "connection to Slurm", wrong, fine, "kubectl slurm status -A; docs/operations/slurm-unreachable.md"
    )


def nodesets(rows: Sequence[NodeSetRow]) -> CheckResult:
    """Check that no NodeSet is degraded."""
    wrong = [
        f"{row.namespace}/{row.name}: {one.reason}: {one.message}"
        for row in rows
        for one in row.conditions
        if one.type == wellknown.CONDITION_DEGRADED and one.status == "True"
    ]
    fix = "kubectl slurm explain nodeset NAME; docs/operations/troubleshooting.md"
    return _result("NodeSets", wrong, f"{counted(len(rows), 'NodeSet')}, none is degraded", fix)
