"""Write the report of a study again from its records: python report.py study=extrapolation"""

import sys

from poslab.commands.command_line import run

if __name__ == "__main__":
    run("report", sys.argv[1:])
