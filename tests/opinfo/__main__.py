"""`python -m opinfo`."""

import sys

from opinfo.run import main

if __name__ == "__main__":
    sys.exit(main())
