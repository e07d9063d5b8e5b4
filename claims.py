"""Judge what is said of positional encodings: python claims.py"""

import sys

from poslab.commands.claims import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
