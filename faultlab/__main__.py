"""`python -m faultlab`."""

from __future__ import annotations

import sys

from faultlab.cli import main

if __name__ == "__main__":
    sys.exit(main())
