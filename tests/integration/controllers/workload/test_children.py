"""What holds for the children of all four kinds: drift comes back, changes can be undone, silence at rest."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.api import Accounting, Controller, Kind, LoginSet, RestApi
from slurm_operator.controllers.workload.models import Deployment, StatefulSet
from slurm_operator.kube.client import Client
from slurm_operator.kube.config import load_config
from slurm_operator.kube.models import ConfigMap, Secret, Service
from tests.integration.controllers.workload.claims import shared_claim
from tests.integration.controllers.workload.stage import Stage
from tests.integration.programs.running import eventually, install_crds

if TYPE_CHECKING:
    from kubebox import Box
    from kubebox.pytest_plugin import BoxFactory
    from slurm_operator.kube.meta import Object
    from tests.integration.controllers.workload.stage import Operator

KINDS: tuple[type[Kind], ...] = (Controller, Accounting, RestApi, LoginSet)
# Every child of a whole cluster, and an edit of it that a person might make.
CHILDREN: list[tuple[type[Object], str, dict[str, Any]]] = [
    (Service, "slurm-controller", {"spec": {"selector": {"controller.slinky.slurm.net/active": None}}}),
    (Service, "slurm-controller-internal", {"spec": {"publishNotReadyAddresses": False}}),
    (ConfigMap, "slurm-config", {"data": {"slurm.conf": "ClusterName=hacked"}}),
    (StatefulSet, "slurm-controller", {"spec": {"replicas": 2}}),
    (Service, "slurm-accounting", {"metadata": {"labels": {"app.kubernetes.io/name": "mine"}}}),
    (Secret, "slurm-accounting", {"data": {"slurmdbd.conf": "AAAA"}}),
    (StatefulSet, "slurm-accounting", {"metadata": {"labels": {"app.kubernetes.io/name": None}}}),
    (Service, "slurm-restapi", {"metadata": {"ownerReferences": None}}),
    (Deployment, "slurm-restapi", {"spec": {"template": {"spec": {"automountServiceAccountToken": True}}}}),
    (Service, "login", {"spec": {"selector": {"app.kubernetes.io/instance": "other"}}}),
    (ConfigMap, "login-ssh-config", {"data": {"sshd_config": None}}),
    (Deployment, "login", {"spec": {"replicas": 0}}),
    (Secret, "login-ssh-host-keys", {"metadata": {"labels": {"app.kubernetes.io/component": None}}}),
]
_DELETABLE = [(kind, name) for kind, name, _ in CHILDREN]


async def whole_cluster(stage: Stage) -> Operator:
    """Run one object of each kind, all ready."""
    operator = await stage.operator()
    await stage.keys()
    await stage.password("p")
    await stage.secret("sssd", sssd__conf="[sssd]")
    await stage.config_map("gres", gres__conf="Name=gpu")
    await stage.controller(accountingRef={"name": "slurm"}, configFileRefs=[{"name": "gres"}])
    await stage.accounting()
    await stage.restapi()
    await stage.loginset()
    await all_ready(stage)
    return operator


async def all_ready(stage: Stage) -> None:
    for kind in KINDS:
        name = "login" if kind is LoginSet else "slurm"
        await stage.says(kind, name, "Available")
        await stage.says(kind, name, "Complete", "Progressing")


async def test_edited_children_come_back(stage: Stage) -> None:
    """Whatever a person changes in a child that the operator decides about is put back."""
    await whole_cluster(stage)
    before = await stage.children()
    for kind, name, edit in CHILDREN:
        await stage.patch(kind, name, edit)
        slot = f"{kind.RESOURCE.kind} {name}"

        async def restored(slot: str = slot) -> bool:
            return (await stage.children()).get(slot) == before[slot]

        await eventually(restored, f"{slot} is as it was")
    await all_ready(stage)
    assert await stage.children() == before


async def test_deleted_children_come_back(stage: Stage) -> None:
    """A child that a person deletes is made again."""
    await whole_cluster(stage)
    for kind, name in _DELETABLE:
        uid = (await stage.there(kind, name)).metadata.uid
        await stage.delete(kind, name)

        async def remade(kind: type[Object] = kind, name: str = name, uid: str = uid) -> bool:
            found = await stage.get(kind, name)
            return found is not None and found.metadata.uid != uid

        await eventually(remade, f"{kind.__name__} {name} is there again")
    await all_ready(stage)


CHANGES: list[tuple[type[Kind], str, dict[str, Any], dict[str, Any]]] = [
    (Controller, "slurm", {"extraConf": "SchedulerType=sched/backfill"}, {"extraConf": None}),
    (Controller, "slurm", {"service": {"port": 7017, "spec": {"type": "NodePort"}}}, {"service": None}),
    (Controller, "slurm", {"inplaceReconfigure": True}, {"inplaceReconfigure": None}),
    (Controller, "slurm", {"slurmctld": {"args": ["-vv"], "env": [{"name": "A", "value": "b"}]}},
     {"slurmctld": {"args": None, "env": None}}),
    (Controller, "slurm", {"template": {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}},
     {"template": None}),
    (Controller, "slurm", {"slurmctld": {"livenessProbe": {"exec": {"command": ["true"]}}}},
     {"slurmctld": {"livenessProbe": None}}),
    (Controller, "slurm", {"persistence": {"enabled": True, "existingClaim": "state"}},
     {"persistence": {"enabled": False, "existingClaim": None}}),
    (Controller, "slurm", {"template": {"spec": {"securityContext": {"runAsUser": 0, "runAsNonRoot": False},
        "hostNetwork": True, "tolerations": [{"operator": "Exists"}]}}}, {"template": None}),
    (RestApi, "slurm", {"slurmrestd": {"readinessProbe": {"httpGet": {"path": "/", "port": 1}}}},
     {"slurmrestd": {"readinessProbe": None}}),
    (Controller, "slurm", {"accountingRef": None}, {"accountingRef": {"name": "slurm"}}),
    (Accounting, "slurm", {"extraConf": "PurgeJobAfter=24month"}, {"extraConf": None}),
    (Accounting, "slurm", {"storageConfig": {"port": 3307}}, {"storageConfig": {"port": 3306}}),
    (RestApi, "slurm", {"replicas": 2, "service": {"nodePort": 30123, "spec": {"type": "NodePort"}}},
     {"replicas": None, "service": None}),
    (LoginSet, "login", {"strategy": {"type": "Recreate"}, "rootSshAuthorizedKeys": "ssh-rsa A"},
     {"strategy": None, "rootSshAuthorizedKeys": None}),
    (LoginSet, "login", {"login": {"ports": [{"name": "login", "containerPort": 2222}]}},
     {"login": {"ports": None}}),
]  # fmt: skip


async def test_changed_and_changed_back(stage: Stage) -> None:
    """Each field changed and changed back leads to the same objects: nothing of the change is left over."""
    operator = await whole_cluster(stage)
    await shared_claim(stage, "state", "ReadWriteOnce")
    before = await stage.children()
    for kind, name, change, back in CHANGES:
        await stage.patch(kind, name, {"spec": change})
        await stage.says(kind, name, "Available")
        await operator.look_again()
        assert await stage.children() != before, change
        await stage.patch(kind, name, {"spec": back})
        await stage.says(kind, name, "Available")

        async def same() -> bool:
            return await stage.children() == before

        await eventually(same, f"all is as it was before {change}")


async def test_annotations_of_the_custom_resource_restart_nothing(stage: Stage) -> None:
    """`kubectl apply` of an unchanged spec, which rewrites an annotation, leaves every pod template alone."""
    operator = await whole_cluster(stage)
    before = {name: item["spec"] for name, item in (await stage.children()).items() if "spec" in item}
    for kind in KINDS:
        annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "example.com/note": "x"}
        await stage.patch(
            kind, "login" if kind is LoginSet else "slurm", {"metadata": {"annotations": annotations}}
        )

    async def arrived() -> bool:
        found = await stage.there(Service, "slurm-accounting")
        return found.metadata.annotations == {"example.com/note": "x"}

    await eventually(arrived, "the annotation is on a Service, and last-applied is not")
    await operator.look_again(2)
    now = await stage.children()
    assert {name: now[name]["spec"] for name in before} == before


async def test_two_clusters_in_one_namespace(stage: Stage) -> None:
    """Two clusters side by side have children of their own, and removing one leaves the other as it was."""
    operator = await whole_cluster(stage)
    first = await stage.children()
    await stage.controller("other", accountingRef={"name": "other"})
    await stage.accounting("other")
    await stage.restapi("other", controller="other")
    await stage.loginset("other", controller="other")
    for kind in KINDS:
        await stage.says(kind, "other", "Available")
    both = await stage.children()
    assert len(both) == 2 * len(first)
    assert {name: both[name] for name in first} == first
    for kind in KINDS:
        await stage.delete(kind, "other")
    await operator.look_again(2)
    await all_ready(stage)
    now = await stage.children()
    assert {name: now[name] for name in first} == first


async def test_colliding_names_are_a_condition(stage: Stage) -> None:
    """A LoginSet whose Service is a RestApi's by name takes nothing away from it, and says whose it is."""
    await whole_cluster(stage)
    before = await stage.children()
    await stage.loginset("slurm-restapi")
    said = await stage.says(LoginSet, "slurm-restapi", "NameTaken")
    assert "Service 'slurm-restapi' belongs to RestApi 'slurm'" in said.message
    now = await stage.children()
    assert {name: now[name] for name in before} == before
    await stage.says(RestApi, "slurm", "Available")


# ---------------------------------------------------------------------------------------------------- silence
@pytest.fixture
def audited_box(kube_box_factory: BoxFactory) -> Box:
    """Hand out a whole control plane that writes down every request."""
    box = kube_box_factory(controller_manager=True, scheduler=True, fake_nodes=2, audit=True)
    install_crds(box)
    box.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
    return box


def operator_writes(box: Box, namespace: str) -> list[tuple[str, str]]:
    """Return verb and path of every write of the operator, Events aside, from the audit log."""
    found = []
    for line in box.audit_log.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        path = entry["requestURI"]
        ours = entry.get("userAgent", "").startswith("slurm-operator/") and namespace in path
        user = "fieldManager=user" in path or "/events" in path
        if ours and not user and entry["verb"] not in ("get", "list", "watch"):
            found.append((entry["verb"], path))
    return found


async def test_silence_at_rest(audited_box: Box) -> None:
    """A cluster at rest, looked at a hundred times, costs not one write, by the API server's own record."""
    config = load_config(str(audited_box.kubeconfig))
    with audited_box.namespace() as namespace:
        async with AsyncExitStack() as stack, Client(config) as client:
            stage = Stage(client, config, namespace, stack)
            operator = await whole_cluster(stage)
            await eventually(lambda: _settled(operator), "nothing is left to write")
            before = operator_writes(audited_box, namespace)
            assert len(before) > len(CHILDREN)
            await operator.look_again(100)
            # A request that follows is in the log, so all before it are.
            await stage.config_map("mark")
            assert operator_writes(audited_box, namespace) == before


async def _settled(operator: Operator) -> bool:
    before = len(operator.writes)
    await operator.look_again(2)
    return len(operator.writes) == before
