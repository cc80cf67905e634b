"""The charts, installed, upgraded and removed by helm on a real API server."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest
from cryptography import x509

from tests.support.charts.helm import CRDS, OPERATOR, SLURM, VALUES, Helm, foreign_kinds, settle_kinds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kubebox import Box

OWN_CA = ("--set", "certManager.enabled=false")
PLURALS = ("controllers", "restapis", "accountings", "loginsets", "nodesets", "tokens", "clusters")
KINDS = tuple(f"{plural}.slinky.slurm.net" for plural in PLURALS)
NAMESPACED = ("deployments", "services", "serviceaccounts", "secrets", "roles", "rolebindings")
WIDE = (
    *("clusterroles", "clusterrolebindings", "validatingwebhookconfigurations"),
    *("mutatingwebhookconfigurations", "validatingadmissionpolicies", "validatingadmissionpolicybindings"),
)
OF_THE_OPERATOR = "app.kubernetes.io/part-of=slurm-operator"


@pytest.mark.timeout(600)
def test_life_of_all_three(kube_box_factory: Callable[..., Box], helm_program: Path, tmp_path: Path) -> None:
    """Each chart installs, upgrades and goes; the definitions stay, and with them every cluster."""
    box = kube_box_factory()
    box.kubectl("create", "namespace", "slurm")
    helm = Helm(helm_program, box, "slurm", tmp_path)
    helm.install("definitions", CRDS)
    settle_kinds(box)
    said = helm.install("slurm", SLURM, "--set", "nodesets.a.replicas=1,partitions.all.enabled=true")
    assert "kubectl --namespace slurm wait --for=condition=Ready --timeout=10m controller/slurm" in said
    helm.upgrade("slurm", SLURM, "--reuse-values", "--set", "nodesets.a.replicas=3")
    workers = helm.get("nodesets", "slurm-worker-a")
    assert workers is not None
    assert workers["spec"]["replicas"] == 3
    helm.install("slurm-operator", OPERATOR, *OWN_CA)
    helm.upgrade("slurm-operator", OPERATOR, *OWN_CA, "--set", "operator.replicas=2")
    helm.upgrade("definitions", CRDS)
    helm.uninstall("slurm-operator")
    assert helm.names(*NAMESPACED, *WIDE, selector=OF_THE_OPERATOR) == set()
    helm.uninstall("definitions")
    assert helm.get("nodesets", "slurm-worker-a") is not None
    helm.install("definitions", CRDS)
    helm.uninstall("slurm")
    assert helm.names(*KINDS) == set()


def test_upgrade_makes_nothing_new(helm: Helm) -> None:
    """Keys and passwords are made once: an upgrade with other values leaves them as they are."""
    helm.install("slurm", SLURM, "--set", "accounting.enabled=true", "--set", "mariadb.enabled=true")
    names = ("slurm-auth-slurm", "slurm-auth-jwt", "slurm-mariadb")
    before = [_content(helm, name) for name in names]
    helm.upgrade("slurm", SLURM, "--reuse-values", "--set", "restapi.replicas=2")
    assert [_content(helm, name) for name in names] == before


def test_only_a_new_cluster_gets_memory_limits(helm: Helm) -> None:
    """An installation marks the Controller and upgrades keep the mark; a cluster without it never gets it."""
    mark = "slinky.slurm.net/constrain-memory"

    def annotations() -> dict[str, str]:
        found = helm.get("controllers", "slurm")
        assert found is not None
        held: dict[str, str] = found["metadata"].get("annotations", {})
        return held

    helm.install("slurm", SLURM)
    assert annotations()[mark] == "true"
    helm.upgrade("slurm", SLURM, "--reuse-values", "--set", "restapi.replicas=2")
    assert annotations()[mark] == "true"
    # As one that an older chart has installed.
    helm.upgrade("slurm", SLURM, "--set", "controller.constrainMemory=false")
    assert mark not in annotations()
    helm.upgrade("slurm", SLURM, "--reset-values")
    assert mark not in annotations()
    helm.upgrade("slurm", SLURM, "--set", "controller.constrainMemory=true")
    assert annotations()[mark] == "true"
    helm.uninstall("slurm")
    # Helm makes the namespace after it has rendered.
    later = f"{helm.namespace}-new"
    helm.install("slurm", SLURM, "--namespace", later, "--create-namespace")
    made = json.loads(helm.box.kubectl("--namespace", later, "get", "controller", "slurm", "--output=json"))
    helm.box.kubectl("delete", "namespace", later, "--wait=false")
    assert made["metadata"]["annotations"][mark] == "true"


def test_keys_can_be_made_anew(helm: Helm) -> None:
    """A key that is deleted is recreated by an upgrade; one that the reference made immutable is kept."""
    name = "slurm-auth-slurm"
    helm.install("slurm", SLURM)
    first = _content(helm, name)
    # As the reference's chart leaves it.
    helm.kubectl("patch", "secret", name, "--type=merge", '--patch={"immutable": true}')
    helm.upgrade("slurm", SLURM)
    assert _content(helm, name) == first
    helm.kubectl("delete", "secret", name)
    helm.upgrade("slurm", SLURM)
    made = helm.get("secret", name)
    assert made is not None
    assert made["data"] != first[1]
    assert "immutable" not in made, "a kubelet would go on giving the old key to new pods"


def _content(helm: Helm, name: str) -> tuple[str, dict[str, str]]:
    found = helm.get("secret", name)
    assert found is not None
    return found["metadata"]["uid"], found["data"]


def test_certificate_survives_an_upgrade(helm: Helm) -> None:
    """The API server's bundle and the webhook's certificate are of one authority, before and after."""
    seen = []
    for step in (helm.install, helm.upgrade):
        step("op", OPERATOR, *OWN_CA)
        secret = helm.get("secret", "slurm-operator-webhook-ca")
        judge = helm.get("validatingwebhookconfigurations", "slurm-operator-webhook")
        assert secret is not None
        assert judge is not None
        assert {hook["clientConfig"]["caBundle"] for hook in judge["webhooks"]} == {secret["data"]["ca.crt"]}
        seen.append(secret["data"])
    helm.uninstall("op")
    assert seen[0] == seen[1]


def test_a_new_authority_leaves_no_gap(helm: Helm) -> None:
    """While pods still serve the old certificate the API server trusts both authorities, then the new one."""
    helm.install("op", OPERATOR, *OWN_CA)
    (old,) = _trusted(helm)
    helm.kubectl("delete", "secret", "slurm-operator-webhook-ca")
    helm.upgrade("op", OPERATOR, *OWN_CA)
    new, before = _trusted(helm)
    helm.upgrade("op", OPERATOR, *OWN_CA)
    later = _trusted(helm)
    helm.uninstall("op")
    assert new != old
    assert (before, later) == (old, [new])


def _trusted(helm: Helm) -> list[x509.Certificate]:
    judge = helm.get("validatingwebhookconfigurations", "slurm-operator-webhook")
    assert judge is not None
    (bundle,) = {hook["clientConfig"]["caBundle"] for hook in judge["webhooks"]}
    return x509.load_pem_x509_certificates(base64.b64decode(bundle))


def test_values_of_the_reference_need_no_edit(helm: Helm) -> None:
    """Every documented value of the reference's charts is taken, and applying them twice changes nothing."""
    operator, cluster = VALUES / "slurm-operator" / "reference.yaml", VALUES / "slurm" / "reference.yaml"
    helm.install("slurm", SLURM, "--values", cluster)
    # Without an operator, the first write of an object stores the default of its status.
    helm.upgrade("slurm", SLURM, "--values", cluster)
    # Helm keeps its own record of a release in a Secret as well.
    what = (",".join((*KINDS, "secrets")), "--selector=app.kubernetes.io/part-of=slurm")
    versions = ("get", *what, "--output=jsonpath={.items[*].metadata.resourceVersion}")
    before = helm.kubectl(*versions)
    helm.upgrade("slurm", SLURM, "--values", cluster)
    assert before
    assert helm.kubectl(*versions) == before
    said = helm.install("slurm-operator", OPERATOR, "--values", operator)
    assert "Your values name an image of Slinky slurm-operator" in said
    deployment = helm.get("deployment", "slurm-operator")
    helm.uninstall("slurm-operator")
    assert deployment is not None
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"].startswith("slurm-operator:")


def test_two_clusters_in_one_namespace(helm: Helm) -> None:
    """A second cluster beside the first shares nothing with it but the PriorityClass."""
    common = ("--values", VALUES / "slurm" / "login.yaml")
    priority = ("--set", "priorityClass.enabled=true", "--set", "priorityClass.create=true")
    name = ("--set", f"priorityClass.name={helm.namespace}")
    fixed = ("--set", "loginsets.slinky.service.nodePort=0")
    first = _made_by(helm, lambda: helm.install("one", SLURM, *common, *priority, *name))
    second = _made_by(helm, lambda: helm.install("two", SLURM, *common, *priority, *name, *fixed))
    assert {item.replace("one-slurm", "two-slurm") for item in first} == second
    helm.upgrade("two", SLURM, *common, *priority, *name, *fixed)
    helm.uninstall("one")
    assert helm.names(*KINDS, "secrets", selector="app.kubernetes.io/part-of=slurm") == second
    helm.uninstall("two")


def _made_by(helm: Helm, act: Callable[[], object]) -> set[str]:
    kinds = (*KINDS, "secrets")
    before = helm.names(*kinds, selector="app.kubernetes.io/part-of=slurm")
    act()
    return helm.names(*kinds, selector="app.kubernetes.io/part-of=slurm") - before


def test_two_operators_in_one_namespace(helm: Helm) -> None:
    """The first operator keeps the plain names; a second has its own and keeps them."""
    helm.install("first", OPERATOR, *OWN_CA)
    plain = helm.names(*NAMESPACED, *WIDE, selector="app.kubernetes.io/instance=first")
    assert "deployment.apps/slurm-operator" in plain
    elsewhere = (*OWN_CA, "--set", "operator.namespaces=default")
    helm.install("second", OPERATOR, *elsewhere)
    own = helm.names(*NAMESPACED, *WIDE, selector="app.kubernetes.io/instance=second")
    assert "deployment.apps/second-slurm-operator" in own
    assert not plain & own
    assert "uniqueNames" not in helm("get", "values", "first")
    helm.upgrade("first", OPERATOR, "--reuse-values")
    assert helm.names(*NAMESPACED, *WIDE, selector="app.kubernetes.io/instance=first") == plain
    helm.uninstall("first")
    helm.upgrade("second", OPERATOR, *elsewhere)
    kept = helm.names("deployments", selector=OF_THE_OPERATOR)
    helm.uninstall("second")
    assert kept == {"deployment.apps/second-slurm-operator", "deployment.apps/second-slurm-operator-webhook"}


def test_two_operators_in_two_namespaces(helm: Helm, chart_box: Box, tmp_path: Path) -> None:
    """What belongs to no namespace does not collide either, though both releases have the same name."""
    with chart_box.namespace() as other:
        elsewhere = Helm(helm.program, chart_box, other, tmp_path)
        helm.install("slurm-operator", OPERATOR, *OWN_CA)
        elsewhere.install("slurm-operator", OPERATOR, *OWN_CA)
        judges = helm.names("validatingwebhookconfigurations", selector=OF_THE_OPERATOR)
        elsewhere.upgrade("slurm-operator", OPERATOR, *OWN_CA)
        elsewhere.uninstall("slurm-operator")
        helm.uninstall("slurm-operator")
    prefix = "validatingwebhookconfiguration.admissionregistration.k8s.io"
    assert judges == {f"{prefix}/slurm-operator-webhook", f"{prefix}/{other}-slurm-operator-webhook"}


# What the reference's chart leaves in a cluster, as far as Kubernetes or helm would refuse to change it.
REFERENCE = """
{{- range $name := list "slurm-operator" "slurm-operator-webhook" }}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ $name }}, namespace: {{ $.Release.Namespace }}}
spec:
  replicas: 1
  revisionHistoryLimit: 0
  selector: &labels
    matchLabels: {app.kubernetes.io/name: {{ $name }}, app.kubernetes.io/instance: {{ $.Release.Name }}}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: {{ $name }}
        app.kubernetes.io/instance: {{ $.Release.Name }}
        app.kubernetes.io/version: 1.3.0-rc1
    spec:
      hostname: {{ $name }}
      containers:
      - name: {{ ternary "slurm-operator" "webhook" (eq $name "slurm-operator") }}
        image: ghcr.io/slinkyproject/{{ $name }}:1.3.0-rc1
---
apiVersion: v1
kind: Service
metadata: {name: {{ $name }}, namespace: {{ $.Release.Namespace }}}
spec:
  {{- if eq $name "slurm-operator" }}
  clusterIP: None
  {{- end }}
  selector: {app.kubernetes.io/name: {{ $name }}, app.kubernetes.io/version: 1.3.0-rc1}
  ports: [{name: health, port: 8081}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: {{ $name }}, namespace: {{ $.Release.Namespace }}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: {{ $name }}}
rules: [{apiGroups: [""], resources: [secrets], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: {{ $name }}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $name }}}
subjects: [{kind: ServiceAccount, name: {{ $name }}, namespace: {{ $.Release.Namespace }}}]
{{- end }}
---
apiVersion: v1
kind: Secret
metadata: {name: slurm-operator-webhook-ca, namespace: {{ .Release.Namespace }}}
type: kubernetes.io/tls
data: {tls.crt: b2xk, tls.key: b2xk, ca.crt: b2xk}
"""


def test_upgrade_from_a_release_of_the_reference(helm: Helm, tmp_path: Path) -> None:
    """A release with the names and selectors of the reference becomes one of ours, object for object."""
    chart = tmp_path / "reference"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("{apiVersion: v2, name: slurm-operator, version: 1.3.0-rc1}")
    (chart / "templates" / "all.yaml").write_text(REFERENCE)
    helm.install("slurm-operator", chart)
    kinds = ("deployments", "services", "serviceaccounts", "clusterroles", "clusterrolebindings")
    names = [f"{kind}/{name}" for kind in kinds for name in ("slurm-operator", "slurm-operator-webhook")]
    before = {name: _uid(helm, name) for name in names}
    helm.upgrade("slurm-operator", OPERATOR, *OWN_CA)
    after = {name: _uid(helm, name) for name in names}
    rules = helm.get("clusterrole", "slurm-operator")
    secret = helm.get("secret", "slurm-operator-webhook-ca")
    helm.uninstall("slurm-operator")
    assert after == before
    assert rules is not None
    assert secret is not None
    assert "*" not in {verb for rule in rules["rules"] for verb in rule["verbs"]}
    assert secret["data"]["ca.crt"] == "b2xk"


def _uid(helm: Helm, name: str) -> str:
    found = helm.get(*name.split("/"))
    assert found is not None, name
    return str(found["metadata"]["uid"])


def test_no_upgrade_takes_the_definitions_away(
    kube_box_factory: Callable[..., Box], helm_program: Path, tmp_path: Path
) -> None:
    """Definitions that are part of a release, as with the reference, stay: an upgrade without is refused."""
    box = kube_box_factory()
    box.kubectl("create", "namespace", "slinky")
    helm = Helm(helm_program, box, "slinky", tmp_path)
    theirs = ("--set", "crds.enabled=true", "--set", "slurm-operator-crds.keep=false")
    helm.install("slurm-operator", OPERATOR, *OWN_CA, *theirs)
    settle_kinds(box)
    before = helm.names("customresourcedefinitions")
    said = helm("upgrade", "slurm-operator", OPERATOR, *OWN_CA, fails=True)
    assert "Set crds.enabled to true" in said
    helm.upgrade("slurm-operator", OPERATOR, *OWN_CA, "--set", "crds.enabled=true")
    # Now they are ours, and kept: they may leave the release.
    helm.upgrade("slurm-operator", OPERATOR, *OWN_CA)
    helm.uninstall("slurm-operator")
    assert len(before) == len(PLURALS)
    assert helm.names("customresourcedefinitions") == before


def test_foreign_kinds_are_only_asked_for_where_they_are(
    kube_box_factory: Callable[..., Box], helm_program: Path, tmp_path: Path
) -> None:
    """Without cert-manager the default installation says which kind is missing; with its kinds it works."""
    box = kube_box_factory()
    box.kubectl("create", "namespace", "slinky")
    helm = Helm(helm_program, box, "slinky", tmp_path)
    assert 'no matches for kind "Certificate"' in helm("install", "op", OPERATOR, fails=True)
    box.kubectl("apply", "--filename=-", stdin=foreign_kinds())
    settle_kinds(box)
    helm.install("op", OPERATOR)
    assert helm.get("certificates.cert-manager.io", "slurm-operator-webhook-ca") is not None
