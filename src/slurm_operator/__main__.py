"""Makes `python -m slurm_operator` the same as the installed command."""

from __future__ import annotations

from slurm_operator.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
