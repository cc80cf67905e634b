"""`python -m kubebox`."""

from __future__ import annotations

import sys

from kubebox.cli import main

if __name__ == "__main__":
    sys.exit(main())
