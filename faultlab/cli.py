"""The command line: `python -m faultlab run SCENARIO… --operator 'COMMAND'`."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from faultlab import faults, report, scenario, suite
from faultlab.cluster import laboratory
from faultlab.errors import FaultlabError
from faultlab.kubelets import playing
from faultlab.properties import PropertyRun, not_properties
from faultlab.run import Bench
from kubebox import KubeboxError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from faultlab.properties import Result
    from faultlab.run import Outcome, Reference
    from faultlab.scenario import Scenario

INTERRUPTED = 128 + signal.SIGINT
_OPERATOR = "its words {namespace}, {slurm} and {kubeconfig} are replaced; KUBECONFIG is set, too"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(prog="python -m faultlab", description="Run an operator under faults.")
    commands = top.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the scenarios that come with the lab")
    run = commands.add_parser("run", help="run scenarios under faults")
    run.add_argument("scenarios", nargs="+", metavar="SCENARIO", help="a file, the name of one, or `all`")
    every = commands.add_parser("properties", help="change every property of every CRD, and change it back")
    every.add_argument("scenario", nargs="?", default="base-properties", help="with an object of each kind")
    every.add_argument("--only", default="", help="properties with this in their name")
    without_effect = "YAML: properties that may have no effect, each with the reason"
    every.add_argument("--without-effect", type=Path, metavar="FILE", help=without_effect)
    for command in (run, every):
        command.add_argument("--operator", required=True, metavar="COMMAND", help=_OPERATOR)
        command.add_argument(
            "--manifest", action="append", type=Path, default=[], help="CRDs, roles, policies"
        )
        command.add_argument("--account", default="", metavar="NAMESPACE/NAME", help="of the operator")
        command.add_argument(
            "--at-once", type=int, default=6, help="runs at a time; most of a run is waiting"
        )
        patience = "time limits, times this; more than 1 on a machine that is busy with other work"
        command.add_argument("--patience", type=float, default=1.0, help=patience)
        command.add_argument("--json", type=Path, help="where the report is written")
        command.add_argument("--logs", type=Path, help="keep the operator's logs in this folder")
        command.add_argument("--repeat-as", default="", metavar="COMMAND", help="how to print repetitions")
    suites = f"{', '.join(suite.SUITES)}; several with commas between them"
    run.add_argument("--suite", default=["crash"], type=_suites, help=suites)
    run.add_argument("--fault", action="append", default=[], help="this fault only, as the report prints it")
    ways = "of the crashes, separated by commas; turns: each write in one way, and the ways take turns"
    reports = "one file for each scenario and suite; those of the same --version are not run again"
    run.add_argument("--reports", type=Path, metavar="FOLDER", help=reports)
    run.add_argument("--version", default="", help="of the operator and the lab; empty: of none before")
    run.add_argument("--ways", default=",".join(faults.KILLS), help=ways)
    run.add_argument("--sample", type=int, default=2, help="writes of each kind that are crashed at; 0: all")
    run.add_argument(
        "--part", default="1/1", help="of the faults, as in 2/8: every eighth, from the second on"
    )
    return top


def _suites(text: str) -> list[str]:
    """Read the names of suites."""
    if unknown := {*text.split(",")} - {*suite.SUITES}:
        raise argparse.ArgumentTypeError(f"there is no suite {', '.join(sorted(unknown))}")
    return text.split(",")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 1 if a run failed, 2 if the lab could not do its work, 130 if it was interrupted."""
    options = parser().parse_args(argv)
    if options.command == "list":
        for name in scenario.names():
            print(f"{name:24} {scenario.load(name).about}")
        return 0
    # Ended like that, it ends what it has started, too, as with an interrupt.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix="faultlab-") as folder:
            work = _properties if options.command == "properties" else _run
            return asyncio.run(work(options, Path(folder)))
    except (FaultlabError, KubeboxError) as error:
        print(f"faultlab: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("faultlab: ended before all runs were over", file=sys.stderr)
        return INTERRUPTED


async def _run(options: argparse.Namespace, folder: Path) -> int:
    wanted = scenario.names() if options.scenarios == ["all"] else options.scenarios
    scenarios = [scenario.load(name) for name in wanted]
    single = [faults.parse(text) for text in options.fault]
    began = time.time()
    arguments = _arguments(options)
    names = ("version", "operator", "fault", "ways", "sample", "part", "patience")
    kept = report.Folder(options.reports, {name: getattr(options, name) for name in names})
    async with _bench(options, folder) as bench:

        async def under(name: str, chosen: Scenario, found: Reference) -> dict[str, Any]:
            planned = single or suite.plan(name, found, options.sample, options.ways.split(","))
            runs = _part(planned, options.part)
            writes, seconds = len(found.writes), found.seconds
            print(
                f"==> {chosen.name}, {name}: {writes} writes in {seconds:.1f} s, {len(runs)} runs", flush=True
            )
            outcomes = await suite.run_all(
                bench, chosen, runs, found, lambda outcome: _tell(outcome, arguments)
            )
            section = report.to_json(report.Section(chosen.name, name, found, outcomes), arguments)
            kept.save(section)
            return section

        async def one(chosen: Scenario) -> list[dict[str, Any]] | str:
            old = {name: kept.find(chosen.name, name) for name in options.suite}
            sections = [section for section in old.values() if section is not None]
            missing = [name for name, section in old.items() if section is None]
            if not missing:
                return sections
            try:
                found, _ = await suite.reference(bench, chosen)
            except FaultlabError as error:
                print(f"failed      {error}", flush=True)
                return str(error)
            return sections + await asyncio.gather(*(under(name, chosen, found) for name in missing))

        results = await asyncio.gather(*(one(chosen) for chosen in scenarios))
        sections = [section for result in results if not isinstance(result, str) for section in result]
        broken = [result for result in results if isinstance(result, str)]
        if bench.kubelets.failures:
            broken.append(f"the lab's kubelets failed: {bench.kubelets.failures[:3]}")
        version = bench.lab.box.version
    print(report.table(sections))
    runs = [run for section in sections for run in section["runs"]]
    print(f"{len(runs)} runs, took {time.time() - began:.0f} s")
    if options.json is not None:
        about = {
            "suite": options.suite,
            "operator": options.operator,
            "kubernetes": version,
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "seconds": round(time.time() - began),
            "patience": options.patience,
            "broken": broken,
        }
        report.save(options.json, {**about, "scenarios": sections})
    for text in broken:
        print(f"faultlab: {text}", file=sys.stderr)
    return 2 if broken else int(any(run["verdict"] == "failed" for run in runs))


@asynccontextmanager
async def _bench(options: argparse.Namespace, folder: Path) -> AsyncIterator[Bench]:
    """Start the control plane and the nodes that all runs share."""
    logs = options.logs or folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    async with laboratory(folder, options.manifest, options.account) as lab, playing(lab, folder) as kubelets:
        kinds = await lab.kube.discover()
        room = asyncio.Semaphore(options.at_once)
        yield Bench(lab, kubelets, kinds, options.operator, logs, room, options.patience)


async def _properties(options: argparse.Namespace, folder: Path) -> int:
    began = time.time()
    async with _bench(options, folder) as bench:
        chosen = scenario.load(options.scenario)
        listed: dict[str, str] = {}
        if options.without_effect:
            listed = yaml.safe_load(options.without_effect.read_text(encoding="utf-8"))
        shares = [
            PropertyRun(bench, chosen, options.only, _tell_property, (number, options.at_once), listed)
            for number in range(options.at_once)
        ]
        outcomes = await asyncio.gather(*(run.go() for run in shares))
    results = [result for run in shares for result in run.results]
    problems = [problem for outcome in outcomes for problem in outcome.problems]
    if not problems:
        unknown = not_properties(listed, options.only, results)
        problems += [f"{options.without_effect}: {name} is no property of these CRDs" for name in unknown]
    count = Counter(result.verdict for result in results)
    print("  ".join(f"{verdict}: {number}" for verdict, number in sorted(count.items())))
    print(f"{len(results)} properties, took {time.time() - began:.0f} s")
    for problem in problems:
        print(f"faultlab: {problem}", file=sys.stderr)
    if options.json is not None:
        about = {"operator": options.operator, "seconds": round(time.time() - began), "count": count}
        rows = [vars(result) for result in results]
        report.save(options.json, {**about, "problems": problems, "properties": rows})
    return 2 if problems else int(any(result.failed for result in results))


def _tell_property(result: Result) -> None:
    print(f"{result.verdict:24} {result.name} = {result.value!r}: {result.detail}", flush=True)


def _part(planned: list[faults.Fault], part: str) -> list[faults.Fault]:
    first, _, every = part.partition("/")
    return planned[int(first) - 1 :: int(every)]


def _tell(outcome: Outcome, arguments: report.Repetition) -> None:
    print(report.line(outcome), flush=True)
    if outcome.problems:
        for problem in outcome.problems:
            print(f"    {problem}", flush=True)
        # Written at once: a long run may be interrupted.
        report.save(Path(outcome.log).with_suffix(".json"), report.run_json(outcome, arguments))
        print(f"    log: {outcome.log}\n    repeat: {report.repeat_command(outcome, arguments)}", flush=True)


def _arguments(options: argparse.Namespace) -> report.Repetition:
    """Return what the command of every repetition has in common."""
    if options.repeat_as:
        return report.Repetition(options.repeat_as)
    words = ["--operator", options.operator]
    for manifest in options.manifest:
        words += ["--manifest", str(manifest)]
    words += ["--account", options.account] if options.account else []
    return report.Repetition("python -m faultlab run", words)
