"""`python -m forms`."""

import sys

from forms.run import main

if __name__ == "__main__":
    sys.exit(main())
