"""Train one run, or with -m all runs of a study: python train.py -m pos=rope,alibi

`python train.py --help` lists the settings and examples. An installed poslab has `poslab train` instead.
"""

import sys

from poslab.commands.command_line import run

if __name__ == "__main__":
    run("train", sys.argv[1:])
