"""`python -m ecosystem`."""

import sys

from ecosystem.run import main

if __name__ == "__main__":
    sys.exit(main())
