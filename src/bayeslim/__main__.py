"""`python -m bayeslim` is the command `bayeslim`."""

import sys

from bayeslim.cli import main

if __name__ == "__main__":
    sys.exit(main())
