"""`python -m qccf` is `qccf`."""

import sys

from qccf.cli import main

if __name__ == "__main__":  # worker processes import this module again
    sys.exit(main())
