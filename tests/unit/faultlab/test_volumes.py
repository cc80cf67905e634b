from __future__ import annotations

from faultlab.volumes import volume


def test_a_volume_is_for_one_claim() -> None:
    """It has what the claim asks for, and names the claim, so that no other one is bound to it."""
    claim = {
        "metadata": {"name": "data", "namespace": "run-1", "uid": "u-1"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    made = volume(claim)
    assert made["metadata"]["name"] == "pv-u-1"
    assert made["spec"]["claimRef"]["name"] == "data"
    assert made["spec"]["claimRef"]["uid"] == "u-1"
    assert made["spec"]["capacity"] == {"storage": "1Gi"}
    assert made["spec"]["storageClassName"] == ""
