"""`python -m maths`."""

import sys

from maths.run import main

if __name__ == "__main__":
    sys.exit(main())
