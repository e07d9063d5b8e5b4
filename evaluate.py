"""Evaluate a trained model again, without training: python evaluate.py checkpoint=PATH evaluate.longest=16"""

import sys

from poslab.commands.evaluate import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
