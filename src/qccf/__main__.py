"""`python -m qccf` is `qccf`."""

import sys

from qccf.cli import main

sys.exit(main())
