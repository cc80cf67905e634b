"""Controllers on a real control plane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_operator.api import Accounting, Controller, NodeSet
from slurm_operator.controllers.workload.decide.read_models import StatefulSetDetails
from slurm_operator.kube.models.kinds import ConfigMap, Pod, Secret, Service
from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.support.controllers.workload_namespace import Stage


async def slurm_conf(stage: Stage, name: str = "slurm") -> str:
    found = await stage.get(ConfigMap, f"{name}-config")
    return "" if found is None else (found.data or {})["slurm.conf"]


async def conf_has(stage: Stage, line: str, *, there: bool = True) -> None:
    async def reached() -> bool:
        return (line in (await slurm_conf(stage)).splitlines()) is there

    await eventually(reached, f"slurm.conf {'has' if there else 'lacks'} {line}")


async def generation(stage: Stage) -> int:
    return (await stage.there(StatefulSetDetails, "slurm-controller")).metadata.generation


async def rolled_out(stage: Stage, number: int) -> None:
    """Wait until the StatefulSet has been written so often, no more, and its pods run; it is told before."""

    async def written() -> bool:
        return await generation(stage) >= number

    await eventually(written, f"the StatefulSet is version {number}")
    await stage.says(Controller, "slurm", "Available")
    assert await generation(stage) == number


async def test_difference_2_installed_without_a_second_rollout(stage: Stage) -> None:
    """From nothing to Ready the StatefulSet is written once, and its pod is the active one."""
    operator = await stage.operator()
    await stage.keys()
    await stage.nodeset("workers")
    await stage.controller()
    ready = await stage.says(Controller, "slurm", "Available")
    assert "1 of 1 pods" in ready.message
    await operator.reconcile_again(3)
    assert await generation(stage) == 1
    pod = await stage.there(Pod, "slurm-controller-0")
    selector = (await stage.there(Service, "slurm-controller")).spec.selector or {}
    assert selector.items() <= pod.metadata.labels.items()
    assert "controller.slinky.slurm.net/active" in selector


async def test_difference_10_missing_references_are_named_and_heal(stage: Stage) -> None:
    """Every missing object is named, Services are made, and the last that appears starts slurmctld."""
    await stage.operator()
    jwks = {"name": "jwks", "key": "jwks.json"}
    await stage.controller(
        configFileRefs=[{"name": "gres"}], accountingRef={"name": "slurm"}, jwksKeyRef=jwks
    )
    missing = await stage.says(Controller, "slurm", "MissingReference")
    for word in ("'keys'", "'gres'", "Accounting 'slurm'"):
        assert word in missing.message
    assert await stage.get(Service, "slurm-controller-internal") is not None
    assert await stage.get(Service, "slurm-controller") is not None
    assert await stage.get(StatefulSetDetails, "slurm-controller") is None
    await stage.keys()
    await stage.config_map("gres", gres__conf="Name=gpu")
    await eventually(lambda: _degraded_names(stage, "'jwks'"), "the key set is named")
    await stage.config_map("jwks", jwks__json="{}")

    async def only_accounting() -> bool:
        found = await stage.condition(Controller, "slurm")
        return found is not None and "Accounting" in found.message and "'jwks'" not in found.message

    await eventually(only_accounting, "only the Accounting is missing")
    await stage.password("p")
    await stage.accounting()
    await stage.says(Controller, "slurm", "Available")
    await conf_has(stage, "AccountingStorageHost=slurm-accounting")


async def test_deleted_reference_restarts_nothing(stage: Stage) -> None:
    """A ConfigMap, key or Accounting that is deleted changes no object, nor does its return."""
    await stage.operator()
    await stage.keys()
    await stage.config_map("gres", gres__conf="Name=gpu")
    elsewhere = {"host": "dbd.example.com", "port": 7031}
    await stage.accounting(external=True, externalConfig=elsewhere)
    await stage.controller(configFileRefs=[{"name": "gres"}], accountingRef={"name": "slurm"})
    await stage.says(Controller, "slurm", "Available")
    before = await stage.children()
    await stage.delete(ConfigMap, "gres")
    gone = await stage.says(Controller, "slurm", "MissingReference")
    assert "spec.configFileRefs[0]: ConfigMap 'gres' " in gone.message
    assert "Meanwhile slurmctld " in gone.message
    await stage.delete(Secret, "keys")
    await eventually(lambda: _degraded_names(stage, "'keys'"), "the key is named too")
    await stage.config_map("gres", gres__conf="Name=gpu")
    await stage.keys()
    await stage.says(Controller, "slurm", "Available")
    await stage.delete(Accounting, "slurm")
    await eventually(lambda: _degraded_names(stage, "Accounting 'slurm'"), "the Accounting is named")
    assert await stage.children() == before
    await stage.accounting(external=True, externalConfig=elsewhere)
    await stage.says(Controller, "slurm", "Available")
    assert await stage.children() == before


async def _degraded_names(stage: Stage, word: str) -> bool:
    found = await stage.condition(Controller, "slurm", "Degraded")
    return found is not None and word in found.message


async def test_difference_1_changed_content_restarts_once(stage: Stage) -> None:
    """Other content of a file, a script, a key set or a key restarts slurmctld exactly once, and is named."""
    await stage.operator()
    await stage.keys()
    await stage.config_map("gres", gres__conf="Name=gpu")
    await stage.config_map("prologs", prolog__sh="exit 0")
    await stage.config_map("jwks", jwks__json="{}")
    await stage.controller(
        configFileRefs=[{"name": "gres"}],
        prologScriptRefs=[{"name": "prologs"}],
        jwksKeyRef={"name": "jwks", "key": "jwks.json"},
    )
    await stage.says(Controller, "slurm", "Available")
    started = await stage.says(Controller, "slurm", "Started", "Configured")
    assert started.status == "True"
    changes: list[tuple[str, Any]] = [
        ("ConfigMap 'gres'", lambda: stage.config_map("gres", gres__conf="Name=gpu Count=4")),
        ("ConfigMap 'prologs'", lambda: stage.config_map("prologs", prolog__sh="exit 1")),
        ("ConfigMap 'jwks'", lambda: stage.config_map("jwks", jwks__json='{"keys": []}')),
        ("Secret 'keys'", lambda: stage.keys(jwt="rotated")),
    ]
    for number, (name, change) in enumerate(changes, start=2):
        await change()

        async def said(name: str = name) -> bool:
            found = await stage.condition(Controller, "slurm", "Configured")
            return found is not None and found.reason == "Restart" and name in found.message

        await eventually(said, f"a restart because of {name}")
        await rolled_out(stage, number)


async def test_in_place_reconfigure(stage: Stage) -> None:
    """With inplaceReconfigure changed files restart nothing, and the condition says so; a key does."""
    await stage.operator()
    await stage.keys()
    await stage.config_map("gres", gres__conf="Name=gpu")
    await stage.controller(configFileRefs=[{"name": "gres"}], inplaceReconfigure=True)
    await stage.says(Controller, "slurm", "Available")
    await stage.config_map("gres", gres__conf="Name=gpu Count=4")
    said = await stage.says(Controller, "slurm", "Reconfigure", "Configured")
    await stage.tells("Controller", "Normal", "ConfigurationChanged", "Reconfigure")
    assert "ConfigMap 'gres'" in said.message
    await stage.nodeset("workers")
    await conf_has(stage, "NodeSet=workers Feature=workers")

    async def names_slurm_conf() -> bool:
        found = await stage.condition(Controller, "slurm", "Configured")
        return found is not None and "in slurm.conf;" in found.message

    await eventually(names_slurm_conf, "slurm.conf is named")
    assert await generation(stage) == 1
    await stage.keys(slurm="rotated")
    await stage.says(Controller, "slurm", "Restart", "Configured")
    await rolled_out(stage, 2)


async def test_change_while_the_operator_was_away(stage: Stage) -> None:
    """An operator that starts after a file changed sees that it did, by the digest in the condition."""
    await stage.keys()
    await stage.config_map("gres", gres__conf="Name=gpu")
    await stage.controller(configFileRefs=[{"name": "gres"}], inplaceReconfigure=True)
    async with stage.for_a_while():
        await stage.says(Controller, "slurm", "Available")
    await stage.config_map("gres", gres__conf="Name=gpu Count=4")
    async with stage.for_a_while() as operator:
        await stage.says(Controller, "slurm", "Reconfigure", "Configured")
        assert operator.writes.count("apply controllers/status") == 1


async def test_difference_8_node_sets_and_accounting_are_told_about(stage: Stage) -> None:
    """NodeSets that come and go and an external Accounting are in slurm.conf at once."""
    operator = await stage.operator()
    await stage.keys()
    await stage.controller(accountingRef={"name": "slurm"})
    await stage.accounting(external=True, externalConfig={"host": "dbd.example.com", "port": 7031})
    await conf_has(stage, "AccountingStorageHost=dbd.example.com")
    await conf_has(stage, "AccountingStoragePort=7031")
    await stage.nodeset("gpu", replicas=2000)
    await conf_has(stage, "NodeSet=gpu Feature=gpu")
    await conf_has(stage, "MaxNodeCount=2048")
    await stage.says(Controller, "slurm", "Available")
    await operator.reconcile_again(2)
    generation = (await stage.there(StatefulSetDetails, "slurm-controller")).metadata.generation
    await stage.nodeset("gpu", replicas=10)
    node_sets = operator.wiring.manager.informer(NodeSet).store
    await eventually(lambda: [one.spec.replicas for one in node_sets.list()] == [10], "the operator knows")
    await operator.reconcile_again(2)
    await conf_has(stage, "MaxNodeCount=2048")
    assert (await stage.there(StatefulSetDetails, "slurm-controller")).metadata.generation == generation
    await stage.delete(NodeSet, "gpu")
    await conf_has(stage, "NodeSet=gpu Feature=gpu", there=False)
    await conf_has(stage, "MaxNodeCount=2048")


async def test_external_controller(stage: Stage) -> None:
    """A Controller that becomes external keeps its configuration and loses its pods; and back."""
    await stage.operator()
    await stage.keys()
    await stage.controller()
    await stage.says(Controller, "slurm", "Available")
    external = {"external": True, "externalConfig": {"host": "ctl.example.com", "port": 7000}}
    await stage.patch(Controller, "slurm", {"spec": external})
    await stage.says(Controller, "slurm", "External")
    await conf_has(stage, "SlurmctldHost=ctl.example.com")

    async def gone() -> bool:
        return (
            await stage.get(StatefulSetDetails, "slurm-controller") is None
            and await stage.get(Service, "slurm-controller") is None
            and await stage.get(Service, "slurm-controller-internal") is None
        )

    await eventually(gone, "what ran here is removed")
    await stage.patch(Controller, "slurm", {"spec": {"external": False}})
    await stage.says(Controller, "slurm", "Available")


async def test_stateful_set_with_another_service_is_made_anew_around_its_pods(stage: Stage) -> None:
    """A StatefulSet of an older version is replaced, and the pod with slurmctld in it runs on."""
    await stage.keys()
    await stage.controller()
    async with stage.for_a_while():
        await stage.says(Controller, "slurm", "Available")
    # What an older version made: the same pods under a StatefulSet with another Service.
    old = await stage.raw(StatefulSetDetails, "slurm-controller")
    await stage.client.delete(StatefulSetDetails, "slurm-controller", stage.namespace, propagation="Orphan")
    await eventually(lambda: _absent(stage), "the old one is gone")
    body = {"metadata": old["metadata"], "spec": old["spec"] | {"serviceName": "older"}}
    for name in ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"):
        body["metadata"].pop(name, None)
    await stage.client.create(StatefulSetDetails, body)
    pod = await stage.there(Pod, "slurm-controller-0")
    await stage.operator()

    async def replaced() -> bool:
        found = await stage.get(StatefulSetDetails, "slurm-controller")
        return found is not None and found.spec.service_name == "slurm-controller-internal"

    await eventually(replaced, "the StatefulSet has the right Service")
    await stage.says(Controller, "slurm", "Available")
    assert (await stage.there(Pod, "slurm-controller-0")).metadata.uid == pod.metadata.uid


async def _absent(stage: Stage) -> bool:
    return await stage.get(StatefulSetDetails, "slurm-controller") is None


async def test_name_taken_by_somebody_else(stage: Stage) -> None:
    """An object that this operator did not make is left as it is and named; all else goes on."""
    await stage.config_map("slurm-config", mine="yes")
    await stage.operator()
    await stage.keys()
    await stage.controller()
    said = await stage.says(Controller, "slurm", "NameTaken")
    assert "ConfigMap 'slurm-config' " in said.message
    assert (await stage.there(ConfigMap, "slurm-config")).data == {"mine": "yes"}
    assert await stage.get(Service, "slurm-controller") is not None


async def test_mistake_in_the_pod_template_can_be_mended(stage: Stage) -> None:
    """A pod that can never start does not keep the corrected one from being made."""
    await stage.operator()
    await stage.keys()
    await stage.controller(template={"spec": {"nodeSelector": {"example.com/none": "x"}}})
    await eventually(lambda: stage.get(Pod, "slurm-controller-0"), "the pod is made")
    await stage.controller(template={"spec": {}})
    await stage.says(Controller, "slurm", "Available")
