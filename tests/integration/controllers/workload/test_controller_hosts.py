"""The Services by which slurmctlds that stand by for each other are found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.api import Controller, wellknown
from slurm_operator.controllers.workload.decide.read_models import StatefulSetDetails
from slurm_operator.kube.models.kinds import ConfigMap, Pod, Secret, Service
from slurm_operator.objects import slurmctld
from slurm_operator.objects.content_references import Found
from slurm_operator.objects.migration import settle
from slurm_operator.objects.slurm_conf import SlurmCluster
from tests.support.controllers.volumes import shared_claim
from tests.support.processes import eventually

if TYPE_CHECKING:
    from slurm_operator.kube.models.meta import Object
    from tests.support.controllers.workload_namespace import Operator, Stage

FIRST, SECOND, THIRD = (f"slurm-controller-{ordinal}" for ordinal in range(3))


async def standbys(stage: Stage, backups: int = 1) -> None:
    """Write a Controller whose slurmctlds share a claim."""
    await shared_claim(stage, "state", "ReadWriteMany")
    await stage.keys()
    await stage.controller(
        ha={"enabled": True, "backups": backups}, persistence={"enabled": True, "existingClaim": "state"}
    )


async def hosts(stage: Stage) -> list[str]:
    """Return the lines of slurm.conf that say where slurmctlds are."""
    found = await stage.there(ConfigMap, "slurm-config")
    lines = (found.data or {})["slurm.conf"].splitlines()
    return [line for line in lines if line.startswith("SlurmctldHost=")]


async def services(stage: Stage) -> set[str]:
    """Return the Services of single slurmctlds."""
    page = await stage.client.list_all(Service, stage.namespace)
    names = {one.metadata.name for one in page.items}
    return names - {"slurm-controller", "slurm-controller-internal"}


def by_service(stage: Stage, *names: str) -> list[str]:
    return [f"SlurmctldHost={name}({name}.{stage.namespace})" for name in names]


def by_pod(stage: Stage, *names: str) -> list[str]:
    headless = f"slurm-controller-internal.{stage.namespace}"
    return [f"SlurmctldHost={name}({name}.{headless})" for name in names]


async def has_only(stage: Stage, *names: str) -> None:
    async def so() -> bool:
        return await services(stage) == {*names}

    await eventually(so, f"there are the Services {names}")


async def rests(operator: Operator) -> None:
    await eventually(operator.rests, "nothing is written any more")


async def test_services_come_before_the_configuration_and_go_after_it(stage: Stage) -> None:
    """Each slurmctld has a Service of its own before slurm.conf names it, and after it does so no longer."""
    operator = await stage.operator()
    await standbys(stage, backups=2)
    await stage.says(Controller, "slurm", "Available")
    await rests(operator)
    assert await services(stage) == {FIRST, SECOND, THIRD}
    assert await hosts(stage) == by_service(stage, FIRST, SECOND, THIRD)
    assert (await stage.there(StatefulSetDetails, "slurm-controller")).metadata.generation == 1
    made = [write for write in operator.writes if write.startswith("create ")]
    assert made.index("create configmaps") > max(
        number for number, write in enumerate(made) if write == "create services"
    )
    pods = {name: (await stage.there(Pod, name)).metadata.labels.items() for name in (FIRST, SECOND, THIRD)}
    for name in pods:
        selector = ((await stage.there(Service, name)).spec.selector or {}).items()
        assert [pod for pod, labels in pods.items() if selector <= labels] == [name]

    await stage.patch(Controller, "slurm", {"spec": {"ha": {"backups": 1}}})
    await has_only(stage, FIRST, SECOND)
    assert await hosts(stage) == by_service(stage, FIRST, SECOND)
    assert await stage.get(Pod, THIRD) is None

    await stage.patch(Controller, "slurm", {"spec": {"ha": None}})
    await has_only(stage)
    assert await hosts(stage) == by_pod(stage, FIRST)
    assert await stage.get(Pod, SECOND) is None
    await stage.says(Controller, "slurm", "Available")
    await rests(operator)


async def test_a_deleted_service_comes_back_and_nothing_else_changes(stage: Stage) -> None:
    """While one of the Services is missing, configuration and pods stay as they are, and after that, too."""
    operator = await stage.operator()
    await standbys(stage)
    await stage.says(Controller, "slurm", "Available")
    await rests(operator)
    uid, before = (await stage.there(Service, FIRST)).metadata.uid, len(operator.writes)
    await stage.delete(Service, FIRST)

    async def remade() -> bool:
        found = await stage.get(Service, FIRST)
        return found is not None and found.metadata.uid != uid

    await eventually(remade, "it is there again")
    await rests(operator)
    written = {write.partition(" ")[2] for write in operator.writes[before:]}
    assert "services" in written
    assert not written & {"configmaps", "statefulsets"}


async def test_a_service_of_somebody_else_is_not_named(stage: Stage) -> None:
    """A foreign Service in the way is told of and stays as it is; no slurm.conf leads slurmctlds there."""
    port = {"port": 80, "protocol": "TCP"}
    meta = {"name": SECOND, "namespace": stage.namespace, "labels": {"mine": "yes"}}
    await stage.client.create(Service, {"metadata": meta, "spec": {"ports": [port]}})
    before = await stage.raw(Service, SECOND)
    operator = await stage.operator()
    await standbys(stage)
    said = await stage.says(Controller, "slurm", "NameTaken")
    assert f"Service {SECOND!r} " in said.message
    await operator.reconcile_again(3)
    assert await stage.raw(Service, SECOND) == before
    assert await stage.get(Service, FIRST) is not None
    assert await stage.get(ConfigMap, "slurm-config") is None
    assert await stage.get(StatefulSetDetails, "slurm-controller") is None
    await stage.delete(Service, SECOND)
    await operator.reconcile_again()
    await stage.says(Controller, "slurm", "Available")
    assert await hosts(stage) == by_service(stage, FIRST, SECOND)


async def as_older_versions_did(stage: Stage) -> None:
    """Make the children of a Controller as Slinky and older versions did: without these Services."""
    live = await stage.there(Controller, "slurm")
    found = Found({"keys": await stage.there(Secret, "keys")})
    kinds: dict[str, type[Object]] = {
        "Service": Service,
        "ConfigMap": ConfigMap,
        "StatefulSet": StatefulSetDetails,
    }
    for item in slurmctld.desired(SlurmCluster(live, by_pod=True), found, service_monitors=False).objects:
        if item["metadata"]["name"] not in (FIRST, SECOND):
            body = settle(item, None) if item["kind"] == "StatefulSet" else item
            manager = wellknown.FIELD_MANAGER
            await stage.client.create(kinds[item["kind"]], body, field_manager=manager)


async def test_a_running_pair_is_not_restarted_for_its_addresses(stage: Stage) -> None:
    """A cluster from before these Services runs on as it is, and names them with its next change."""
    await standbys(stage)
    await as_older_versions_did(stage)
    operator = await stage.operator()
    await stage.says(Controller, "slurm", "Available")
    await has_only(stage, FIRST, SECOND)
    await rests(operator)
    assert await hosts(stage) == by_pod(stage, FIRST, SECOND)
    assert (await stage.there(StatefulSetDetails, "slurm-controller")).metadata.generation == 1
    await stage.patch(Controller, "slurm", {"spec": {"extraConf": "SlurmctldTimeout=30"}})
    await stage.says(Controller, "slurm", "Restart", "Configured")
    await stage.says(Controller, "slurm", "Available")
    await rests(operator)
    assert await hosts(stage) == by_service(stage, FIRST, SECOND)
    assert (await stage.there(StatefulSetDetails, "slurm-controller")).metadata.generation == 2


async def test_a_stateful_set_made_anew_restarts_no_pod(stage: Stage) -> None:
    """Pods whose StatefulSet is gone are adopted by the next one as they are, with the names they know."""
    await standbys(stage)
    await as_older_versions_did(stage)
    async with stage.for_a_while():
        await stage.says(Controller, "slurm", "Available")
    before = {name: (await stage.there(Pod, name)).metadata.uid for name in (FIRST, SECOND)}
    old = (await stage.there(StatefulSetDetails, "slurm-controller")).metadata.uid
    await stage.client.delete(StatefulSetDetails, "slurm-controller", stage.namespace, propagation="Orphan")

    async def absent() -> bool:
        return await stage.get(StatefulSetDetails, "slurm-controller") is None

    await eventually(absent, "the StatefulSet is gone")
    operator = await stage.operator()

    async def adopted() -> bool:
        found = await stage.get(StatefulSetDetails, "slurm-controller")
        return found is not None and found.metadata.uid != old and found.status.ready_replicas == len(before)

    await eventually(adopted, "there is another one, with both pods")
    await stage.says(Controller, "slurm", "Available")
    await rests(operator)
    assert await hosts(stage) == by_pod(stage, FIRST, SECOND)
    assert {name: (await stage.there(Pod, name)).metadata.uid for name in before} == before


async def _observed(stage: Stage) -> bool:
    found = await stage.there(Controller, "slurm")
    return found.status.observed_generation == found.metadata.generation


async def test_what_waits_for_a_service_is_not_ready(stage: Stage) -> None:
    """While a Service is on its way out, a change waits for the next one, and is not said to be done."""
    operator = await stage.operator()
    await standbys(stage)
    await stage.says(Controller, "slurm", "Available")
    await stage.patch(Service, SECOND, {"metadata": {"finalizers": ["test/hold"]}})
    await stage.delete(Service, SECOND)
    await stage.says(Controller, "slurm", "RollingOut")
    await stage.patch(Controller, "slurm", {"spec": {"extraConf": "SlurmctldTimeout=30"}})
    await eventually(lambda: _observed(stage), "the operator has seen the change")
    await rests(operator)
    said = await stage.says(Controller, "slurm", "RollingOut")
    assert "Service of each slurmctld" in said.message
    assert (await stage.there(StatefulSetDetails, "slurm-controller")).metadata.generation == 1
    await stage.patch(Service, SECOND, {"metadata": {"finalizers": None}})
    await stage.says(Controller, "slurm", "Restart", "Configured")
    await stage.says(Controller, "slurm", "Available")
    assert await hosts(stage) == by_service(stage, FIRST, SECOND)
    assert (await stage.there(StatefulSetDetails, "slurm-controller")).metadata.generation == 2
