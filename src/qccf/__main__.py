"""`python -m qccf` is `qccf`."""

import sys

from qccf.cli.main import main

if __name__ == "__main__":  # worker processes import this module again
    sys.exit(main())
