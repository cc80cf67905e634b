"""What happens in between: a crash between two writes, a cache that is behind, somebody who is faster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.api import Controller
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers import loginset
from slurm_operator.controllers.controller import ControllerController
from slurm_operator.controllers.shared.owners import OwnerGoneError
from slurm_operator.controllers.workload.children import SELECTOR, Children
from slurm_operator.controllers.workload.decide.read_models import StatefulSetDetails
from slurm_operator.controllers.workload.decide.stuck import stuck_pods
from slurm_operator.kube.errors import AlreadyExists
from slurm_operator.kube.models.kinds import ConfigMap, Pod
from slurm_operator.objects import labels
from slurm_operator.objects.desired import Desired
from tests.support.controllers.workload_namespace import running
from tests.support.processes import eventually

if TYPE_CHECKING:
    from slurm_operator.controllers.shared.wiring import Wiring
    from slurm_operator.kube.models.meta import Key, Object
    from slurm_operator.kube.runtime import controller as runtime
    from tests.support.controllers.workload_namespace import Stage

FILES_HASH = "slinky.slurm.net/referenced-files-hash"


class Dying(ControllerController):
    """Comes to nothing after it has written the children, and never says so."""

    async def _say(self, *_: Any) -> None:
        await asyncio.get_running_loop().create_future()


async def files_hash(stage: Stage) -> str:
    template = (await stage.there(StatefulSetDetails, "slurm-controller")).spec.template_annotations
    return template[FILES_HASH]


async def test_a_restart_is_told_by_whoever_comes_next(stage: Stage) -> None:
    """An operator that dies between the write of a template and that of the status leaves a Restart told."""
    await stage.keys()
    await stage.config_map("gres", gres__conf="Name=gpu")
    await stage.controller(configFileRefs=[{"name": "gres"}])
    async with stage.for_a_while():
        await stage.says(Controller, "slurm", "Available")
        assert (await stage.says(Controller, "slurm", "Started", "Configured")).message
    before = await files_hash(stage)
    await stage.config_map("gres", gres__conf="Name=gpu Count=4")
    async with running(
        stage.config, stage.namespace, builds=(lambda wiring: Dying(wiring).controller,), grace=0.0
    ) as dying:

        async def written() -> bool:
            return await files_hash(stage) != before

        await eventually(written, "the template is another one")
        assert "apply statefulsets" in dying.writes
    async with stage.for_a_while() as operator:
        await stage.says(Controller, "slurm", "Available")
        said = await stage.says(Controller, "slurm", "Restart", "Configured")
        assert "; configuration " in said.message
        assert "files" in said.message
        assert "apply statefulsets" not in operator.writes


async def test_a_late_cache_deletes_no_new_pod(stage: Stage) -> None:
    """A pod of the newest version is not deleted because the cache names the version before it."""
    built: list[ControllerController] = []

    def build(wiring: Wiring) -> runtime.Controller:
        built.append(ControllerController(wiring))
        return built[0].controller

    await stage.keys()
    await stage.controller()
    async with running(stage.config, stage.namespace, builds=(build,)) as operator:
        await stage.says(Controller, "slurm", "Available")
        stale = await stage.there(StatefulSetDetails, "slurm-controller")
        first = await stage.there(Pod, "slurm-controller-0")
        nowhere = {"template": {"spec": {"nodeSelector": {"no-such": "node"}}}}
        await stage.patch(Controller, "slurm", {"spec": nowhere})
        pods = operator.wiring.manager.informer(Pod, labels=SELECTOR).store

        def replaced() -> bool:
            pod = pods.get(first.key)
            return pod is not None and pod.metadata.uid != first.metadata.uid

        await eventually(replaced, "the operator knows of the new pod")
        new = await stage.there(Pod, "slurm-controller-0")
        live = await stage.there(Controller, "slurm")
        assert stuck_pods(stale, pods.list(stage.namespace))
        await built[0]._unblock(live, stale)
        assert (await stage.there(Pod, "slurm-controller-0")).metadata.uid == new.metadata.uid
        assert "delete pods" not in operator.writes


class Overtaken(Children):
    """Looks for an object, finds none, and is overtaken by somebody who makes it."""

    rival: Stage

    async def _find(self, kind: type[Object], key: Key) -> Object | None:
        found = await super()._find(kind, key)
        if found is None:
            await self.rival.config_map(key.name, slurm__conf="ClusterName=theirs")
        return found


async def test_who_was_faster_keeps_the_object(stage: Stage) -> None:
    """An object that somebody makes between our look and our write is not touched, and then told of."""
    await stage.controller()
    live = await stage.there(Controller, "slurm")
    wish = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": labels.object_metadata(live, labels.SLURMCTLD, "slurm-config"),
        "data": {"slurm.conf": "ClusterName=ours"},
    }
    async with running(stage.config, stage.namespace, builds=(loginset.build,)) as operator:
        children = Overtaken(operator.wiring, ConfigMap)
        children.rival = stage
        done = await children.bring_about(live, Desired((wish,)), _announce)
        assert [type(error) for error in done.errors] == [AlreadyExists]
        assert done.troubles == []
        again = await children.bring_about(live, Desired((wish,)), _announce)
        assert [trouble.cause for trouble in again.troubles] == [Reason.NAME_TAKEN]
    found = await stage.there(ConfigMap, "slurm-config")
    assert found.data == {"slurm.conf": "ClusterName=theirs"}
    assert found.metadata.owner_references == ()


async def test_nothing_is_created_for_an_owner_that_is_gone(stage: Stage) -> None:
    """While the cache still has a deleted object, its children are not created again."""
    await stage.keys()
    await stage.controller()
    live = await stage.there(Controller, "slurm")
    wish = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": labels.object_metadata(live, labels.SLURMCTLD, "slurm-config"),
        "data": {"slurm.conf": "ClusterName=ours"},
    }
    async with running(stage.config, stage.namespace, builds=(loginset.build,)) as operator:
        children = Children(operator.wiring, ConfigMap)
        await stage.client.delete(Controller, "slurm", stage.namespace)
        with pytest.raises(OwnerGoneError):
            await children.bring_about(live, Desired((wish,)), _announce)
        # Another object of the same name is not the owner either.
        await stage.controller()
        with pytest.raises(OwnerGoneError):
            await children.bring_about(live, Desired((wish,)), _announce)
        assert operator.writes == []


async def _announce(*_: Any) -> None:
    raise AssertionError("a ConfigMap restarts nothing")


async def test_a_cluster_that_comes_piece_by_piece_starts_once(stage: Stage) -> None:
    """A NodeSet that is made right after its Controller is in the first slurm.conf, and restarts nothing."""
    await stage.operator()
    await stage.keys()
    await stage.controller()
    await stage.nodeset("gpu")
    await stage.says(Controller, "slurm", "Available")
    config = await stage.there(ConfigMap, "slurm-config")
    assert "gpu" in (config.data or {})["slurm.conf"]
    assert (await stage.there(StatefulSetDetails, "slurm-controller")).metadata.generation == 1
