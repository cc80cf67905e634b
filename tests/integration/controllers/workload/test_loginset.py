"""LoginSets on a real control plane."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from slurm_operator.api import LoginSet
from slurm_operator.controllers.workload.decide.read_models import DeploymentDetails
from slurm_operator.kube.models.kinds import ConfigMap, Secret, Service
from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.support.controllers.workload_namespace import Stage

KEYS = "login-ssh-host-keys"


async def ready(stage: Stage) -> None:
    await stage.keys()
    await stage.secret("sssd", sssd__conf="[sssd]")
    await stage.controller()
    await stage.loginset()
    await stage.says(LoginSet, "login", "Available")


async def test_host_keys_are_made_once(stage: Stage) -> None:
    """Neither a change of the spec nor another operator changes the host keys; all six files are there."""
    await stage.operator()
    await ready(stage)
    first = await stage.there(Secret, KEYS)
    assert first.immutable
    assert sorted(first.data or {}) == sorted(
        f"ssh_host_{kind}_key{end}" for kind in ("ecdsa", "ed25519", "rsa") for end in ("", ".pub")
    )
    await stage.patch(LoginSet, "login", {"spec": {"extraSshdConfig": "LoginGraceTime 600"}})
    await stage.says(LoginSet, "login", "Available")
    await stage.operator()
    await stage.patch(LoginSet, "login", {"spec": {"replicas": 2}})
    await stage.says(LoginSet, "login", "Available")
    second = await stage.there(Secret, KEYS)
    assert (second.metadata.uid, second.data) == (first.metadata.uid, first.data)


async def test_difference_10_missing_controller_and_sssd(stage: Stage) -> None:
    """What is missing is named, everything that does not depend on it is there, and an Event tells."""
    await stage.operator()
    await stage.keys()
    await stage.loginset()
    missing = await stage.says(LoginSet, "login", "MissingReference")
    assert "spec.controllerRef: Controller 'slurm' " in missing.message
    await stage.controller()

    async def names_sssd() -> bool:
        found = await stage.condition(LoginSet, "login")
        return found is not None and "spec.sssdConfRef: Secret 'sssd' " in found.message

    await eventually(names_sssd, "the missing Secret is named")
    assert await stage.get(Service, "login") is not None
    assert await stage.get(ConfigMap, "login-ssh-config") is not None
    assert await stage.get(Secret, KEYS) is not None
    assert await stage.get(DeploymentDetails, "login") is None
    await stage.secret("sssd", sssd__conf="[sssd]")
    await stage.says(LoginSet, "login", "Available")

    async def told() -> bool:
        return ("LoginSet", "Warning", "ControllerRefFailed", "Sync") in await stage.events()

    await eventually(told, "an Event says so")


async def test_incomplete_host_keys_are_not_overwritten(stage: Stage) -> None:
    """A Secret that is there already and lacks keys stays as it is and is named; completed, it is used."""
    await stage.operator()
    await stage.secret(KEYS, ssh_host_rsa_key="mine")
    await stage.keys()
    await stage.secret("sssd", sssd__conf="[sssd]")
    await stage.controller()
    await stage.loginset()
    lacking = await stage.says(LoginSet, "login", "InvalidSpec")
    assert "ssh_host_ed25519_key" in lacking.message
    assert "ssh_host_rsa_key," not in lacking.message
    assert await stage.get(DeploymentDetails, "login") is None
    files = {
        f"ssh_host_{kind}_key{end}": "mine" for kind in ("rsa", "ecdsa", "ed25519") for end in ("", "__pub")
    }
    await stage.secret(KEYS, **files)
    await stage.says(LoginSet, "login", "Available")
    kept = await stage.there(Secret, KEYS)
    assert set((kept.data or {}).values()) == {b"mine"}
    assert kept.metadata.owner_references == ()


async def test_foreign_host_keys_are_left_alone(stage: Stage) -> None:
    """A Secret that another object controls is not used, not changed, and named with its owner."""
    await stage.operator()
    await stage.config_map("owner")
    owner = await stage.there(ConfigMap, "owner")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid}
    body = {
        "metadata": {
            "name": KEYS,
            "namespace": stage.namespace,
            "ownerReferences": [reference | {"controller": True}],
        },
        "data": {"theirs": base64.b64encode(b"x").decode()},
    }
    before = await stage.client.create(Secret, body)
    await stage.keys()
    await stage.secret("sssd", sssd__conf="[sssd]")
    await stage.controller()
    await stage.loginset()
    said = await stage.says(LoginSet, "login", "NameTaken")
    assert "ConfigMap 'owner'" in said.message
    after = await stage.there(Secret, KEYS)
    assert after.metadata.resource_version == before.metadata.resource_version
    await stage.delete(Secret, KEYS)
    await stage.says(LoginSet, "login", "Available")


async def test_scale_subresource(stage: Stage) -> None:
    """An autoscaler can scale a LoginSet: it finds replicas and the selector of the pods."""
    await stage.operator()
    await ready(stage)
    await stage.client.set_scale(LoginSet, "login", stage.namespace, 3)

    async def scaled() -> bool:
        scale = await stage.client.get_scale(LoginSet, "login", stage.namespace)
        return scale.status.replicas == 3

    await eventually(scaled, "three pods are counted")
    scale = await stage.client.get_scale(LoginSet, "login", stage.namespace)
    assert scale.status.selector == "app.kubernetes.io/instance=login,app.kubernetes.io/name=login"
    await stage.says(LoginSet, "login", "Available")
    await stage.client.set_scale(LoginSet, "login", stage.namespace, 0)
    zero = await stage.says(LoginSet, "login", "ScaledToZero")
    assert zero.status == "True"


async def test_what_replaces_login_pods(stage: Stage) -> None:
    """Another sssd.conf replaces the pods once; other keys of administrators replace none, and it is said."""
    await stage.operator()
    await ready(stage)
    first = (await stage.there(DeploymentDetails, "login")).metadata.generation
    await stage.secret("sssd", sssd__conf="[sssd]\nservices = nss")
    said = await stage.says(LoginSet, "login", "Restart", "Configured")
    assert "Secret 'sssd'" in said.message

    # A restart is announced before it is done, and until then the LoginSet stays Available.
    async def replaced() -> bool:
        return (await stage.there(DeploymentDetails, "login")).metadata.generation > first

    await eventually(replaced, "the Deployment has the new sssd.conf")
    await stage.says(LoginSet, "login", "Available")
    assert (await stage.there(DeploymentDetails, "login")).metadata.generation == first + 1
    await stage.patch(LoginSet, "login", {"spec": {"rootSshAuthorizedKeys": "ssh-ed25519 AAAA me"}})
    said = await stage.says(LoginSet, "login", "Nothing", "Configured")
    assert "authorized_keys" in said.message
    assert (await stage.there(DeploymentDetails, "login")).metadata.generation == first + 1
