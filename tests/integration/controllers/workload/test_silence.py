"""At rest, the operator writes nothing, by the API server's own record."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import load_config
from slurm_operator.process import CONTROLLERS
from tests.support.charts.chart_accounts import USER, operator_kubeconfig
from tests.support.controllers.whole_cluster import make_whole_cluster
from tests.support.controllers.workload_namespace import Stage, running
from tests.support.processes import await_kinds, eventually, install_crds

if TYPE_CHECKING:
    from kubebox import Box
    from kubebox.pytest_plugin import BoxFactory

# A sample in CI, and a minute where there is time for it.
QUIET = pytest.mark.parametrize("seconds", [20.0, pytest.param(60.0, marks=pytest.mark.long)])
_READS = ("get", "list", "watch")
_US = f'"user":{{"username":"{USER}"'.encode()


@pytest.fixture
def audited_box(kube_box_factory: BoxFactory) -> Box:
    """Hand out a whole control plane that writes down every request."""
    box = kube_box_factory(controller_manager=True, scheduler=True, fake_nodes=2, audit=True)
    install_crds(box)
    await_kinds(box)
    return box


class Write(NamedTuple):
    """One write of the operator, as the API server recorded it."""

    verb: str
    path: str
    at: datetime


class Record:
    """Every write of the operator, Events among them, from the audit log; read on from where it was left."""

    def __init__(self, box: Box) -> None:
        self._path = box.audit_log
        self._offset = 0
        self._writes: list[Write] = []

    def writes(self) -> list[Write]:
        with self._path.open("rb") as log:
            log.seek(self._offset)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                if _US in line:
                    self._take(json.loads(line))
        return [*self._writes]

    def _take(self, entry: dict[str, Any]) -> None:
        if entry["verb"] not in _READS:
            moment = datetime.fromisoformat(entry["requestReceivedTimestamp"])
            self._writes.append(Write(entry["verb"], entry["requestURI"], moment))


@QUIET
@pytest.mark.timeout(300)
async def test_nothing_is_written_at_rest(audited_box: Box, seconds: float) -> None:
    """All controllers, on a whole cluster whose pods run, write nothing, however often asked."""
    config = load_config(str(operator_kubeconfig(audited_box)))
    record = Record(audited_box)
    async with AsyncExitStack() as stack, Client(load_config(str(audited_box.kubeconfig))) as client:
        namespace = stack.enter_context(audited_box.namespace())
        stage = Stage(client, config, namespace, stack)
        operator = await stack.enter_async_context(running(config, namespace, builds=CONTROLLERS))
        await make_whole_cluster(stage)

        def silent() -> bool:
            last = max(write.at for write in record.writes())
            return (datetime.now(UTC) - last).total_seconds() >= seconds

        await eventually(silent, f"nothing is written for {seconds:g} s", 200.0)
        before = record.writes()
        assert len({write.path.split("?")[0] for write in before}) > len(await stage.children())
        await operator.reconcile_again(100)
        # A request that follows is in the log, so all before it are.
        await stage.config_map("mark")
        assert record.writes() == before
