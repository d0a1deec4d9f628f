"""`python -m differential`."""

import sys

from differential.run import main

if __name__ == "__main__":
    sys.exit(main())
