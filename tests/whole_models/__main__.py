"""`python -m whole_models`."""

import sys

from whole_models.run import main

if __name__ == "__main__":
    sys.exit(main())
