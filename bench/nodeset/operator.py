"""The operator under test: the command that users run, as a process of its own, and what can be read off it.

Requests are those that it counts itself in `/metrics`; processor time and memory are the kernel's word.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter, defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from bench.memory import peak_kib, resident_kib

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kubebox import Box

_ROOT: Final = Path(__file__).parents[2]
_START_SECONDS: Final = 60.0
_READS: Final = frozenset({"GET", "HEAD"})
_LONGEST_STALL: Final = "slurm_operator_event_loop_longest_stall_seconds"
_BUSIEST_STALL: Final = "slurm_operator_event_loop_longest_stall_cpu_seconds"
_OWN_STALL: Final = "slurm_operator_event_loop_longest_stall_own_seconds"


@dataclass(frozen=True)
class Reading:
    """What the operator had done by one moment."""

    writes: Counter[str]
    """Requests that are no reads, to the API server, by method."""
    cpu: float
    resident_mib: float
    longest_stall: float
    busiest_stall: float
    """The same in processor time."""
    own_stall: float
    """The same by the clock, the wait for a processor not counted."""

    def since(self, before: Reading) -> Counter[str]:
        """Return the writes since an earlier reading."""
        return self.writes - before.writes


class Operator:
    """The running process."""

    def __init__(
        self, process: asyncio.subprocess.Process, log: Path, session: aiohttp.ClientSession
    ) -> None:
        self._process = process
        self._log = log
        self._session = session
        self._metrics = ""
        self.profile = ""
        """Where its profiles are served."""
        self.status = ""
        """Where its status is served."""

    async def started(self, status_host: str) -> None:
        """Wait until its controllers run."""
        async with asyncio.timeout(_START_SECONDS):
            while not self._logged("controllers started"):
                if self._process.returncode is not None:
                    raise RuntimeError(f"the operator ended:\n{self._log.read_text()[-2000:]}")
                await asyncio.sleep(0.1)
        ports = {entry["server"]: entry["port"] for entry in self._logged("listening")}
        self._metrics = f"http://127.0.0.1:{ports['metrics']}/metrics"
        self.profile = f"http://127.0.0.1:{ports['profile']}/debug/pprof"
        self.status = f"http://{status_host}:{ports['status']}"

    def _logged(self, message: str) -> list[dict[str, object]]:
        lines = [line for line in self._log.read_text().splitlines() if line[:1] + line[-1:] == "{}"]
        return [entry for line in lines if (entry := json.loads(line))["msg"] == message]

    async def reading(self) -> Reading:
        """Return the figures of this moment."""
        async with self._session.get(self._metrics) as answer:
            text = await answer.text()
        writes: Counter[str] = Counter()
        stalls = dict.fromkeys((_LONGEST_STALL, _BUSIEST_STALL, _OWN_STALL), 0.0)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == "rest_client_requests_total" and sample.labels["method"] not in _READS:
                    writes[sample.labels["method"]] += int(sample.value)
                elif sample.name in stalls:
                    stalls[sample.name] = sample.value
        memory = resident_kib(self._process.pid) / 1024
        return Reading(writes, self._cpu_seconds(), memory, *stalls.values())

    async def samples(self, controller: str) -> dict[str, float]:
        """Return what it counts about one of its controllers and its queue, the sums over other labels."""
        async with self._session.get(self._metrics) as answer:
            text = await answer.text()
        found: defaultdict[str, float] = defaultdict(float)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.labels.get("controller") == controller:
                    found[sample.name] += sample.value
        return found

    @property
    def peak_mib(self) -> float:
        """Return the most memory that it ever had."""
        return peak_kib(self._process.pid) / 1024

    def _cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def running(
    box: Box,
    namespace: str,
    log: Path,
    *flags: str,
    status_host: str = "127.0.0.1",
    core: int | None = None,
) -> AsyncIterator[Operator]:
    """Run the operator for one namespace until the block ends, on one core only if that is given."""
    servers = ("metrics", "health", "profile")
    command = [
        *(sys.executable, "-m", "slurm_operator", "manager", f"--kubeconfig={box.kubeconfig}"),
        *(f"--namespaces={namespace}", "--profile", *(f"--{name}-addr=127.0.0.1:0" for name in servers)),
        *(f"--status-addr={status_host}:0", *flags),
    ]
    paths = (str(_ROOT / "src"), str(_ROOT), os.environ.get("PYTHONPATH", ""))
    environment = os.environ | {"PYTHONPATH": ":".join(path for path in paths if path)}
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=output, stderr=output, env=environment
        )
    try:
        if core is not None:
            os.sched_setaffinity(process.pid, {core})
        async with aiohttp.ClientSession() as session:
            operator = Operator(process, log, session)
            await operator.started(status_host)
            yield operator
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
