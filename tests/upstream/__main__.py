"""`python -m upstream`."""

import sys

from upstream.run import main

if __name__ == "__main__":
    sys.exit(main())
