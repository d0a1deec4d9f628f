"""`python -m reports`."""

import sys

from reports.run import main

if __name__ == "__main__":
    sys.exit(main())
