"""What is made from a Controller, beyond its equality with the reference (integration/objects)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.api.reasons import Reason
from slurm_operator.objects import slurmctld
from slurm_operator.objects.content_references import Found
from slurm_operator.objects.desired import ObjectName
from slurm_operator.objects.slurm_conf import SlurmCluster
from tests.support.objects.resources import accounting, controller, found, node_set

if TYPE_CHECKING:
    from slurm_operator.api import Controller
    from slurm_operator.objects.desired import Desired, Manifest

LAST_APPLIED = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "team": "hpc"}
CONFIG_HASH = "slinky.slurm.net/slurm-config-hash"
FILES_HASH = "slinky.slurm.net/referenced-files-hash"


def _desired(owner: Controller, content: Found | None = None, **others: Any) -> Desired:
    return slurmctld.desired(SlurmCluster(owner, **others), content or found(), service_monitors=True)


def _stateful_set(owner: Controller, content: Found | None = None) -> Manifest:
    made = _desired(owner, content).find("StatefulSet", "slurm-controller")
    assert made is not None
    return made


def _annotations(owner: Controller, content: Found | None = None) -> dict[str, str]:
    annotations: dict[str, str] = _stateful_set(owner, content)["spec"]["template"]["metadata"]["annotations"]
    return annotations


def _kinds(desired: Desired) -> list[str]:
    return [f"{item['kind']}/{item['metadata']['name']}" for item in desired.objects]


# ---------------------------------------------------------------------------------------- what is made at all


def test_children() -> None:
    """A Controller has two Services, a ConfigMap and a StatefulSet, each owned by it."""
    desired = _desired(controller())
    assert _kinds(desired) == [
        "Service/slurm-controller-internal",
        "Service/slurm-controller",
        "ConfigMap/slurm-config",
        "StatefulSet/slurm-controller",
    ]
    assert desired.problems == ()
    for item in desired.objects:
        (owner,) = item["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("Controller", "uid-slurm", True)


def test_an_external_controller_has_only_its_configuration() -> None:
    """With an external slurmctld only slurm.conf is made, and a workload from before is unwanted."""
    desired = _desired(controller(external=True, externalConfig={"host": "h", "port": 6817}), Found())
    assert _kinds(desired) == ["ConfigMap/slurm-config"]
    assert {item.kind for item in desired.unwanted} == {"StatefulSet", "Service", "ServiceMonitor"}
    assert desired.problems == ()


@pytest.mark.parametrize(
    ("metrics", "made"),
    [
        ({}, False),
        ({"enabled": True}, False),
        ({"serviceMonitor": {"enabled": True}}, False),
        ({"enabled": True, "serviceMonitor": {"enabled": True}}, True),
    ],
)
def test_service_monitor(metrics: dict[str, Any], made: bool) -> None:  # noqa: FBT001 - what is expected
    """A ServiceMonitor is made when metrics and monitor are on; otherwise one from before is unwanted."""
    desired = _desired(controller(metrics=metrics))
    monitor = ObjectName("monitoring.coreos.com/v1", "ServiceMonitor", "slurm-controller")
    assert (desired.find("ServiceMonitor", "slurm-controller") is not None) is made
    assert (monitor in desired.unwanted) is not made


def test_service_monitor_needs_its_kind() -> None:
    """Where the cluster does not know the kind, a ServiceMonitor is neither made nor removed."""
    owner = controller(metrics={"enabled": True, "serviceMonitor": {"enabled": True}})
    desired = slurmctld.desired(SlurmCluster(owner), found(), service_monitors=False)
    assert desired.find("ServiceMonitor", "slurm-controller") is None
    assert desired.unwanted == ()


def test_service_monitor_endpoints() -> None:
    """An endpoint's own timing wins over the monitor's; without endpoints there are the four of Slurm."""
    wish = {
        "enabled": True,
        "interval": "30s",
        "endpoints": [{"path": "/x", "interval": "5s"}, {"path": "/y"}],
    }
    made = _desired(controller(metrics={"enabled": True, "serviceMonitor": wish}))
    monitor = made.find("ServiceMonitor", "slurm-controller")
    assert monitor is not None
    assert [(item["path"], item["interval"]) for item in monitor["spec"]["endpoints"]] == [
        ("/x", "5s"),
        ("/y", "30s"),
    ]


# -------------------------------------------------------------------------------------------------- metadata


def test_difference_3_annotations_of_the_controller_do_not_reach_its_pods() -> None:
    """What `kubectl apply` writes on a Controller changes no pod, and is not copied to any child."""
    plain, applied = controller(), controller({"annotations": LAST_APPLIED})
    assert _stateful_set(plain)["spec"] == _stateful_set(applied)["spec"]
    for item in _desired(applied).objects:
        assert item["metadata"]["annotations"] == {"team": "hpc"}


def test_labels_are_inherited_and_ours_win() -> None:
    """Labels of the Controller and of its template reach the pods; ours win where keys are equal."""
    owner = controller(
        {"labels": {"team": "a", "app.kubernetes.io/name": "mine"}},
        template={"metadata": {"labels": {"team": "b"}, "annotations": {"x": "y"}}},
    )
    metadata = _stateful_set(owner)["spec"]["template"]["metadata"]
    assert metadata["labels"]["team"] == "b"
    assert metadata["labels"]["app.kubernetes.io/name"] == "slurmctld"
    assert metadata["annotations"]["x"] == "y"


@pytest.mark.parametrize("spec", [{}, {"ha": {"enabled": True}, "persistence": {"existingClaim": "c"}}])
def test_difference_6_pods_are_found_without_an_operator(spec: dict[str, Any]) -> None:
    """The active label is in the pod template, with standbys too, so the Service never waits for anybody."""
    active = "controller.slinky.slurm.net/active"
    made = _stateful_set(controller(**spec))["spec"]
    assert made["template"]["metadata"]["labels"][active] == "true"
    assert active not in made["selector"]["matchLabels"]


# ---------------------------------------------------------------------------------------------------- hashes


@pytest.mark.parametrize(
    ("secret", "changed"),
    [("auth-slurm", "slinky.slurm.net/slurm-key-hash"), ("auth-jwt", "slinky.slurm.net/jwt-key-hash")],
)
def test_another_key_is_another_pod(secret: str, changed: str) -> None:
    """A rotated key changes exactly its own hash, with and without the reconfigure sidecar."""
    key = {"auth-slurm": "slurm.key", "auth-jwt": "jwt.key"}[secret]
    for inplace in (True, False):
        owner = controller(inplaceReconfigure=inplace)
        before, after = _annotations(owner), _annotations(owner, found({secret: {key: b"new"}}))
        assert {name for name in before if before[name] != after[name]} == {changed}


@pytest.mark.parametrize(
    "spec",
    [
        {"configFileRefs": [{"name": "x"}]},
        {"prologScriptRefs": [{"name": "x"}]},
        {"epilogSlurmctldScriptRefs": [{"name": "x"}]},
        {"jwksKeyRef": {"name": "x", "key": "f"}},
    ],
)
def test_difference_1_content_of_references_counts(spec: dict[str, Any]) -> None:
    """A changed file in a referenced ConfigMap restarts slurmctld, unless the sidecar tells it."""
    before, after = found(x={"f": "1"}), found(x={"f": "2"})
    owner = controller(**spec)
    assert _annotations(owner, before)[FILES_HASH] != _annotations(owner, after)[FILES_HASH]
    assert _annotations(owner, before)[CONFIG_HASH] == _annotations(owner, after)[CONFIG_HASH]
    told = controller(inplaceReconfigure=True, **spec)
    assert _annotations(told, before) == _annotations(told, after)
    assert not {CONFIG_HASH, FILES_HASH} & _annotations(told, before).keys()


def test_difference_1_the_name_of_a_file_counts() -> None:
    """A file that changes its name is a change, too."""
    owner = controller(configFileRefs=[{"name": "x"}])
    one, other = found(x={"gres.conf": "1"}), found(x={"mpi.conf": "1"})
    assert _annotations(owner, one)[FILES_HASH] != _annotations(owner, other)[FILES_HASH]


def test_difference_2_the_hash_is_of_what_is_rendered() -> None:
    """The hash follows the ConfigMap of the same reconcile; nothing that a cache says can make it another."""
    quiet, busy = controller(), controller(extraConf="X=1")
    assert _annotations(quiet) == _annotations(quiet)
    assert _annotations(quiet)[CONFIG_HASH] != _annotations(busy)[CONFIG_HASH]


def test_a_change_taken_back_leaves_no_trace() -> None:
    """Objects depend on nothing but the input: change it back and they are what they were."""
    before = _desired(controller(), node_sets=[node_set("a")])
    between = _desired(controller(extraConf="X=1"), node_sets=[])
    assert between != before
    assert _desired(controller(), node_sets=[node_set("a")]) == before


# ----------------------------------------------------------------------------------------------------- state


def _state(owner: Controller) -> tuple[Any, Any]:
    spec = _stateful_set(owner)["spec"]
    volumes = [item for item in spec["template"]["spec"]["volumes"] if item["name"] == "statesave"]
    return (volumes[0] if volumes else None, spec.get("volumeClaimTemplates"))


@pytest.mark.parametrize(
    ("persistence", "claim"),
    [
        ({}, {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "4Gi"}}}),
        (
            {"storageClassName": "fast"},
            {
                "storageClassName": "fast",
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "4Gi"}},
            },
        ),
        (
            {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
            {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
        ),
    ],
)
def test_difference_7_a_claim_is_complete(persistence: dict[str, Any], claim: dict[str, Any]) -> None:
    """What a claim needs and the user left out is filled in; what the user wrote stays."""
    volume, (template,) = _state(controller(persistence=persistence))
    assert volume is None
    assert template["metadata"] == {"name": "statesave", "namespace": "NS"}
    assert template["spec"] == claim


def test_other_places_for_the_state() -> None:
    """The state is in the claim that the user names, or in the pod when persistence is off."""
    assert _state(controller(persistence={"existingClaim": "mine", "storageClassName": "x"})) == (
        {"name": "statesave", "persistentVolumeClaim": {"claimName": "mine"}},
        None,
    )
    assert _state(controller(persistence={"enabled": False, "existingClaim": "mine"})) == (
        {"name": "statesave", "emptyDir": {}},
        None,
    )


def test_high_availability() -> None:
    """Standbys share the claim, are probed for life only, and stay off each other's nodes."""
    owner = controller(ha={"enabled": True, "backups": 2}, persistence={"existingClaim": "rwx"})
    spec = _stateful_set(owner)["spec"]
    assert spec["replicas"] == 3
    assert _state(owner)[0] == {"name": "statesave", "persistentVolumeClaim": {"claimName": "rwx"}}
    (slurmctld_container,) = spec["template"]["spec"]["containers"]
    assert slurmctld_container["readinessProbe"]["httpGet"]["path"] == "/livez"


@pytest.mark.parametrize("persistence", [{}, {"enabled": False, "existingClaim": "c"}])
def test_high_availability_without_shared_state_is_refused(persistence: dict[str, Any]) -> None:
    """Standbys without a claim to share are an error that names the field, and everything else is made."""
    desired = _desired(controller(ha={"enabled": True}, persistence=persistence))
    assert [(problem.reason, problem.field) for problem in desired.problems] == [
        (Reason.INVALID_SPEC, "spec.persistence.existingClaim")
    ]
    assert "StatefulSet" not in {item["kind"] for item in desired.objects}
    assert len(desired.objects) == 5


# ----------------------------------------------------------------------------------------------------- ports


def test_difference_4_slurmctld_listens_where_its_service_does() -> None:
    """Services, container and slurm.conf agree on service.port."""
    desired = _desired(controller(service={"port": 7000}))
    assert [item["spec"]["ports"][0]["port"] for item in desired.objects[:2]] == [7000, 7000]
    assert "SlurmctldPort=7000\n" in desired.objects[2]["data"]["slurm.conf"]
    (container,) = desired.objects[3]["spec"]["template"]["spec"]["containers"]
    assert container["ports"] == [{"name": "slurmctld", "containerPort": 7000, "protocol": "TCP"}]


# ------------------------------------------------------------------------------------------- missing objects


def test_difference_10_missing_references_hold_back_only_what_needs_them() -> None:
    """Without its keys the StatefulSet waits, all that is missing is named, and the rest is made."""
    desired = _desired(controller(), found({"auth-slurm": None, "auth-jwt": {"other": b""}}))
    assert _kinds(desired)[-1] == "ConfigMap/slurm-config"
    named = (
        ("spec.slurmKeyRef", "Secret 'auth-slurm' "),
        ("spec.jwtKeyRef", "Secret 'auth-jwt' has no key 'jwt.key'"),
    )
    for problem, (field, words) in zip(desired.problems, named, strict=True):
        assert (problem.reason, problem.field) == (Reason.MISSING_REFERENCE, field)
        assert problem.message.startswith(words)


def test_difference_10_a_missing_file_holds_configuration_and_pods() -> None:
    """Deleted ConfigMaps are reported together, once, and leave configuration and pods as they are."""
    jwks = {"name": "gone", "key": "k"}
    owner = controller(configFileRefs=[{"name": "gone"}], jwksKeyRef=jwks, inplaceReconfigure=True)
    desired = _desired(owner)
    assert _kinds(desired) == ["Service/slurm-controller-internal", "Service/slurm-controller"]
    assert [problem.field for problem in desired.problems] == ["spec.configFileRefs[0]", "spec.jwksKeyRef"]
    assert {problem.reason for problem in desired.problems} == {Reason.MISSING_REFERENCE}


@pytest.mark.parametrize("spec", [{}, {"external": True, "externalConfig": {"host": "h", "port": 1}}])
def test_difference_10_a_missing_accounting_holds_configuration_and_pods(spec: dict[str, Any]) -> None:
    """While the Accounting does not exist, no slurm.conf without it is made, and the problem says so."""
    owner = controller(accountingRef={"name": "acct"}, **spec)
    desired = _desired(owner)
    assert {item["kind"] for item in desired.objects} <= {"Service"}
    assert [problem.field for problem in desired.problems] == ["spec.accountingRef"]
    assert _desired(owner, accounting=accounting()).problems == ()


def test_the_older_spelling_of_the_jwt_key() -> None:
    """A problem with jwtHs256KeyRef is reported under that name."""
    owner = controller(jwtKeyRef=None, jwtHs256KeyRef={"name": "old", "key": "k"})
    assert [problem.field for problem in _desired(owner).problems] == ["spec.jwtHs256KeyRef"]
    assert _desired(owner, found({"old": {"k": b"x"}})).problems == ()


def test_an_optional_key_may_be_missing() -> None:
    """A key that is marked optional holds nothing back, and is optional to the kubelet as well."""
    owner = controller(jwtKeyRef={"name": "auth-jwt", "key": "jwt.key", "optional": True})
    made = _stateful_set(owner, found({"auth-jwt": None}))["spec"]["template"]
    assert made["metadata"]["annotations"]["slinky.slurm.net/jwt-key-hash"] == ""
    sources = made["spec"]["volumes"][0]["projected"]["sources"]
    assert [source["secret"].get("optional") for source in sources if "secret" in source] == [None, True]


def test_references() -> None:
    """Exactly the named objects are asked for; an external cluster needs none."""
    owner = controller(
        configFileRefs=[{"name": "a"}, {"name": ""}],
        epilogScriptRefs=[{"name": "b"}],
        jwksKeyRef={"name": "c", "key": "k"},
    )
    named = slurmctld.references(owner)
    assert named.secrets == {"auth-slurm", "auth-jwt"}
    assert named.config_maps == {"a", "b", "c"}
    external = controller(
        external=True, externalConfig={"host": "h", "port": 1}, configFileRefs=[{"name": "a"}]
    )
    assert slurmctld.references(external).config_maps == frozenset()


def test_references_are_enough() -> None:
    """What references names is all that the result depends on."""
    owner = controller(configFileRefs=[{"name": "a"}], jwksKeyRef={"name": "c", "key": "k"})
    content = found(a={"gres.conf": ""}, c={"k": "{}"}, other={"x": "y"})
    named = slurmctld.references(owner)
    only = replace(
        content,
        secrets={name: item for name, item in content.secrets.items() if name in named.secrets},
        config_maps={name: item for name, item in content.config_maps.items() if name in named.config_maps},
    )
    assert _desired(owner, only) == _desired(owner, content)
    assert _desired(owner, only).problems == ()
