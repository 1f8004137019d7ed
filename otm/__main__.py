"""Run the command line: ``python -m otm`` is the same as the command `otm`."""

import sys

from otm.cli import main

if __name__ == "__main__":
    sys.exit(main())
