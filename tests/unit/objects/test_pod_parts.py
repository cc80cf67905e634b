"""How a user's wishes are merged into pods and containers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.api.shared import PodTemplate, SecretKeySelector
from slurm_operator.objects import pod_parts
from slurm_operator.objects.desired import Unbuildable

BASE = {
    "name": "slurmctld",
    "args": ["-D"],
    "env": [{"name": "A", "value": "1"}],
    "livenessProbe": {"httpGet": {"path": "/livez", "port": "x"}, "periodSeconds": 10, "failureThreshold": 6},
    "securityContext": {"privileged": True, "runAsNonRoot": True, "runAsUser": 401},
    "volumeMounts": [{"name": "etc", "mountPath": "/etc/slurm", "readOnly": True}],
}
TERM = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}
POD: dict[str, Any] = {
    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}},
    "tolerations": [{"key": "ours", "operator": "Exists"}],
    "automountServiceAccountToken": False,
    "initContainers": [{"name": "logfile", "image": "sh"}],
    "containers": [BASE],
    "volumes": [{"name": "etc", "emptyDir": {}}],
}


def _container(**wish: Any) -> dict[str, Any]:
    return pod_parts.container(BASE, wish, "spec.slurmctld")


def _pod(**spec: Any) -> dict[str, Any]:
    return pod_parts.pod_spec(POD, PodTemplate(spec=spec))


# ------------------------------------------------------------------------------------------------ containers


@pytest.mark.parametrize(
    ("field", "value"), [("privileged", False), ("runAsNonRoot", False), ("runAsUser", 0), ("other", "")]
)
def test_difference_5_an_explicit_false_or_zero_wins(field: str, value: Any) -> None:
    """What a user sets wins over the base, also when it is false, zero or empty."""
    merged = _container(securityContext={field: value})
    assert merged["securityContext"] == BASE["securityContext"] | {field: value}  # type: ignore[operator]


@given(st.sampled_from(["stdin", "tty", "workingDir", "image"]), st.sampled_from([False, 0, "", "x", True]))
def test_difference_5_any_scalar_wins(field: str, value: Any) -> None:
    """A scalar that a user sets is the one in the result."""
    assert pod_parts.container({**BASE, field: "ours"}, {field: value}, "f")[field] is value


@pytest.mark.parametrize("nothing", [None, []])
def test_nothing_is_nothing(nothing: Any) -> None:
    """A null or an empty list is the same as leaving a field out, as everywhere in Kubernetes."""
    wish = {
        "args": nothing,
        "env": nothing,
        "command": nothing,
        "livenessProbe": None,
        "volumeMounts": nothing,
    }
    assert pod_parts.container({**BASE, "command": ["c"]}, wish, "f") == {**BASE, "command": ["c"]}


def test_arguments_follow_ours() -> None:
    """Arguments of the user are added behind the operator's."""
    assert _container(args=["-v"])["args"] == ["-D", "-v"]


def test_the_name_stays() -> None:
    """A container keeps the name under which the operator, and people, look for it."""
    assert _container(name="mine")["name"] == "slurmctld"


def test_a_users_probe_brings_its_own_handler() -> None:
    """A user's handler takes the place of ours; what else is in our probe stays."""
    probe = _container(livenessProbe={"exec": {"command": ["true"]}, "periodSeconds": 3})["livenessProbe"]
    assert probe == {"exec": {"command": ["true"]}, "periodSeconds": 3, "failureThreshold": 6}


def test_a_probe_without_handler_keeps_ours() -> None:
    """A user who only changes the timing of a probe keeps its handler."""
    probe = _container(livenessProbe={"periodSeconds": 3})["livenessProbe"]
    assert probe == {**BASE["livenessProbe"], "periodSeconds": 3}  # type: ignore[dict-item]


def test_lists_merge_by_their_keys() -> None:
    """Variables merge by name, mounts by path: an entry of ours is changed, another added."""
    merged = _container(
        env=[{"name": "A", "value": "2"}, {"name": "B", "value": "3"}],
        volumeMounts=[{"name": "etc", "mountPath": "/etc/slurm", "readOnly": False}],
    )
    assert merged["env"] == [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}]
    assert merged["volumeMounts"] == [{"name": "etc", "mountPath": "/etc/slurm", "readOnly": False}]


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        ({"args": "-v"}, "spec.slurmctld.args"),
        ({"livenessProbe": []}, None),
        ({"livenessProbe": ["x"]}, "spec.slurmctld.livenessProbe"),
        ({"env": [{"value": "x"}]}, "spec.slurmctld"),
        ({"command": {"sh": "-c"}}, "spec.slurmctld.command"),
    ],
)
def test_a_wish_of_the_wrong_shape_names_its_field(wish: dict[str, Any], field: str | None) -> None:
    """Fields that nobody validated before are refused with their names, and never crash."""
    if field is None:
        assert _container(**wish) == BASE
        return
    with pytest.raises(Unbuildable) as caught:
        _container(**wish)
    assert caught.value.problems[0].field == field


# ------------------------------------------------------------------------------------------------------ pods


def test_difference_5_tolerations_add_up() -> None:
    """A user's tolerations are added to ours, each once."""
    theirs = {"key": "theirs", "operator": "Exists"}
    assert _pod(tolerations=[theirs, POD["tolerations"][0]])["tolerations"] == [*POD["tolerations"], theirs]


def test_difference_5_anti_affinity_adds_up() -> None:
    """A user's required anti-affinity is added to ours, which keeps two slurmctlds off one node."""
    theirs = {"topologyKey": "zone"}
    other: dict[str, Any] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}
    }
    affinity = _pod(
        affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [theirs]}, **other}
    )["affinity"]
    terms = affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms == [theirs, TERM]
    assert affinity["nodeAffinity"] == other["nodeAffinity"]


def test_difference_5_a_container_of_a_known_name_merges() -> None:
    """A user's container with the name of ours changes it instead of colliding; others are added behind."""
    pod = _pod(
        containers=[{"name": "side", "image": "s"}, {"name": "slurmctld", "args": ["-v"], "image": "i"}],
        initContainers=[{"name": "logfile", "resources": {"limits": {"cpu": "1"}}}],
    )
    assert [item["name"] for item in pod["containers"]] == ["slurmctld", "side"]
    assert pod["containers"][0] == {**BASE, "image": "i", "args": ["-D", "-v"]}
    assert pod["initContainers"] == [
        {"name": "logfile", "image": "sh", "resources": {"limits": {"cpu": "1"}}}
    ]


def test_volumes_merge_by_name() -> None:
    """Volumes of a user are added, and change ours where they have the same name."""
    volumes = _pod(volumes=[{"name": "home", "emptyDir": {}}])["volumes"]
    assert sorted(volume["name"] for volume in volumes) == ["etc", "home"]


def test_difference_5_explicit_false_reaches_the_pod() -> None:
    """An explicit true or false in the pod template wins over ours."""
    assert _pod(automountServiceAccountToken=True)["automountServiceAccountToken"] is True
    assert _pod(enableServiceLinks=False)["enableServiceLinks"] is False


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"containers": {"name": "x"}}, "spec.template.spec.containers"),
        ({"containers": [{"image": "x"}]}, "spec.template.spec.containers[0]"),
        ({"initContainers": ["x"]}, "spec.template.spec.initContainers[0]"),
        ({"tolerations": "x"}, "spec.template.spec.tolerations"),
        ({"affinity": []}, None),
        ({"affinity": {"podAntiAffinity": "x"}}, "spec.template.spec.affinity.podAntiAffinity"),
        ({"volumes": ["x"]}, "spec.template.spec"),
        ({"volumes": False}, "spec.template.spec.volumes"),
        ({"volumes": {"name": "x"}}, "spec.template.spec.volumes"),
        ({"containers": [{"name": ["x"]}]}, "spec.template.spec.containers[0].name"),
        ({"containers": [{"name": "x", "command": 5}]}, "spec.template.spec.containers[0].command"),
    ],
)
def test_a_template_of_the_wrong_shape_names_its_field(spec: dict[str, Any], field: str | None) -> None:
    """A pod template that nobody validated before is refused with the field that is wrong."""
    if field is None:
        assert _pod(**spec) == _pod()
        return
    with pytest.raises(Unbuildable) as caught:
        _pod(**spec)
    assert caught.value.problems[0].field == field


@pytest.mark.parametrize(
    ("key", "file"), [("slurm.key", "slurm.key"), ("a", "slurm.key"), ("b.jwks", "slurm.jwks")]
)
def test_a_set_of_keys_has_the_name_by_which_slurm_finds_it(key: str, file: str) -> None:
    """A set of keys, named ….jwks in its Secret, is slurm.jwks to the daemons; a single key is slurm.key."""
    source = pod_parts.slurm_key_file(SecretKeySelector(name="auth", key=key))
    assert source == {"secret": {"name": "auth", "items": [{"key": key, "path": file}]}}


def test_nothing_given_is_changed() -> None:
    """Merging leaves the base and the wish as they were."""
    wish = {"containers": [{"name": "slurmctld", "args": ["-v"]}], "tolerations": [{"key": "x"}]}
    before = copy.deepcopy((POD, wish))
    pod_parts.pod_spec(POD, PodTemplate(spec=wish))
    assert (POD, wish) == before
