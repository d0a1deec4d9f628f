"""`python -m replay`."""

import sys

from replay.run import main

if __name__ == "__main__":
    sys.exit(main())
