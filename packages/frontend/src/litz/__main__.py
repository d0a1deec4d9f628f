"""``python -m litz``: the command line."""

from __future__ import annotations

import sys

from litz.commands.main import main

if __name__ == "__main__":
    sys.exit(main())
