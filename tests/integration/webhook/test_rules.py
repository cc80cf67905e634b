"""Every rule, through a real API server: what it refuses, warns of, and stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.webhook.rule_results import validated
from tests.support.webhook.rule_table import ALLOWED, DENIED, WARNED
from tests.support.webhook.served_webhook import SKIP

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.webhook.rule_cases import Case
    from tests.support.webhook.served_webhook import Answer, Server, Stage


class Written:
    """Writes cases to the API server, as dry runs, and takes away what they needed."""

    def __init__(self, server: Server) -> None:
        self.namespace = server.namespace
        self._server = server
        self._made: list[dict[str, Any]] = []

    async def make(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self._server.create(body)
        assert answer.status == 201, answer.body
        self._made.append(body)
        return answer.body

    async def send(self, case: Case) -> Answer:
        for other in case.others:
            await self.make(other)
        if case.old is None:
            return await self._server.apply(case.new, dryRun="All")
        metadata = case.old["metadata"] | {"annotations": {SKIP: ""}}
        stored = await self.make(case.old | {"metadata": metadata})
        version = {"resourceVersion": stored["metadata"]["resourceVersion"]}
        return await self._server.replace(
            case.new | {"metadata": case.new["metadata"] | version}, dryRun="All"
        )

    async def clean(self) -> None:
        for body in self._made:
            # A claim is protected, and there is no controller here to say that nobody uses it.
            await self._server.patch(body, {"metadata": {"finalizers": None}})
            await self._server.delete(body)


@pytest.fixture
async def write(shared_stage: Stage) -> AsyncIterator[Written]:
    written = Written(shared_stage.server)
    yield written
    await written.clean()


@pytest.mark.parametrize("case", DENIED, ids=str)
async def test_denied(write: Written, case: Case) -> None:
    """The API server refuses the write, and passes on the field and the message."""
    answer = await write.send(case)
    assert answer.status == 422, answer
    assert list(answer.causes) == [case.path]
    (error,), _ = validated(case, write.namespace)
    assert (case.crd or error.message) in answer.causes[case.path]
    assert f"{case.path}: " in answer.body["message"]


@pytest.mark.parametrize("case", WARNED, ids=str)
async def test_warned(write: Written, case: Case) -> None:
    """The API server accepts the write and passes the warning on."""
    answer = await write.send(case)
    assert answer.status in (200, 201), answer
    assert tuple(answer.warnings) == validated(case, write.namespace)[1]


@pytest.mark.parametrize("case", ALLOWED, ids=str)
async def test_allowed(write: Written, case: Case) -> None:
    """The API server accepts the write and says nothing."""
    answer = await write.send(case)
    assert answer.status in (200, 201), answer
    assert answer.warnings == []
