"""The charts against the program they start: flags, paths, metrics and versions."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from slurm_operator import __version__
from slurm_operator.api import removal, wellknown
from slurm_operator.flags import (
    Parser,
    add_manager_flags,
    add_webhook_flags,
    manager_options,
    parse,
    webhook_options,
)
from slurm_operator.kube.process.metrics import REGISTRY
from slurm_operator.webhook.rules.registration import (
    BINDING_NAME,
    BINDING_PATH,
    REMOVAL_NAME,
    REMOVAL_PATH,
    WEBHOOKS,
)
from tests.support.charts.chart_accounts import Right, granted, rights
from tests.support.charts.helm import CHARTS, CRDS, OPERATOR, SLURM, VALUES, render

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PARSERS = {"manager": (add_manager_flags, manager_options), "webhook": (add_webhook_flags, webhook_options)}
DOCUMENTED = (CHARTS.parent / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")


def rendered(helm: Path, kind: str, *arguments: str) -> list[dict[str, Any]]:
    """Return the objects of one kind of the operator's chart."""
    return [item for item in render(helm, OPERATOR, *arguments) if item["kind"] == kind]


FILES = sorted((VALUES / "slurm-operator").glob("*.yaml"))


@pytest.mark.parametrize("values", FILES, ids=lambda path: path.stem)
def test_flags_are_understood(helm_program: Path, values: Path) -> None:
    """Each container starts a command of the program with flags that it knows and values that it takes."""
    deployments = rendered(helm_program, "Deployment", "--values", str(values))
    commands = []
    for deployment in deployments:
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        command, *flags = container["args"]
        add_flags, options = PARSERS[command]
        parser = Parser(prog=command, usage="", description="")
        add_flags(parser)
        options(parse(parser, flags))
        commands.append(command)
    given = yaml.safe_load(values.read_text(encoding="utf-8")) or {}
    wanted = {"manager": "operator", "webhook": "webhook"}
    assert sorted(commands) == [
        command for command, part in wanted.items() if given.get(part, {}).get("enabled", True)
    ]


def test_webhooks_are_those_that_are_served(helm_program: Path) -> None:
    """Every kind is judged, under the name and the path at which the program serves it."""
    (configuration,) = rendered(helm_program, "ValidatingWebhookConfiguration")
    configured = {
        (
            hook["name"],
            hook["clientConfig"]["service"]["path"],
            *hook["rules"][0]["apiGroups"],
            *hook["rules"][0]["apiVersions"],
            *hook["rules"][0]["resources"],
        )
        for hook in configuration["webhooks"]
    }
    assert configured == {
        (hook.name, hook.path, hook.resource.group, hook.resource.version, hook.resource.plural)
        for hook in WEBHOOKS
    }
    (secrets,) = (hook for hook in configuration["webhooks"] if hook["rules"][0]["resources"] == ["secrets"])
    looked_at = re.findall(r"'([a-z./-]+)'", secrets["matchConditions"][1]["expression"])
    assert {*looked_at} - {".jwks"} == {
        wellknown.FILE_SLURM_KEY,
        wellknown.FILE_SLURM_JWKS,
        wellknown.ANNOTATION_SLURM_KEY,
    }
    (mutating,) = rendered(helm_program, "MutatingWebhookConfiguration", "--set", "webhook.podsBinding=true")
    assert [(hook["name"], hook["clientConfig"]["service"]["path"]) for hook in mutating["webhooks"]] == [
        (BINDING_NAME, BINDING_PATH),
        (REMOVAL_NAME, REMOVAL_PATH),
    ]


def test_the_policy_speaks_of_what_the_operator_reads(helm_program: Path) -> None:
    """Label and annotations in the policy against deletions are those of the program."""
    (policy,) = rendered(helm_program, "ValidatingAdmissionPolicy")
    (binding,) = rendered(helm_program, "ValidatingAdmissionPolicyBinding")
    spec = policy["spec"]
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    assert spec["matchConstraints"]["objectSelector"] == {
        "matchLabels": {wellknown.LABEL_POD_PROTECT: wellknown.TRUE}
    }
    keys = {wellknown.ANNOTATION_ALLOW_DELETION, wellknown.ANNOTATION_REMOVAL_REQUESTED}
    (validation,) = spec["validations"]
    for text in (json.dumps(spec["variables"]), validation["message"], validation["messageExpression"]):
        assert {*re.findall(r"nodeset\.slinky\.slurm\.net/[a-z-]+", text)} == keys
    assert wellknown.POD_CONDITION_SAFE in validation["messageExpression"]
    # A value by hand is a request without an end, and the only one that needs no time.
    assert f"{wellknown.ANNOTATION_REMOVAL_REQUESTED}=true" in validation["messageExpression"]
    request = removal.read({wellknown.ANNOTATION_REMOVAL_REQUESTED: "true"})
    assert request is not None
    assert request.expires() is None


def test_own_certificate_is_what_the_api_server_trusts(helm_program: Path) -> None:
    """The chart's certificate is signed by the bundle that it registers, for the name that is called."""
    arguments = ("--set", "certManager.enabled=false")
    objects = {item["kind"]: item for item in render(helm_program, OPERATOR, *arguments)}
    data = {key: base64.b64decode(text) for key, text in objects["Secret"]["data"].items()}
    (hook, *_) = objects["ValidatingWebhookConfiguration"]["webhooks"]
    authority = x509.load_pem_x509_certificate(base64.b64decode(hook["clientConfig"]["caBundle"]))
    serving = x509.load_pem_x509_certificate(data["tls.crt"])
    key = serialization.load_pem_private_key(data["tls.key"], None)
    serving.verify_directly_issued_by(authority)
    assert key.public_key() == serving.public_key()
    names = serving.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    service = hook["clientConfig"]["service"]
    assert f"{service['name']}.{service['namespace']}.svc" in names.get_values_for_type(x509.DNSName)


def test_rights_of_the_webhook_are_few() -> None:
    """It may look at what its rules ask about, annotate pods, and nothing else; it sees no Secret.

    The tests of the webhook run it with these rights, and fail without any one of them.
    """
    looks = {
        Right("", "configmaps", "get"),
        Right("", "persistentvolumeclaims", "get"),
        Right("slinky.slurm.net", "nodesets", "list"),
        Right("slinky.slurm.net", "controllers", "list"),
        Right("", "pods", "list"),
    }
    records = {Right("", "pods", "get"), Right("", "pods/status", "patch")}
    binding = {Right("", "pods", "get"), Right("", "nodes", "get")}
    reviews = {
        Right("authentication.k8s.io", "tokenreviews", "create"),
        Right("authorization.k8s.io", "subjectaccessreviews", "create"),
    }
    for values, more in (
        ("", records),
        ("webhook.removalRequests=false", set()),
        ("webhook.podsBinding=true,webhook.removalRequests=false", binding),
        ("webhook.metricsSecure=true,webhook.metricsPort=8080", records | reviews),
    ):
        assert granted(rights("--set", values, component="webhook")) == looks | more


def test_alerts_are_about_metrics_that_exist(helm_program: Path) -> None:
    """Every series in an alert is described in docs/reference/metrics.md and used as its type requires."""
    types = {metric.name: metric.type for metric in REGISTRY.collect()}
    (rule,) = rendered(helm_program, "PrometheusRule", "--set", "monitoring.prometheusRule.enabled=true")
    for alert in rule["spec"]["groups"][0]["rules"]:
        found = set(re.findall(r"(?:slurm_operator|leader_election)_\w+", alert["expr"]))
        assert found, alert["alert"]
        for series in found:
            base = series.removesuffix("_bucket")
            assert f"`{base}" in DOCUMENTED, alert["alert"]
            assert (types.get(base) == "histogram") is series.endswith("_bucket"), alert["alert"]


def choices(schema: Any, name: str = "") -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the fields of a schema that are one of some words, and these words."""
    if not isinstance(schema, dict):
        return
    if "enum" in schema:
        yield name, frozenset(schema["enum"]) - {None}
    for field, below in schema.get("properties", {}).items():
        yield from choices(below, field)


def test_what_a_nodeset_may_say_its_values_may_say() -> None:
    """Where the custom resource knows a word, the chart's schema does, and no other."""
    file = CRDS / "templates" / "slinky.slurm.net_nodesets.yaml"
    text = re.sub(r"(?m)^.*{{.*$\n?", "", file.read_text(encoding="utf-8"))
    (version,) = yaml.safe_load(text)["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    values = json.loads((SLURM / "values.schema.json").read_text(encoding="utf-8"))
    known = dict(choices(spec))
    assert "pruneSlurmNodeRecords" in known
    assert dict(choices(values["definitions"]["nodeset"])) == known


def test_versions_are_one() -> None:
    """The operator's charts have the version of the program, which is the tag of its image as well."""
    for name in ("slurm-operator-crds", "slurm-operator"):
        chart = yaml.safe_load((CHARTS / name / "Chart.yaml").read_text(encoding="utf-8"))
        assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
        for dependency in chart.get("dependencies", ()):
            assert dependency["version"] == __version__
