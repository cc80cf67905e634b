"""The command line: `python -m faultlab run SCENARIO… --operator 'COMMAND'`."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from faultlab import faults, report, scenario, suite
from faultlab.cluster import laboratory
from faultlab.errors import FaultlabError
from faultlab.kubelets import playing
from faultlab.run import Bench
from kubebox import KubeboxError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlab.run import Outcome

_OPERATOR = "its words {namespace}, {slurm} and {kubeconfig} are replaced; KUBECONFIG is set, too"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(prog="python -m faultlab", description="Run an operator under faults.")
    commands = top.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the scenarios that come with the lab")
    run = commands.add_parser("run", help="run scenarios under faults")
    run.add_argument("scenarios", nargs="+", metavar="SCENARIO", help="a file, the name of one, or `all`")
    run.add_argument("--operator", required=True, metavar="COMMAND", help=_OPERATOR)
    run.add_argument("--manifest", action="append", type=Path, default=[], help="CRDs, roles, policies")
    run.add_argument("--account", default="", metavar="NAMESPACE/NAME", help="the operator's ServiceAccount")
    run.add_argument("--suite", default="crash", choices=suite.SUITES)
    run.add_argument("--fault", action="append", default=[], help="this fault only, as the report prints it")
    run.add_argument("--ways", default=",".join(faults.KILLS), help="of the crashes, separated by commas")
    run.add_argument("--sample", type=int, default=2, help="writes of each kind that are crashed at; 0: all")
    run.add_argument("--at-once", type=int, default=2, help="runs at a time")
    run.add_argument(
        "--part", default="1/1", help="of the faults, as in 2/8: every eighth, from the second on"
    )
    run.add_argument("--json", type=Path, help="where the report is written")
    run.add_argument("--logs", type=Path, help="keep the operator's logs in this folder")
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
            return asyncio.run(_run(options, Path(folder)))
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


def _part(planned: list[faults.Fault], part: str) -> list[faults.Fault]:
    first, _, every = part.partition("/")
    return planned[int(first) - 1 :: int(every)]


def _tell(outcome: Outcome, arguments: list[str]) -> None:
    print(report.line(outcome), flush=True)
    if outcome.problems:
        for problem in outcome.problems:
            print(f"    {problem}", flush=True)
        print(f"    log: {outcome.log}\n    repeat: {report.repeat_command(outcome, arguments)}", flush=True)


def _arguments(options: argparse.Namespace) -> list[str]:
    """Return the arguments that every repetition needs."""
    words = ["--operator", options.operator]
    for manifest in options.manifest:
        words += ["--manifest", str(manifest)]
    return [*words, *(("--account", options.account) if options.account else ())]
