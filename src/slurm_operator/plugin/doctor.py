"""`doctor`: gather the facts of each check, and print the results."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from slurm_operator import __version__
from slurm_operator.api import wellknown
from slurm_operator.kube.errors import KubeError, NotFound
from slurm_operator.plugin import doctor_checks as checks
from slurm_operator.plugin.commands import colours, formatted
from slurm_operator.plugin.doctor_checks import CheckResult, DoctorReport, Grade
from slurm_operator.plugin.exits import CommandError, ExitCode, ManagerUnavailable
from slurm_operator.plugin.manager_api import VIEWER, locate
from slurm_operator.plugin.text_tables import PLAIN, Cell, indented, table
from slurm_operator.status_rows import ClusterReply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from slurm_operator.kube.client.client import Client
    from slurm_operator.plugin.commands import CommandSession
    from slurm_operator.plugin.text_tables import Palette

# So many nodes are asked for their cgroups.
_NODES: Final = 3
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_COLOURS: Final = {Grade.OK: "green", Grade.WARN: "yellow", Grade.FAIL: "red"}


async def doctor(session: CommandSession) -> int:
    """Run every check, print the results, and return 1 if one has failed."""
    report = DoctorReport(items=tuple(await examine(session)))
    if session.options.output in ("json", "yaml"):
        sys.stdout.write(formatted(report, session.options.output))
    else:
        sys.stdout.write(render_report(report, colours(os.environ, terminal=sys.stdout.isatty())))
    failed = any(one.grade is Grade.FAIL for one in report.items)
    return ExitCode.FAILED if failed else ExitCode.DONE


def render_report(report: DoctorReport, palette: Palette = PLAIN) -> str:
    """Return the results as a table, and what to do about those that are not ok."""
    rows: list[list[str | Cell]] = [
        [Cell(one.grade.value, _COLOURS[one.grade]), one.check, one.message] for one in report.items
    ]
    lines = table(["RESULT", "CHECK", "FOUND"], rows, palette)
    fixes = [f"{one.check}: {one.fix}" for one in report.items if one.grade is not Grade.OK and one.fix]
    if fixes:
        lines += ["", "What to do", *indented(fixes)]
    return "\n".join([*lines, ""])


async def examine(session: CommandSession) -> list[CheckResult]:
    """Return the results of all checks, in a fixed order."""
    facts = Facts(session.client)
    gathered: dict[str, Callable[[], Awaitable[CheckResult]]] = {
        "kubernetes version": lambda: _version(facts),
        "CRDs": lambda: _crds(facts),
        "permissions": lambda: _permissions(session, facts),
        "operator": lambda: _operator(session),
        "webhook": lambda: _webhook(facts),
        "certificates": lambda: _certificates(facts),
        "deletion protection": lambda: _protection(facts),
        "images": lambda: _images(session, facts),
        "storage": lambda: _storage(session, facts),
        "DNS": lambda: _dns(facts),
        "cgroup": lambda: _cgroups(session, facts),
        "connection to Slurm": lambda: _connections(session),
        "NodeSets": lambda: _nodesets(session),
        "versions": lambda: _versions(session),
    }
    return list(await asyncio.gather(*(_one(name, ask) for name, ask in gathered.items())))


async def _one(name: str, ask: Callable[[], Awaitable[CheckResult]]) -> CheckResult:
    try:
        return await ask()
    except (KubeError, CommandError) as error:
        return checks.unreadable(name, str(error))


class Facts:
    """Reads plain objects of the API server."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def get(self, path: str) -> dict[str, Any]:
        """Return one object."""
        found: dict[str, Any] = msgspec.json.decode(await self.client.raw("GET", path))
        return found

    async def items(self, path: str, selector: str = "") -> list[dict[str, Any]]:
        """Return the objects of a list."""
        query = {"labelSelector": selector} if selector else None
        found: list[dict[str, Any]] = msgspec.json.decode(await self.client.raw("GET", path, query=query))[
            "items"
        ]
        return found

    async def text(self, path: str) -> str:
        """Return a text, such as the metrics of a kubelet."""
        return (await self.client.raw("GET", path, timeout=5.0)).decode(errors="replace")

    async def allowed(self, attributes: Mapping[str, str]) -> bool:
        """Return whether the user may do something."""
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": dict(attributes)},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        reply = msgspec.json.decode(await self.client.raw("POST", path, body=body, fenced=False))
        return bool(reply["status"].get("allowed"))


async def _version(facts: Facts) -> CheckResult:
    return checks.kubernetes_version(await facts.get("/version"))


async def _crds(facts: Facts) -> CheckResult:
    found = await facts.items("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    return checks.crds(one for one in found if one["spec"]["group"] == wellknown.GROUP)


async def _permissions(session: CommandSession, facts: Facts) -> CheckResult:
    where = session.namespace
    place = f" in {where}" if where else " in all namespaces"
    home = session.options.operator_namespace or "slinky"
    asked = {
        f"list nodesets{place}": {
            "verb": "list",
            "group": wellknown.GROUP,
            "resource": "nodesets",
            "namespace": where,
        },
        f"list pods{place}": {"verb": "list", "resource": "pods", "namespace": where},
        f"patch pods{place}": {"verb": "patch", "resource": "pods", "namespace": where},
        f"create tokens of {VIEWER} in {home}": {
            "verb": "create",
            "resource": "serviceaccounts",
            "subresource": "token",
            "name": VIEWER,
            "namespace": home,
        },
        f"use the proxy of pods in {home}": {
            "verb": "get",
            "resource": "pods",
            "subresource": "proxy",
            "namespace": home,
        },
    }
    answers = await asyncio.gather(*(facts.allowed(one) for one in asked.values()))
    return checks.permissions(dict(zip(asked, answers, strict=True)))


async def _operator(session: CommandSession) -> CheckResult:
    try:
        target = await locate(session.client, session.options.operator_namespace)
        await session.api.get("clusters", {}, ClusterReply)
    except ManagerUnavailable as error:
        missing = error.code in (ExitCode.NO_OPERATOR, ExitCode.FAILED)
        fix = (
            "kubectl get pods -A -l app.kubernetes.io/name=slurm-operator"
            if missing
            else "helm upgrade the chart slurm-operator, or ask for its Role slurm-operator-viewer"
        )
        grade = Grade.FAIL if missing else Grade.WARN
        return CheckResult(check="operator", grade=grade, message=str(error), fix=fix)
    return CheckResult(
        check="operator", grade=Grade.OK, message=f"pod {target.namespace}/{target.pod} leads and answers"
    )


async def _webhook(facts: Facts) -> CheckResult:
    configurations = await facts.items(f"{_ADMISSION}/validatingwebhookconfigurations")
    hooks = checks.ours(configurations)
    slices: list[dict[str, Any]] = []
    if hooks and (service := hooks[0]["clientConfig"].get("service")):
        slices = await facts.items(
            f"/apis/discovery.k8s.io/v1/namespaces/{service['namespace']}/endpointslices",
            f"kubernetes.io/service-name={service['name']}",
        )
    return checks.webhook(configurations, slices)


async def _certificates(facts: Facts) -> CheckResult:
    configurations = await facts.items(f"{_ADMISSION}/validatingwebhookconfigurations")
    return checks.certificates(configurations, datetime.now(UTC))


async def _protection(facts: Facts) -> CheckResult:
    return checks.protection(await facts.items(f"{_ADMISSION}/validatingadmissionpolicies"))


def _in(namespace: str, resource: str) -> str:
    return f"/api/v1/namespaces/{namespace}/{resource}" if namespace else f"/api/v1/{resource}"


async def _images(session: CommandSession, facts: Facts) -> CheckResult:
    selector = f"{wellknown.LABEL_APP_PART_OF} in ({wellknown.APPLICATION},{wellknown.OPERATOR})"
    return checks.images(await facts.items(_in(session.namespace, "pods"), selector))


async def _storage(session: CommandSession, facts: Facts) -> CheckResult:
    selector = f"{wellknown.LABEL_APP_NAME} in ({wellknown.APP_SLURMCTLD},{wellknown.APP_SLURMD})"
    claims = await facts.items(_in(session.namespace, "persistentvolumeclaims"), selector)
    return checks.storage(claims, await facts.items("/apis/storage.k8s.io/v1/storageclasses"))


async def _dns(facts: Facts) -> CheckResult:
    try:
        service = await facts.get("/api/v1/namespaces/kube-system/services/kube-dns")
    except NotFound:
        return checks.dns(None, ())
    slices = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices"
    return checks.dns(service, await facts.items(slices, "kubernetes.io/service-name=kube-dns"))


async def _cgroups(session: CommandSession, facts: Facts) -> CheckResult:
    reply = await session.view(lambda source: source.workers(session.namespace))
    nodes = sorted({one.kubernetes_node for one in reply.items if one.kubernetes_node})[:_NODES]
    texts = {name: await facts.text(f"/api/v1/nodes/{quote(name)}/proxy/metrics") for name in nodes}
    return checks.cgroups(texts)


async def _connections(session: CommandSession) -> CheckResult:
    reply = await session.view(lambda source: source.clusters(session.namespace))
    return checks.connections(reply.items)


async def _nodesets(session: CommandSession) -> CheckResult:
    reply = await session.view(lambda source: source.nodesets(session.namespace))
    return checks.nodesets(reply.items)


async def _versions(session: CommandSession) -> CheckResult:
    reply = await session.api.get("clusters", {}, ClusterReply)
    return checks.versions(__version__, reply.operator.version, reply.items)
