"""What we make from NodeSets beside what the reference made, both with the defaults of a real API server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from slurm_operator.objects.slurmd import PRE_STOP
from tests.fixtures.golden import CASES, Case
from tests.support.objects.golden_cases import world
from tests.support.objects.recorded_workers import made_from
from tests.support.rendering_comparison import comparable, defaulted, differences

if TYPE_CHECKING:
    from pathlib import Path

    from kubebox import Box
    from slurm_operator.objects.desired import Manifest

_ANNOTATIONS = "metadata.annotations"
_NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # the hash of no content
# What is better than in the reference, and where it shows.
_KEY_HASH = f"{_ANNOTATIONS}.slinky.slurm.net/slurm-key-hash: only ours"
_NO_SSH = [
    f"{_ANNOTATIONS}.slinky.slurm.net/{name}-conf-hash: only theirs: {_NOTHING!r}"
    for name in ("sshd", "sssd")
]
_MANAGED, _PART = (
    f"metadata.labels.app.kubernetes.io/{name}: only ours" for name in ("managed-by", "part-of")
)
_LABELS = "metadata.labels: only ours"
_PROTECTED = "metadata.labels.nodeset.slinky.slurm.net/pod-protect: only ours"
_PATIENCE = [f"spec.tolerations[{index}].tolerationSeconds: only theirs: 300" for index in (0, 1)]
_STRICT = [_LABELS, "spec.maxUnavailable: only theirs: 0", "spec.minAvailable: only ours"]
_TOPOLOGY = "Topology='\"$SLINKY_TOPOLOGY\"'"
_LAST, _SORTED = (
    f"'Features=a100,gpu,nvlink Gres=gpu:8 {rest}'"
    for rest in (f"Weight=10 {_TOPOLOGY}", f"{_TOPOLOGY} Weight=10")
)
WANTED = {
    "06-nodeset-rich": [
        _KEY_HASH,
        _MANAGED,
        _PART,
        _PROTECTED,
        f"spec.containers[0].args[4]: ours {_LAST!r}, theirs {_SORTED!r}",
        *_PATIENCE,
    ],
}
_USUAL = [_KEY_HASH, *_NO_SSH, _MANAGED, _PART, _PROTECTED, *_PATIENCE]
_OUR_ENVIRONMENT = ("SLINKY_NODE_NAME", "SLINKY_POD_UID", "SLINKY_GRACE_SECONDS")
_OUR_TOLERATION = {"effect": "NoExecute", "key": "nodeset.slinky.slurm.net/worker", "operator": "Equal"}


def _expected(case: Case) -> dict[tuple[str, str], Manifest]:
    """Return what the recording has of NodeSets; revisions are compared to the byte elsewhere."""
    return {
        (item["kind"], item["metadata"]["name"]): item
        for item in case.made
        if item["kind"] != "ControllerRevision"
        and any(owner["kind"] == "NodeSet" for owner in item["metadata"].get("ownerReferences", ()))
    }


def _settle(ours: Manifest, golden: Manifest) -> None:
    """Make equal what has to differ: the script, the name, what is done to a pod later, our toleration."""
    for name in ("serviceAccount", "serviceAccountName"):
        assert golden["spec"].pop(name) == "default"  # admission that the API server of the tests lacks
    command = ours["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    theirs = golden["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert command == [*theirs[:-1], PRE_STOP]
    command[-1] = theirs[-1]
    topology = "topology.slinky.slurm.net/spec"
    if topology not in ours["metadata"]["annotations"]:  # copied from the Kubernetes node, once it is known
        golden["metadata"]["annotations"].pop(topology, None)
    slurmd = ours["spec"]["containers"][0]
    assert ours["metadata"]["annotations"].pop("nodeset.slinky.slurm.net/stated-name") == "true"
    assert slurmd["args"][5:9] == ["-N", ours["spec"]["hostname"], "--instance-id", "$(SLINKY_POD_UID)"]
    del slurmd["args"][5:9]
    slurmd["env"] = [item for item in slurmd["env"] if item["name"] not in _OUR_ENVIRONMENT]
    if "livenessProbe" not in ours["spec"]["containers"][0]:  # there only if a user wants it
        alive = golden["spec"]["containers"][0].pop("livenessProbe")
        assert alive["failureThreshold"] * alive["periodSeconds"] == 60
    for item in (ours, golden):
        # Tolerations of ours that the reference has not, and those of the user, which stand in another order.
        item["spec"]["tolerations"] = sorted(
            (one for one in item["spec"]["tolerations"] if one != _OUR_TOLERATION),
            key=lambda one: str(one.get("key")),
        )


@pytest.mark.parametrize(
    "name",
    ["01-minimal", "02-accounting", "04-config-merge", "06-nodeset-rich", "07-daemonset", "08-external"],
)
def test_children_are_those_of_the_reference(
    name: str, kube_box: Box, kube_namespace: str, tmp_path: Path
) -> None:
    """Each object equals the recorded one, except for the listed improvements, none missing, none extra."""
    (case,) = (case for case in CASES if case.name == name)
    rendered = made_from(world(case, kube_namespace))
    expected = _expected(case)
    assert {(item["kind"], item["metadata"]["name"]) for item in rendered} == expected.keys()
    stored = defaulted(kube_box, tmp_path, kube_namespace, rendered)
    for item, answer in zip(rendered, stored, strict=True):
        key = (item["kind"], item["metadata"]["name"])
        ours = comparable(answer, item, kube_namespace)
        golden = comparable(expected[key], item, "NS")
        if item["kind"] == "Pod":
            _settle(ours, golden)
        wanted = {
            "Pod": WANTED.get(name, _USUAL),
            "PodDisruptionBudget": _STRICT,
            "Service": [_LABELS],
        }.get(item["kind"], [_MANAGED, _PART])
        assert list(differences(ours, golden)) == wanted, json.dumps(key)
