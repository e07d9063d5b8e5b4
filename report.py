"""Make the report of a study again from its records: python report.py study=extrapolation"""

import sys

from poslab.commands.report import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
