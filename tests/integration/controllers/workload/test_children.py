"""What holds for the children of all four kinds: drift comes back, changes can be undone, silence at rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from slurm_operator.api import Accounting, Controller, Kind, LoginSet, RestApi
from slurm_operator.controllers.workload.decide.read_models import DeploymentDetails, StatefulSetDetails
from slurm_operator.kube.models.kinds import ConfigMap, Secret, Service
from tests.support.controllers.volumes import shared_claim
from tests.support.controllers.whole_cluster import KINDS, all_ready, whole_cluster
from tests.support.controllers.workload_namespace import JWT, KEY
from tests.support.processes import eventually

if TYPE_CHECKING:
    from slurm_operator.kube.models.meta import Object
    from tests.support.controllers.workload_namespace import Stage

# Every child of a whole cluster, and an edit of it that a person might make.
CHILDREN: list[tuple[type[Object], str, dict[str, Any]]] = [
    (Service, "slurm-controller", {"spec": {"selector": {"controller.slinky.slurm.net/active": None}}}),
    (Service, "slurm-controller-internal", {"spec": {"publishNotReadyAddresses": False}}),
    (ConfigMap, "slurm-config", {"data": {"slurm.conf": "ClusterName=hacked"}}),
    (StatefulSetDetails, "slurm-controller", {"spec": {"replicas": 2}}),
    (Service, "slurm-accounting", {"metadata": {"labels": {"app.kubernetes.io/name": "mine"}}}),
    (Secret, "slurm-accounting", {"data": {"slurmdbd.conf": "AAAA"}}),
    (StatefulSetDetails, "slurm-accounting", {"metadata": {"labels": {"app.kubernetes.io/name": None}}}),
    (Service, "slurm-restapi", {"metadata": {"ownerReferences": None}}),
    (
        DeploymentDetails,
        "slurm-restapi",
        {"spec": {"template": {"spec": {"automountServiceAccountToken": True}}}},
    ),
    (Service, "login", {"spec": {"selector": {"app.kubernetes.io/instance": "other"}}}),
    (ConfigMap, "login-ssh-config", {"data": {"sshd_config": None}}),
    (DeploymentDetails, "login", {"spec": {"replicas": 0}}),
    (Secret, "login-ssh-host-keys", {"metadata": {"labels": {"app.kubernetes.io/component": None}}}),
]
_DELETABLE = [(kind, name) for kind, name, _ in CHILDREN]


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


ENV = [{"name": "A", "value": "b"}]
OTHER_KEYS = {
    "slurmKeyRef": {"name": "others", "key": "slurm.key"},
    "jwtKeyRef": None,
    "jwtHs256KeyRef": {"name": "others", "key": "jwt.key"},
}
SAME_KEYS = {"slurmKeyRef": KEY, "jwtKeyRef": JWT, "jwtHs256KeyRef": None}
# Their objects are removed and recreated, which other tests are about.
ELSEWHERE = {"external", "externalConfig"}
# What the API server keeps as it was created.
FIXED: dict[type[Any], set[str]] = {LoginSet: {"controllerRef"}}
CHANGES: list[tuple[type[Kind], str, dict[str, Any], dict[str, Any]]] = [
    (Controller, "slurm", {"extraConf": "SchedulerType=sched/backfill"}, {"extraConf": None}),
    (Controller, "slurm", {"service": {"port": 7017, "spec": {"type": "NodePort"}}}, {"service": None}),
    (Controller, "slurm", {"inplaceReconfigure": True, "reconfigure": {"env": ENV}},
     {"inplaceReconfigure": None, "reconfigure": {"env": None}}),
    (Controller, "slurm", {"clusterName": "other", "configFileRefs": [{"name": "gres"}, {"name": "more"}],
        "jwksKeyRef": {"name": "more", "key": "more.conf"}, "logfile": {"env": ENV},
        "metrics": {"enabled": True}, "prologScriptRefs": [{"name": "script"}]},
     {"clusterName": None, "configFileRefs": [{"name": "gres"}], "jwksKeyRef": None,
        "logfile": {"env": None}, "metrics": None, "prologScriptRefs": None}),
    (Controller, "slurm", {"epilogScriptRefs": [{"name": "script"}],
        "epilogSlurmctldScriptRefs": [{"name": "script"}], "prologSlurmctldScriptRefs": [{"name": "script"}]},
     {"epilogScriptRefs": None, "epilogSlurmctldScriptRefs": None, "prologSlurmctldScriptRefs": None}),
    (Controller, "slurm", OTHER_KEYS, SAME_KEYS),
    (Controller, "slurm", {"ha": {"enabled": True, "backups": 1},
        "persistence": {"enabled": True, "existingClaim": "shared"}},
     {"ha": None, "persistence": {"enabled": False, "existingClaim": None}}),
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
    (Accounting, "slurm", OTHER_KEYS, SAME_KEYS),
    (Accounting, "slurm", {"jwksKeyRef": {"name": "more", "key": "more.conf"}, "service": {"port": 7019},
        "slurmdbd": {"env": ENV}, "template": {"metadata": {"labels": {"a": "b"}}}},
     {"jwksKeyRef": None, "service": None, "slurmdbd": {"env": None}, "template": None}),
    (Accounting, "slurm", {"storageConfig": {"port": 3307}}, {"storageConfig": {"port": 3306}}),
    (RestApi, "slurm", {"replicas": 2, "service": {"nodePort": 30123, "spec": {"type": "NodePort"}}},
     {"replicas": None, "service": None}),
    (LoginSet, "login", {"strategy": {"type": "Recreate"}, "rootSshAuthorizedKeys": "ssh-rsa A"},
     {"strategy": None, "rootSshAuthorizedKeys": None}),
    (RestApi, "slurm", {"controllerRef": {"name": "second"}, "template": {"spec": {"hostNetwork": True}}},
     {"controllerRef": {"name": "slurm"}, "template": None}),
    (LoginSet, "login", {"extraSshdConfig": "X11Forwarding yes",
        "initconf": {"env": ENV}, "replicas": 2, "service": {"port": 2222},
        "sssdConfRef": {"name": "sssd", "key": "other.conf"},
        "template": {"metadata": {"labels": {"a": "b"}}}},
     {"extraSshdConfig": None, "initconf": {"env": None},
        "replicas": None, "service": None, "sssdConfRef": {"name": "sssd", "key": "sssd.conf"},
        "template": None}),
    (LoginSet, "login", {"login": {"ports": [{"name": "login", "containerPort": 2222}]}},
     {"login": {"ports": None}}),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_among_the_changes(kind: type[Kind]) -> None:
    """A field that is added to a kind must be changed and changed back below."""
    (spec,) = (field.type for field in msgspec.structs.fields(kind) if field.name == "spec")
    fields = {field.encode_name for field in msgspec.structs.fields(spec)}
    changed = {field for one, _, change, _ in CHANGES if one is kind for field in change}
    assert changed == fields - ELSEWHERE - FIXED.get(kind, set())


@pytest.mark.timeout(600)  # more than twenty changes, each rolled out twice
async def test_changed_and_changed_back(stage: Stage) -> None:
    """Each field changed and changed back leads to the same objects: nothing of the change is left over."""
    operator = await whole_cluster(stage)
    await shared_claim(stage, "state", "ReadWriteOnce")
    await shared_claim(stage, "shared", "ReadWriteMany")
    await stage.secret("others", slurm__key="other", jwt__key="other")
    await stage.secret("sssd", sssd__conf="[sssd]", other__conf="[sssd]\n")
    await stage.config_map("more", more__conf="{}")
    await stage.config_map("script", script__sh="#!/bin/sh")
    await stage.controller("second")
    await stage.says(Controller, "second", "Available")
    before = await stage.children()
    for kind, name, change, back in CHANGES:
        await stage.patch(kind, name, {"spec": change})
        await stage.says(kind, name, "Available")
        await operator.reconcile_again()
        assert await stage.children() != before, change
        await stage.patch(kind, name, {"spec": back})
        await stage.says(kind, name, "Available")

        async def same() -> bool:
            return await stage.children() == before

        await eventually(same, f"all is as it was before {change}")


async def test_difference_3_annotations_of_the_custom_resource_restart_nothing(stage: Stage) -> None:
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
    await operator.reconcile_again(2)
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
    await operator.reconcile_again(2)
    await all_ready(stage)
    now = await stage.children()
    assert {name: now[name] for name in first} == first


async def test_colliding_names_are_a_condition(stage: Stage) -> None:
    """A LoginSet whose Service is a RestApi's by name takes nothing away from it, and says whose it is."""
    await whole_cluster(stage)
    before = await stage.children()
    await stage.loginset("slurm-restapi")
    said = await stage.says(LoginSet, "slurm-restapi", "NameTaken")
    assert "Service 'slurm-restapi' " in said.message
    assert "RestApi 'slurm'" in said.message
    now = await stage.children()
    assert {name: now[name] for name in before} == before
    await stage.says(RestApi, "slurm", "Available")
