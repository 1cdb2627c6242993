"""`python -m bicoastal`: the command line."""

import sys

from bicoastal.experiments.cli import main

if __name__ == "__main__":
    sys.exit(main())
