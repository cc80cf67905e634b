"""The command line: `python -m faultlab run SCENARIO… --operator 'COMMAND'`."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from faultlab import faults, report, scenario, suite
from faultlab.cluster import laboratory
from faultlab.errors import FaultlabError
from faultlab.kubelets import playing
from faultlab.properties import PropertyRun
from faultlab.run import Bench
from kubebox import KubeboxError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlab.properties import Result
    from faultlab.run import Outcome

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
    for command in (run, every):
        command.add_argument("--operator", required=True, metavar="COMMAND", help=_OPERATOR)
        command.add_argument(
            "--manifest", action="append", type=Path, default=[], help="CRDs, roles, policies"
        )
        command.add_argument("--account", default="", metavar="NAMESPACE/NAME", help="of the operator")
        command.add_argument("--json", type=Path, help="where the report is written")
        command.add_argument("--logs", type=Path, help="keep the operator's logs in this folder")
        command.add_argument("--repeat-as", default="", metavar="COMMAND", help="how to print repetitions")
    run.add_argument("--suite", default="crash", choices=suite.SUITES)
    run.add_argument("--fault", action="append", default=[], help="this fault only, as the report prints it")
    run.add_argument("--ways", default=",".join(faults.KILLS), help="of the crashes, separated by commas")
    run.add_argument("--sample", type=int, default=2, help="writes of each kind that are crashed at; 0: all")
    run.add_argument("--at-once", type=int, default=2, help="runs at a time")
    run.add_argument(
        "--part", default="1/1", help="of the faults, as in 2/8: every eighth, from the second on"
    )
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 1 if a run failed, 2 if the lab could not do its work."""
    options = parser().parse_args(argv)
    if options.command == "list":
        for name in scenario.names():
            print(f"{name:24} {scenario.load(name).about}")
        return 0
    try:
        with tempfile.TemporaryDirectory(prefix="faultlab-") as folder:
            work = _properties if options.command == "properties" else _run
            return asyncio.run(work(options, Path(folder)))
    except (FaultlabError, KubeboxError) as error:
        print(f"faultlab: {error}", file=sys.stderr)
        return 2


async def _run(options: argparse.Namespace, folder: Path) -> int:
    wanted = scenario.names() if options.scenarios == ["all"] else options.scenarios
    scenarios = [scenario.load(name) for name in wanted]
    single = [faults.parse(text) for text in options.fault]
    logs = options.logs or folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    began = time.time()
    sections: list[report.Section] = []
    broken: list[str] = []
    arguments = _arguments(options)
    async with laboratory(folder, options.manifest, options.account) as lab, playing(lab, folder) as kubelets:
        kinds = await lab.kube.discover()
        bench = Bench(lab, kubelets, kinds, options.operator, logs)
        for one in scenarios:
            try:
                found, _ = await suite.reference(bench, one)
            except FaultlabError as error:
                print(f"failed      {error}", flush=True)
                broken.append(str(error))
                continue
            planned = single or suite.plan(options.suite, found, options.sample, options.ways.split(","))
            chosen = _part(planned, options.part)
            print(
                f"==> {one.name}: {len(found.writes)} writes in {found.seconds:.1f} s, {len(chosen)} runs",
                flush=True,
            )
            outcomes = await suite.run_all(
                bench, one, chosen, found, options.at_once, lambda outcome: _tell(outcome, arguments)
            )
            sections.append(report.Section(one.name, found, len(planned), outcomes))
        if kubelets.failures:
            broken.append(f"the lab's kubelets failed: {kubelets.failures[:3]}")
        version = lab.box.version
    print(report.table(sections))
    print(f"took {time.time() - began:.0f} s")
    if options.json is not None:
        about = {
            "suite": options.suite,
            "operator": options.operator,
            "kubernetes": version,
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "seconds": round(time.time() - began),
            "broken": broken,
        }
        report.save(options.json, report.to_json(sections, about, arguments))
    for text in broken:
        print(f"faultlab: {text}", file=sys.stderr)
    failed = any(outcome.problems for section in sections for outcome in section.outcomes)
    return 2 if broken else int(failed)


async def _properties(options: argparse.Namespace, folder: Path) -> int:
    logs = options.logs or folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    began = time.time()
    async with laboratory(folder, options.manifest, options.account) as lab, playing(lab, folder) as kubelets:
        bench = Bench(lab, kubelets, await lab.kube.discover(), options.operator, logs)
        run = PropertyRun(bench, scenario.load(options.scenario), options.only, _tell_property)
        outcome = await run.go()
    count = Counter(result.verdict for result in run.results)
    print("  ".join(f"{verdict}: {number}" for verdict, number in sorted(count.items())))
    print(f"{len(run.results)} properties, took {time.time() - began:.0f} s")
    for problem in outcome.problems:
        print(f"faultlab: {problem}", file=sys.stderr)
    if options.json is not None:
        about = {"operator": options.operator, "seconds": round(time.time() - began), "count": count}
        results = [vars(result) for result in run.results]
        report.save(options.json, {**about, "problems": outcome.problems, "properties": results})
    return 2 if outcome.problems else int(any(result.failed for result in run.results))


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
