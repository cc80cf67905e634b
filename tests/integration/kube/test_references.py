"""Named Secrets, each watched by its name, on a real API server."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.kube.cache.referenced_objects import (
    PER_NAMESPACE,
    Budget,
    ReferencedObjects,
    Referrer,
    enqueue_owners,
)
from slurm_operator.kube.client.auth import bearer_token
from slurm_operator.kube.client.client import Client, PatchType
from slurm_operator.kube.client.config import ClientConfig, load_config
from slurm_operator.kube.client.tls import tls_context
from slurm_operator.kube.errors import KubeError
from slurm_operator.kube.models.kinds import Secret
from slurm_operator.kube.models.meta import Key
from slurm_operator.kube.process import metrics
from slurm_operator.kube.runtime.controller import Controller
from slurm_operator.kube.runtime.manager import Manager
from tests.support.kube.informer_checks import HASTY, wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from kubebox import Box
    from kubebox.pytest_plugin import BoxFactory

NAME = "token"


class Bed:
    """References that run, and the owners that heard of a change."""

    def __init__(self, client: Client, namespaces: Sequence[str] = (), budget: Budget | None = None) -> None:
        self.client = client
        self.references = ReferencedObjects(
            client, Secret, namespaces=namespaces, timing=HASTY, budget=budget, poll_seconds=0.2
        )
        self.heard: Counter[Key] = Counter()
        self.references.changes.subscribe(lambda event: self.heard.update(enqueue_owners(NAME)(event)))

    async def value(self, key: Key) -> bytes | None:
        """Return what the Secret holds as the references know it, None if it does not exist."""
        found = await self.references.get(key)
        return None if found is None else (found.data or {}).get("k")


@asynccontextmanager
async def running(bed: Bed) -> AsyncIterator[Bed]:
    task = asyncio.create_task(bed.references.run())
    try:
        yield bed
        assert not task.done(), "run() ended"
    finally:
        task.cancel()
        await asyncio.wait({task})


@pytest.fixture
async def bed(client: Client) -> AsyncIterator[Bed]:
    async with running(Bed(client)) as found:
        yield found


def secret(key: Key, value: str) -> dict[str, Any]:
    data = {"k": base64.b64encode(value.encode()).decode()}
    return {"metadata": {"name": key.name, "namespace": key.namespace}, "data": data}


async def put(client: Client, key: Key, value: str) -> None:
    await client.apply(Secret, secret(key, value), field_manager="tests")


def watches(kind: str = "Secret") -> float:
    """Return how many watches of Secrets have been opened in this process so far."""
    labels = {"kind": kind, "reason": "initial"}
    return metrics.REGISTRY.get_sample_value("slurm_operator_informer_relists_total", labels) or 0.0


def cached() -> float:
    return metrics.REGISTRY.get_sample_value("slurm_operator_cache_objects", {"kind": "Secret"}) or 0.0


async def test_a_life(bed: Bed, client: Client, kube_namespace: str) -> None:
    """An owner hears of the creation, the change, the deletion and the return of what it wants."""
    key, owner = Key(kube_namespace, "key"), Key(kube_namespace, "me")
    bed.references.want(Referrer(NAME, owner), [key])
    assert await bed.value(key) is None

    await put(client, key, "one")
    await wait_until(lambda: bed.heard[owner] == 1, "the creation is heard")
    assert await bed.value(key) == b"one"

    await put(client, key, "two")
    await wait_until(lambda: bed.heard[owner] == 2, "the change is heard")
    assert await bed.value(key) == b"two"

    await client.delete(Secret, key.name, key.namespace)
    await wait_until(lambda: bed.heard[owner] == 3, "the deletion is heard")
    assert await bed.value(key) is None

    await put(client, key, "three")
    await wait_until(lambda: bed.heard[owner] == 4, "the return is heard")
    assert await bed.value(key) == b"three"


async def test_only_what_is_named(bed: Bed, client: Client, kube_namespace: str) -> None:
    """Other Secrets of the namespace never reach this process."""
    key, other = Key(kube_namespace, "key"), Key(kube_namespace, "other")
    await put(client, other, "hidden")
    await put(client, key, "seen")
    bed.references.want(Referrer(NAME, key), [key])
    assert await bed.value(key) == b"seen"
    assert bed.references._watched[key].informer.store.keys() == [key]
    with pytest.raises(LookupError, match=r"call want\(\) before get\(\)"):
        await bed.value(other)


async def test_the_first_answer_is_no_news(bed: Bed, client: Client, kube_namespace: str) -> None:
    """Who waits for the first answer gets it from get() and is not woken a second time for it."""
    key, late = Key(kube_namespace, "key"), Key(kube_namespace, "late")
    await put(client, key, "one")
    bed.references.want(Referrer(NAME, key), [key])
    assert await bed.value(key) == b"one"
    bed.references.want(Referrer(NAME, late), [late])
    assert await bed.value(late) is None
    await put(client, late, "x")
    await wait_until(lambda: bed.heard[late] == 1, "a later change is heard")
    assert bed.heard[key] == 0


async def test_an_owner_switches(bed: Bed, client: Client, kube_namespace: str) -> None:
    """What an owner no longer wants is not watched any more, and what it wants now is."""
    old, new, owner = Key(kube_namespace, "old"), Key(kube_namespace, "new"), Key(kube_namespace, "me")
    await put(client, old, "old")
    await put(client, new, "new")
    bed.references.want(Referrer(NAME, owner), [old])
    assert await bed.value(old) == b"old"
    bed.references.want(Referrer(NAME, owner), [new])
    assert await bed.value(new) == b"new"
    assert bed.references.watched == {new}
    await put(client, old, "old again")
    await put(client, new, "new again")
    await wait_until(lambda: bed.heard[owner] == 1, "the change of the new one is heard")
    assert await bed.value(new) == b"new again"
    assert bed.heard[owner] == 1


async def test_a_hundred_owners(bed: Bed, client: Client, kube_namespace: str) -> None:
    """A hundred owners of one Secret are one watch, and each of them hears of a change."""
    key = Key(kube_namespace, "key")
    owners = [Key(kube_namespace, f"t{number}") for number in range(100)]
    await put(client, key, "one")
    before = watches()
    for owner in owners:
        bed.references.want(Referrer(NAME, owner), [key])
    assert [await bed.value(key) for _ in owners] == [b"one"] * 100
    assert watches() - before == 1
    assert len(bed.references._tasks) == 1
    await put(client, key, "two")
    await wait_until(lambda: bed.heard == Counter(owners), "each owner heard once")


async def test_equal_names_of_two_controllers(bed: Bed, client: Client, kube_namespace: str) -> None:
    """Owners of the same name in two controllers are two owners: one may leave and the other still hears."""
    key, same = Key(kube_namespace, "key"), Key(kube_namespace, "same")
    others: list[Key] = []
    bed.references.changes.subscribe(lambda event: others.extend(enqueue_owners("cluster")(event)))
    bed.references.want(Referrer(NAME, same), [key])
    bed.references.want(Referrer("cluster", same), [key])
    assert await bed.value(key) is None
    bed.references.want(Referrer(NAME, same), [])
    await put(client, key, "one")
    await wait_until(lambda: others == [same], "the other controller's owner heard")
    assert bed.heard[same] == 0


async def test_release(bed: Bed, client: Client, kube_namespace: str) -> None:
    """The last owner that leaves ends the watch, and nothing of the Secret stays in memory."""
    key, other = Key(kube_namespace, "key"), Key(kube_namespace, "other")
    await put(client, key, "one")
    before = cached()
    owners = [Referrer(NAME, Key(kube_namespace, "a")), Referrer(NAME, Key(kube_namespace, "b"))]
    for owner in owners:
        bed.references.want(owner, [key])
    assert await bed.value(key) == b"one"
    assert cached() == before + 1
    task = bed.references._watched[key].task
    assert task is not None
    bed.references.want(owners[0], [])
    assert await bed.value(key) == b"one"
    bed.references.want(owners[1], [])
    await wait_until(task.done, "the watch ends")
    await wait_until(lambda: cached() == before, "the gauge forgets it")
    assert not bed.references.watched
    # A later request starts again.
    bed.references.want(owners[0], [key, other])
    assert await bed.value(key) == b"one"
    assert await bed.value(other) is None


async def test_wishes_before_the_start(client: Client, kube_namespace: str) -> None:
    """What was wanted before run() is watched as soon as it runs, and nothing is asked before."""
    key = Key(kube_namespace, "key")
    await put(client, key, "one")
    bed, before = Bed(client), watches()
    bed.references.want(Referrer(NAME, key), [key])
    with pytest.raises(KubeError, match=rf"Secret {kube_namespace}/key .*has not answered yet"):
        await bed.references.get(key, timeout=0.0)
    assert watches() == before
    async with running(bed):
        assert await bed.value(key) == b"one"
        await wait_until(lambda: bed.heard[key] == 1, "who asked in vain hears that there is an answer")


async def test_end(client: Client, kube_namespace: str) -> None:
    """When run() is cancelled, no watch goes on."""
    bed = Bed(client)
    async with running(bed):
        for number in range(5):
            bed.references.want(Referrer(NAME, Key("", str(number))), [Key(kube_namespace, f"s{number}")])
            assert await bed.value(Key(kube_namespace, f"s{number}")) is None
        tasks = [*bed.references._tasks]
    assert len(tasks) == 5
    assert all(task.done() for task in tasks)


async def test_confined_to_namespaces(client: Client, kube_namespace: str) -> None:
    """An object outside of the operator's namespaces is not watched, and get() names it and says why."""
    inside, outside = Key(kube_namespace, "key"), Key("default", "key")
    await put(client, inside, "one")
    async with running(Bed(client, namespaces=[kube_namespace])) as bed:
        bed.references.want(Referrer(NAME, inside), [inside, outside])
        assert await bed.value(inside) == b"one"
        with pytest.raises(KubeError, match=rf"Secret default/key is outside of .*\({kube_namespace}\)"):
            await bed.value(outside)
        assert bed.references.watched == {inside}


async def test_refused_by_rbac(kube_box: Box, client: Client, kube_namespace: str) -> None:
    """Without the right to read an object get() names it and the refusal at once, and its owner is woken
    when the right, for this one name, is granted."""
    key, owner = Key(kube_namespace, "key"), Key(kube_namespace, "me")
    await put(client, key, "one")
    way_in = await service_account(client, kube_box, kube_namespace)
    async with Client(way_in) as limited, running(Bed(limited)) as bed:
        bed.references.want(Referrer(NAME, owner), [key])
        with pytest.raises(KubeError, match=rf"Secret {key} .*Forbidden.*cannot list resource"):
            await bed.references.get(key, timeout=3600.0)
        await grant(client, key)
        await wait_until(lambda: bed.heard[owner] >= 1, "the owner hears that the object can be read")
        assert await bed.value(key) == b"one"
        seen = bed.heard[owner]
        await put(client, key, "two")
        await wait_until(lambda: bed.heard[owner] > seen, "and of its changes")


async def service_account(client: Client, box: Box, namespace: str) -> ClientConfig:
    """Make a service account without any right and return the way in as it."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await client.raw("POST", accounts, body={"metadata": {"name": "poor"}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = json.loads(await client.raw("POST", f"{accounts}/poor/token", body=request))
    return ClientConfig(
        server=box.server,
        ssl=tls_context(ca_file=box.ca_file, where="test"),
        namespace=namespace,
        auth=bearer_token(answer["status"]["token"]),
    )


async def grant(client: Client, key: Key) -> None:
    """Let the service account list and watch the Secret of one name."""
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{key.namespace}"
    rule = {
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": [key.name],
        "verbs": ["list", "watch"],
    }
    await client.raw("POST", f"{rbac}/roles", body={"metadata": {"name": "one"}, "rules": [rule]})
    await client.raw(
        "POST",
        f"{rbac}/rolebindings",
        body={
            "metadata": {"name": "one"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "one"},
            "subjects": [{"kind": "ServiceAccount", "name": "poor", "namespace": key.namespace}],
        },
    )


async def test_the_server_restarts(kube_box_factory: BoxFactory) -> None:
    """After an API server was away, every reference is current again and changes are heard."""
    box = kube_box_factory()
    async with Client(load_config(box.kubeconfig)) as client, running(Bed(client)) as bed:
        keys = [Key("default", f"s{number}") for number in range(10)]
        for key in keys:
            await put(client, key, "before")
            bed.references.want(Referrer(NAME, key), [key])
            assert await bed.value(key) == b"before"
        await asyncio.to_thread(box.stop, "kube-apiserver")
        absent = Key("default", "wanted-meanwhile")
        bed.references.want(Referrer(NAME, absent), [absent])
        with pytest.raises(KubeError, match=f"Secret {absent} "):
            await bed.references.get(absent, timeout=0.5)
        await asyncio.to_thread(box.start, "kube-apiserver")
        await wait_until(lambda: bed.heard[absent] == 1, "who asked in vain hears that there is an answer")
        assert await bed.value(absent) is None
        for key in keys:
            await put(client, key, "after")
        await wait_until(lambda: bed.heard == Counter([absent, *keys]), "each change is heard once")
        assert [await bed.value(key) for key in keys] == [b"after"] * 10


async def test_with_a_controller_and_a_standby(client: Client, kube_namespace: str) -> None:
    """Only a leading replica watches: a standby opens nothing, and with the lease it reconciles and hears."""
    key = Key(kube_namespace, "key")
    references = ReferencedObjects(client, Secret, timing=HASTY)
    values: list[bytes | None] = []

    async def reconcile(owner: Key) -> None:
        references.want(Referrer(NAME, owner), [key])
        found = await references.get(key)
        values.append(None if found is None else (found.data or {}).get("k"))

    elector = Standby()
    manager = Manager(client, namespaces=[kube_namespace], elector=elector)
    manager.add_runnable(references.run, name="references", leader_only=True)
    controller = manager.add(
        Controller("test", reconcile).watch_channel(references.changes, enqueue_owners(NAME))
    )
    stop, before = asyncio.Event(), watches()
    controller.queue.add(Key(kube_namespace, "me"))
    run = asyncio.create_task(manager.run(stop))
    await wait_until(elector.waiting.is_set, "the replica waits for the lease")
    assert (watches() - before, values) == (0, [])
    elector.leading.set()
    await wait_until(lambda: values == [None], "reconciled")
    await client.create(Secret, secret(key, "one"))
    await wait_until(lambda: values == [None, b"one"], "its appearance brings the owner back")
    await client.patch(Secret, key.name, key.namespace, secret(key, "two"), type=PatchType.MERGE)
    await wait_until(lambda: values == [None, b"one", b"two"], "and so does its change")
    stop.set()
    await run
    assert not references._tasks


class Standby:
    """A replica that leads when the test says so."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        self.waiting, self.leading = asyncio.Event(), asyncio.Event()

    async def acquire(self) -> None:
        self.waiting.set()
        await self.leading.wait()

    async def release(self, *, free: bool = True) -> None:
        del free


# ----------------------------------------------------------------------------------- more than can be watched
async def test_a_life_without_a_watch(client: Client, kube_namespace: str) -> None:
    """An owner of an object beyond the bound hears of its creation, its change and its deletion, too."""
    key, owner = Key(kube_namespace, "key"), Key(kube_namespace, "me")
    async with running(Bed(client, budget=Budget(0, 0))) as bed:
        before = watches()
        bed.references.want(Referrer(NAME, owner), [key])
        assert bed.references.polled == {key}
        assert await bed.value(key) is None
        await put(client, key, "one")
        await wait_until(lambda: bed.heard[owner] >= 1, "an owner heard")
        assert await bed.value(key) == b"one"
        await put(client, key, "two")
        await wait_until(lambda: bed.heard[owner] >= 2, "an owner heard")
        assert await bed.value(key) == b"two"
        await client.delete(Secret, key.name, key.namespace)
        await wait_until(lambda: bed.heard[owner] >= 3, "an owner heard")
        assert await bed.value(key) is None
        assert bed.heard == {owner: 3}, "a read that finds nothing new tells nobody"
        assert watches() == before


async def test_a_free_watch_goes_to_an_object_without_one(client: Client, kube_namespace: str) -> None:
    """When a watched object is released, one that was read in turn is watched, and its owner hears of it."""
    first, second = Key(kube_namespace, "first"), Key(kube_namespace, "second")
    me, you = Key(kube_namespace, "me"), Key(kube_namespace, "you")
    await put(client, second, "one")
    async with running(Bed(client, budget=Budget(1, 1))) as bed:
        bed.references.want(Referrer(NAME, me), [first])
        bed.references.want(Referrer(NAME, you), [second])
        assert bed.references.polled == {second}
        assert await bed.value(second) == b"one"
        bed.references.want(Referrer(NAME, me), [])
        assert bed.references.polled == frozenset()
        await wait_until(lambda: bed.heard[you] >= 1, "an owner heard")
        assert await bed.value(second) == b"one"
        await put(client, second, "two")
        await wait_until(lambda: bed.heard[you] >= 2, "an owner heard")
        assert await bed.value(second) == b"two"


async def test_a_tenant_who_names_a_thousand_secrets_has_a_few_watches(
    client: Client, kube_namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The connections are bounded, another namespace has its own watch, and everything is answered."""
    names = [Key(kube_namespace, f"s{number}") for number in range(1000)]
    other = Key("default", "somebody-elses")
    async with running(Bed(client)) as bed:
        before, began = watches(), asyncio.get_running_loop().time()
        bed.references.want(Referrer(NAME, Key(kube_namespace, "greedy")), names)
        bed.references.want(Referrer(NAME, Key("default", "modest")), [other])
        assert await bed.references.get(other) is None
        answered = asyncio.get_running_loop().time() - began
        assert other not in bed.references.polled
        assert len(bed.references.polled) == 1000 - PER_NAMESPACE
        watched = min(set(names) - bed.references.polled)
        assert await bed.references.get(watched, timeout=60) is None
        await wait_until(lambda: watches() - before == PER_NAMESPACE + 1, "the watches")
    with capsys.disabled():
        sys.stdout.write(f" [1,000 Secrets: {PER_NAMESPACE} watches, the other answered in {answered:.2f} s]")
