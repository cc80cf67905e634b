"""What every command prints in every state, compared with files under tests/fixtures/kubectl-slurm.

Each call is the program's own `main`, against an API server and a manager on loopback. `UPDATE_GOLDEN=1`
writes the files instead: read the difference before you commit it.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from slurm_operator import __version__
from slurm_operator.plugin.arguments import COMMANDS
from slurm_operator.plugin.entry import main
from tests.support.plugin.fake_kubernetes import (
    ADMISSION,
    CORE,
    GROUP,
    OPERATOR,
    POD,
    SLICES,
    SLURM,
    FakeKubernetes,
)
from tests.support.plugin.sample_authority import authority
from tests.support.plugin.sample_rows import cluster, job, jobs, pending
from tests.support.plugin.states import STATES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tests.support.plugin.sample_state import State

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "tests" / "fixtures" / "kubectl-slurm"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{OPERATOR}/leases/slurm-operator"
# Far beyond any run of the tests: doctor prints the date.
BUNDLE = authority("2099-12-31")
EVERY_VIEW = (
    *("status", "status -o wide", "nodes", "nodes -o wide -A", "nodes --blocked"),
    *(
        "jobs",
        "jobs -o wide -A",
        "history nodeset workers",
        "history controller slurm",
        "explain nodeset workers",
    ),
)
# One line on standard error, and what the exit code is for.
UNKNOWN = (
    *("status nope", "nodes nope", "jobs nope", "explain pod nope", "explain nodeset nope"),
    *("explain node nope", "explain job 999", "drain nope --reason x", "undrain nope"),
)
WITHOUT_JOBS = ("jobs", "explain job 43", "dashboard")


@asynccontextmanager
async def serving(state: State, folder: Path) -> AsyncIterator[tuple[FakeKubernetes, Path]]:
    """Run an API server with a state, and write the kubeconfig for it."""
    async with FakeKubernetes(state, BUNDLE) as server:
        yield server, server.kubeconfig(folder / "kubeconfig")


class Screen:
    """Runs commands and keeps what they print, as a terminal shows it."""

    def __init__(self, kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.lines: list[str] = []
        self._kubeconfig = kubeconfig
        self._capsys = capsys

    async def run(self, *commands: str) -> None:
        """Run commands, each of which leaves its output, its errors and its exit code if that is not 0."""
        for command in commands:
            arguments = [*command.split(), "--kubeconfig", str(self._kubeconfig)]
            code = await asyncio.to_thread(main, arguments)
            out, err = self._capsys.readouterr()
            assert err.count("\n") == (1 if err else 0), err
            self.add(command, out + err, code)

    def add(self, command: str, text: str, code: int) -> None:
        """Keep what a command printed."""
        ending = f"[exit code {code}]\n" if code else ""
        text = text.replace(__version__, "0.0.0")
        self.lines.append(f"$ kubectl slurm {command}\n{text}{ending}")

    def check(self, name: str) -> None:
        """Compare with the file of that name."""
        path, text = FOLDER / f"{name}.txt", "\n".join(self.lines)
        if os.environ.get("UPDATE_GOLDEN"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", STATES)
async def test_state(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In each state every command prints what the file of that state has."""
    state = STATES[name]
    async with serving(state, tmp_path) as (server, kubeconfig):
        screen = Screen(kubeconfig, capsys)
        await screen.run(*EVERY_VIEW)
        if state.pod:
            row = next(one for one in state.workers if one.pod == state.pod)
            await screen.run(f"explain pod {row.pod}", f"history pod {row.pod}")
            if row.kubernetes_node:
                await screen.run(f"explain node {row.kubernetes_node}")
            await screen.run(f"drain {row.slurm_node} --reason fan-3-broken", f"undrain {row.slurm_node}")
        if state.job:
            await screen.run(f"explain job {state.job}")
        await screen.run(*state.more, "doctor")
        screen.check(name)
    assert all("metadata" in one for one in server.patched)


async def test_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON and YAML have the fields of the API."""
    async with serving(STATES["scaling-in-with-jobs"], tmp_path) as (_, kubeconfig):
        screen = Screen(kubeconfig, capsys)
        await screen.run("explain pod workers-2 -o json", "nodes --blocked -o yaml", "jobs -o json")
        screen.check("formats")


async def test_without_an_operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What Kubernetes knows is shown, with why the view is limited; the rest is one line and code 5."""
    async with serving(STATES["scaling-in-with-jobs"], tmp_path) as (server, kubeconfig):
        del server.objects[LEASE]
        screen = Screen(kubeconfig, capsys)
        await screen.run("status", "nodes", "history nodeset workers", "explain nodeset workers")
        await screen.run("explain pod workers-2", "explain node node-2", *WITHOUT_JOBS)
        await screen.run("drain workers-1 --reason fan-3-broken", "undrain workers-2", "doctor")
        screen.lines = [re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "TIME", one) for one in screen.lines]
        screen.check("without-an-operator")


async def test_autoscaled_without_an_operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whether a node without a pod is powered down is unknown then; the bounds are known."""
    async with serving(STATES["autoscaled"], tmp_path) as (server, kubeconfig):
        del server.objects[LEASE]
        screen = Screen(kubeconfig, capsys)
        await screen.run(
            "explain nodeset workers", "explain pod workers-3", "explain node workers-3", "nodes"
        )
        screen.check("autoscaled-without-an-operator")


async def test_doctor_complains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every check but that of the operator is seen failing or warning; that one fails without an operator."""
    refused = {"connected": False, "reason": "Refused", "message": "Slurm rejects the token"}
    old = cluster(slurm_version="23.02.1", **refused)
    state = replace(STATES["missing-image"], clusters=(old,))
    async with serving(state, tmp_path) as (server, kubeconfig):
        break_installation(server)
        screen = Screen(kubeconfig, capsys)
        await screen.run("doctor", "doctor -o json")
        fine = re.findall(r"^ok +(\S.*?)  ", screen.lines[0], re.MULTILINE)
        assert fine == ["operator"]
        screen.check("doctor-complains")


def break_installation(server: FakeKubernetes) -> None:
    """Let each check find something wrong."""
    server.denied = ("list nodesets", "patch pods")
    claim = {"spec": {"storageClassName": "fast"}, "status": {"phase": "Pending"}}
    broken = {
        "/version": {"gitVersion": "v1.28.3"},
        f"{SLICES}/{OPERATOR}/endpointslices": [],
        f"{SLICES}/kube-system/endpointslices": [],
        f"{ADMISSION}/validatingadmissionpolicies": [],
        f"{CORE}/persistentvolumeclaims": [
            {"metadata": {"name": "statesave-0", "namespace": SLURM}, **claim},
        ],
    }
    server.objects |= broken
    server.objects["/apis/apiextensions.k8s.io/v1/customresourcedefinitions"].pop()
    hook = server.objects[f"{ADMISSION}/validatingwebhookconfigurations"][0]["webhooks"][0]
    hook["clientConfig"]["caBundle"] = authority("2026-01-31")
    for path in [path for path in server.objects if path.endswith("/proxy/metrics")]:
        server.objects[path] = "kubelet_cgroup_version 1\n"


async def test_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown objects, missing permissions, an old operator and no cluster: one line and an exit code."""
    async with serving(STATES["healthy"], tmp_path) as (server, kubeconfig):
        screen = Screen(kubeconfig, capsys)
        await screen.run(*UNKNOWN)
        screen.lines.append("# An operator without a status API\n")
        spec = server.objects[f"{CORE}/namespaces/{OPERATOR}/pods/{POD}"]["spec"]
        spec["containers"][0]["ports"][0]["name"] = "metrics"
        await screen.run(*WITHOUT_JOBS)
        spec["containers"][0]["ports"][0]["name"] = "status"
        screen.lines.append("# A user who may not create a token of the viewer\n")
        server.forbidden = (f"{CORE}/namespaces/{OPERATOR}/serviceaccounts",)
        await screen.run(*WITHOUT_JOBS)
        screen.lines.append("# A user who may not patch pods\n")
        server.forbidden = (f"PATCH {CORE}/namespaces/{SLURM}/pods",)
        await screen.run("drain workers-0 --reason x")
        screen.lines.append("# A user without any permission\n")
        server.forbidden = (CORE, GROUP, "/apis/coordination.k8s.io")
        await screen.run("status", "nodes", "explain pod workers-0", *WITHOUT_JOBS)
        server.forbidden = ()
        screen.lines.append("# The manager refuses\n")
        server.manager.refuse(403, "Forbidden", "ann may not list NodeSets in namespace slurm.")
        await screen.run("jobs")
        screen.lines.append("# No CRDs, and no operator\n")
        for path in [path for path in server.objects if path.startswith(GROUP) or path == LEASE]:
            del server.objects[path]
        await screen.run("status", "explain pod workers-0")
    screen.lines.append("# No API server\n")
    await screen.run("status")
    kubeconfig.unlink()
    await screen.run("status")
    port = server.server.rpartition(":")[2]
    screen.lines = [one.replace(str(tmp_path), "~").replace(port, "6443") for one in screen.lines]
    screen.check("errors")


async def test_namespaces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The namespace is that of the context, or of -n; -A asks for all."""
    async with serving(STATES["healthy"], tmp_path) as (server, kubeconfig):
        await Screen(kubeconfig, capsys).run("status", "status -n other", "status -A")
        assert server.manager.asked("overview") == [{"namespace": SLURM}, {"namespace": "other"}, {}]


async def test_colours_on_a_terminal(tmp_path: Path) -> None:
    """A terminal gets colours; what is written into a pipe or a file has none (the files have none)."""
    async with serving(STATES["healthy"], tmp_path) as (_, kubeconfig):
        ours, theirs = os.openpty()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "slurm_operator.plugin.entry", "status", "--kubeconfig", str(kubeconfig)),
            stdout=theirs,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm", "NO_COLOR": ""},
        )
        code = await asyncio.wait_for(process.wait(), 60)
        shown = os.read(ours, 65536).decode()
        os.close(ours)
        os.close(theirs)
    assert (code, "\x1b[32mconnected\x1b[0m" in shown) == (0, True), shown
    assert not any("\x1b" in path.read_text(encoding="utf-8") for path in FOLDER.glob("*.txt"))


async def test_dashboard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The dashboard prints its address and how to end it, and ends with Ctrl-C."""
    async with serving(STATES["healthy"], tmp_path) as (_, kubeconfig):
        screen = Screen(kubeconfig, capsys)
        code, out = await interrupted("dashboard", "--no-browser", "--kubeconfig", str(kubeconfig))
        screen.add(
            "dashboard", re.sub(r"127\.0\.0\.1:\d+/\?key=\S+", "127.0.0.1:PORT/?key=SECRET", out), code
        )
        await screen.run("version")
        screen.check("dashboard")


async def interrupted(*arguments: str) -> tuple[int, str]:
    """Run the command as a process, press Ctrl-C after its second line, and return its code and output."""
    process = await asyncio.create_subprocess_exec(
        # Where the tests run in the background, SIGINT is ignored, and the process would inherit that.
        *("env", "--default-signal=INT", sys.executable, "-m", "slurm_operator.plugin.entry", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert process.stdout is not None
    lines = [await asyncio.wait_for(process.stdout.readline(), 60) for _ in range(2)]
    process.send_signal(signal.SIGINT)
    rest, _ = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, b"".join([*lines, rest]).decode()


def test_no_file_is_left_over() -> None:
    """Each file belongs to a test."""
    others = {
        "autoscaled-without-an-operator",
        "dashboard",
        "doctor-complains",
        "errors",
        "formats",
        "without-an-operator",
    }
    assert {path.stem for path in FOLDER.glob("*.txt")} == {*STATES, *others}


def test_every_command_has_a_golden_output() -> None:
    """A command that is added needs a place in these files; completion is compared with its own words."""
    text = "".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("*.txt"))
    shown: Sequence[str] = re.findall(r"^\$ kubectl slurm (\w+)", text, re.MULTILINE)
    assert {*COMMANDS} - {*shown} == {"completion"}


async def test_an_error_is_one_line_without_control_sequences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What slurmrestd or a user of Slurm wrote into an error neither steers the terminal nor adds a line."""
    evil = "a\x1b]0;owned\x07\nb"
    state = STATES["drain-by-a-person"]
    workers = tuple(msgspec.structs.replace(one, state_reason_by=evil) for one in state.workers)
    hostile = replace(state, workers=workers, jobs=jobs(error=evil))
    async with serving(hostile, tmp_path) as (_, kubeconfig):
        for command in ("explain job 43", f"undrain {state.pod}"):
            code = await asyncio.to_thread(main, [*command.split(), "--kubeconfig", str(kubeconfig)])
            err = capsys.readouterr().err
            assert (code, err.count("\n")) == (1, 1), err
            assert "a?]0;owned? b" in err


async def test_an_array_of_jobs_is_explained_by_its_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The number of an array is that of several records of one cluster: its own is explained."""
    tasks = (
        job(44, array_job_id=43, array_task="1"),
        pending(43, "Resources", array_job_id=43, array_task="2-9"),
    )
    state = replace(STATES["healthy"], jobs=jobs(*tasks))
    async with serving(state, tmp_path) as (_, kubeconfig):
        arguments = ["explain", "job", "43", "--kubeconfig", str(kubeconfig)]
        code = await asyncio.to_thread(main, arguments)
        out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    assert out.startswith("Job 43_2-9 ")


async def test_an_explanation_says_that_parts_of_it_are_limited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the operator fails after it has listed the jobs, what conditions show is said to be that."""
    async with serving(STATES["healthy"], tmp_path) as (server, kubeconfig):
        server.manager.broken = ("overview", "workers")
        for command in ("explain job 43", "explain nodeset workers"):
            code = await asyncio.to_thread(main, [*command.split(), "--kubeconfig", str(kubeconfig)])
            out, err = capsys.readouterr()
            assert (code, err) == (0, "")
            assert out.startswith("Limited view, from conditions and Events only: the operator refuses"), out
