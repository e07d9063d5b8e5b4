"""A study's dashboards in W&B, or in files: python dashboard.py study=extrapolation"""

import sys

from poslab.commands.dashboard import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
