"""Which workers are of the newest revision, and what happens to the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_operator.api import NodeSet
from slurm_operator.controllers.nodeset.decide import messages
from slurm_operator.controllers.nodeset.decide.actions import RemovalCause
from slurm_operator.kube.models.kinds import ControllerRevision, Pod
from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.support.controllers.nodeset_namespace import Stage

HASH = "controller.kubernetes.io/hash"
ON_DELETE = {"type": "OnDelete"}


def features(number: int) -> dict[str, Any]:
    """Return a spec that is another revision for each number."""
    return {"extraConf": f"Features=f{number}"}


async def updated(stage: Stage, number: int) -> bool:
    """Return whether the status has seen the spec, and counts so many pods of its revision."""
    live = await stage.there(NodeSet, "blue")
    seen = live.status.observed_generation == live.metadata.generation
    return seen and live.status.updated_replicas == number


async def test_on_delete_waits_for_a_person(stage: Stage) -> None:
    """With OnDelete a new revision reaches a worker when somebody deletes it, and not before."""
    await stage.operator()
    await stage.nodeset(replicas=2, updateStrategy=ON_DELETE, **features(1))
    before = await stage.until_pods("blue-0", "blue-1")
    await stage.ready()
    await stage.nodeset(replicas=2, updateStrategy=ON_DELETE, **features(2))
    await eventually(lambda: updated(stage, 0), "the new revision is known")
    await stage.ready()
    assert {pod.metadata.uid for pod in (await stage.pods()).values()} == {
        pod.metadata.uid for pod in before.values()
    }
    await stage.delete(Pod, "blue-0")
    await eventually(lambda: updated(stage, 1), "the replacement is of the new revision")
    pods = await stage.pods()
    assert pods["blue-1"].metadata.uid == before["blue-1"].metadata.uid
    assert pods["blue-0"].metadata.labels[HASH] == (await stage.status()).node_set_hash
    assert pods["blue-1"].metadata.labels[HASH] == before["blue-1"].metadata.labels[HASH]


async def test_a_rolling_update_is_held_without_slurm(stage: Stage) -> None:
    """An update replaces no running worker while nobody can ask Slurm; going back ends the wait."""
    await stage.operator()
    await stage.nodeset(replicas=4, **features(1))
    before = await stage.until_pods(*(f"blue-{number}" for number in range(4)))
    await stage.ready()
    await stage.nodeset(replicas=4, **features(2))
    progressing = await stage.says(NodeSet, "blue", "NoConnection", "Progressing")
    assert messages.removing_for(RemovalCause.UPDATE, 1) in progressing.message
    await stage.until(
        lambda pods: sum(bool(pod.condition("SlurmSafeToDelete")) for pod in pods.values()) == 1,
        "one pod, a quarter of four, waits",
    )
    await stage.nodeset(replicas=4, **features(1))
    await stage.ready()
    pods = await stage.until(
        lambda pods: not any(pod.condition("SlurmSafeToDelete") for pod in pods.values()), "nobody waits"
    )
    assert {pod.metadata.uid for pod in pods.values()} == {pod.metadata.uid for pod in before.values()}


async def test_workers_that_never_ran_are_updated_without_slurm(stage: Stage) -> None:
    """Workers that no Kubernetes node took are replaced at once, since nothing can run in them."""
    nowhere = {"spec": {"nodeSelector": {"no": "such"}}}
    await stage.operator()
    await stage.nodeset(replicas=2, template=nowhere)
    await stage.until_pods("blue-0", "blue-1")
    await stage.nodeset(replicas=2, template=nowhere, **features(2))
    await eventually(lambda: updated(stage, 2), "both are of the new revision")


async def test_history_keeps_as_many_as_asked_and_knows_the_way_back(stage: Stage) -> None:
    """Old revisions stay up to the limit; an edit that goes back uses the old one again, as the newest."""
    await stage.operator()
    spec: dict[str, Any] = {"replicas": 0, "revisionHistoryLimit": 1}
    hashes = []
    for number in range(4):
        await stage.nodeset(**spec, **features(number))
        await stage.ready()
        hashes.append((await stage.status()).node_set_hash)

    async def kept(*wanted: str) -> bool:
        return [one.metadata.labels[HASH] for one in await stage.revisions()] == [*wanted]

    await eventually(lambda: kept(hashes[2], hashes[3]), "two revisions are left")
    await stage.nodeset(**spec, **features(2))
    await eventually(lambda: kept(hashes[3], hashes[2]), "the old one is the newest again")

    async def current() -> bool:
        return bool((await stage.status()).node_set_hash == hashes[2])

    await eventually(current, "the status names the old one")
    live = (await stage.revisions())[-1]
    await stage.delete(ControllerRevision, live.metadata.name)

    async def made_again() -> bool:
        found = [one for one in await stage.revisions() if one.metadata.labels[HASH] == hashes[2]]
        return bool(found) and found[0].metadata.uid != live.metadata.uid

    await eventually(made_again, "the revision in use is made again")


async def test_a_name_that_another_revision_has_is_counted_as_a_collision(stage: Stage) -> None:
    """Somebody else's revision under the name of ours gives ours another hash, and the status remembers."""
    await stage.nodeset(replicas=0, **features(1))
    async with stage.for_a_while():
        await stage.ready()
        first = (await stage.status()).node_set_hash
    (revision,) = await stage.revisions()
    await stage.delete(ControllerRevision, revision.metadata.name)
    await stage.client.create(
        ControllerRevision,
        {
            "metadata": {"name": revision.metadata.name, "namespace": stage.namespace, "labels": {"a": "b"}},
            "data": {"spec": "another"},
            "revision": 1,
        },
    )
    await stage.operator()

    async def collided() -> bool:
        status = await stage.status()
        return bool(status.collision_count == 1 and status.node_set_hash != first)

    await eventually(collided, "the collision is counted")


async def test_a_new_key_makes_workers_old(stage: Stage) -> None:
    """Workers that started with another key than the Secret has are replaced; other keys do not matter."""
    await stage.operator()
    nowhere = {"spec": {"nodeSelector": {"no": "such"}}}
    await stage.nodeset(replicas=1, template=nowhere)
    before = await stage.until_pods("blue-0")
    await stage.keys(jwt="another")
    await stage.nodeset(replicas=1, template=nowhere, minReadySeconds=1)
    await eventually(lambda: updated(stage, 1), "the change was seen")
    assert (await stage.pods())["blue-0"].metadata.uid == before["blue-0"].metadata.uid
    await stage.keys(slurm="another")
    await stage.until(
        lambda pods: bool(pods) and pods["blue-0"].metadata.uid != before["blue-0"].metadata.uid,
        "the worker has the new key",
    )
