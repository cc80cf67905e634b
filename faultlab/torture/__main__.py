"""`python -m faultlab.torture --minutes 45 --seed 1 --report FOLDER`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from faultlab.torture.session import run
from faultlab.torture.timeline import page
from kubebox import KubeboxError


def main() -> int:
    """Run, write the report, and print its beginning; 1 if something is wrong, 2 if there was no run."""
    parser = argparse.ArgumentParser(prog="python -m faultlab.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long actions and faults happen")
    parser.add_argument("--seed", type=int, default=1, help="which actions and jobs")
    parser.add_argument("--report", type=Path, required=True, help="the folder for the report")
    options = parser.parse_args()
    try:
        story = run(options.seed, options.minutes)
    except KubeboxError as error:
        print(f"torture: {error}", file=sys.stderr)
        return 2
    options.report.mkdir(parents=True, exist_ok=True)
    name = f"torture-{options.seed}"
    text = page(story)
    (options.report / f"{name}.md").write_text(text, encoding="utf-8")
    (options.report / f"{name}.json").write_text(
        json.dumps(story.to_json(), indent=1) + "\n", encoding="utf-8"
    )
    print(text.partition("## What was done")[0])
    print(f"the report is {options.report / name}.md")
    return int(bool(story.problems))


if __name__ == "__main__":
    sys.exit(main())
