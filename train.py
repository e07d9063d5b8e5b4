"""Make the run of a configuration, or with -m the runs of a study: python train.py -m pos=rope,alibi

`python train.py --help` has the settings and examples; it is `poslab train` of a checkout.
"""

import sys

from poslab.commands.command_line import run

if __name__ == "__main__":
    run("train", sys.argv[1:])
