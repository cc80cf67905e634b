"""When the API server does not say what became of a pod that was to be created or deleted."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

import msgspec
import pytest

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide.actions import CreatePod
from slurm_operator.kube.client.client import Client
from slurm_operator.kube.decide.expectations import EXPIRY, UNKNOWN_EXPIRY
from slurm_operator.kube.models.kinds import Pod
from slurm_operator.objects import labels
from slurm_operator.objects.slurmd import worker_template
from tests.support.controllers.action_runner import DRAINED, LEAVING, connected, observe_leaving, work
from tests.support.kube.scripted_server import Answer, reset, respond, serving, status
from tests.support.objects.golden_cases import DOMAIN
from tests.support.objects.resources import controller, found

if TYPE_CHECKING:
    from tests.support.controllers.action_runner import Hands
    from tests.support.slurm.hostile_server import HostileSlurmrestd

UNKNOWN = {
    "reset": reset,
    "500": respond(500, status(500, "InternalError")),
    "504": respond(504, status(504, "Timeout")),
}


@pytest.mark.parametrize("answer", UNKNOWN.values(), ids=UNKNOWN)
async def test_a_creation_without_an_answer_is_repeated(
    hostile: HostileSlurmrestd, hands: Hands, answer: Answer
) -> None:
    """The next reconcile may create the pod: its name is fixed, so a second attempt makes no second pod."""
    async with connected(hostile) as connection, serving() as server, Client(server.config()) as client:
        server.script = [answer]
        template = worker_template(LEAVING, controller(), found(), cluster_domain=DOMAIN)
        at_hand = dataclasses.replace(work(connection, observe_leaving(connection)), template=template)
        await hands.pods(client).create(at_hand, [CreatePod("gpu-1", ordinal=1)])
        assert [one.method for one in server.requests if "/pods?" in one.target] == ["POST"]
        assert len(at_hand.outcome.errors) == 1
        assert hands.expectations.satisfied(LEAVING.key, asyncio.get_running_loop().time())


@pytest.mark.parametrize("shown", [True, False])
async def test_a_pod_that_exists_is_expected_only_while_the_cache_does_not_show_it(
    hostile: HostileSlurmrestd, hands: Hands, *, shown: bool
) -> None:
    """A restarted operator may hear of the pod between its plan and the creation, and then no more."""
    names = {wellknown.LABEL_APP_INSTANCE: "gpu", wellknown.LABEL_APP_NAME: wellknown.APP_SLURMD}
    owners = [labels.owner_reference(LEAVING)]
    metadata = {"name": "gpu-1", "namespace": "slurm", "uid": "1", "labels": names, "ownerReferences": owners}
    existing = {"metadata": metadata, "spec": {}}
    if shown:
        hands.cached.put(msgspec.convert(existing, Pod))
    exists = respond(409, status(409, "AlreadyExists"))
    reads = respond(200, msgspec.json.encode(existing))
    async with connected(hostile) as connection, serving() as server, Client(server.config()) as client:
        server.script = [exists, reads]
        template = worker_template(LEAVING, controller(), found(), cluster_domain=DOMAIN)
        at_hand = dataclasses.replace(work(connection, observe_leaving(connection)), template=template)
        await hands.pods(client).create(at_hand, [CreatePod("gpu-1", ordinal=1)])
        assert [one.method for one in server.requests] == ["POST", "GET"]
    assert at_hand.outcome.errors == []
    now = asyncio.get_running_loop().time()
    assert hands.expectations.satisfied(LEAVING.key, now) is shown


@pytest.mark.parametrize("answer", UNKNOWN.values(), ids=UNKNOWN)
async def test_a_deletion_without_an_answer_is_expected_for_a_minute(
    hostile: HostileSlurmrestd, hands: Hands, answer: Answer
) -> None:
    """The pod may be gone, and so no other one is deleted meanwhile; what is to come has come by then."""
    hostile.add_nodes("gpu-0", *DRAINED)
    async with connected(hostile) as connection, serving() as server, Client(server.config()) as client:
        server.script = [answer]
        at_hand = work(connection, observe_leaving(connection))
        await hands.delete_with(client, at_hand)
        assert [one.method for one in server.requests if "/pods/" in one.target] == ["DELETE"]
        assert hands.expectations.pending(LEAVING.key).deletions == ("uid-0",)
        expiry = hands.expectations.expires_in(LEAVING.key, asyncio.get_running_loop().time())
        assert expiry is not None
        assert UNKNOWN_EXPIRY - 5 < expiry <= UNKNOWN_EXPIRY < EXPIRY
