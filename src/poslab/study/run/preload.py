"""Imports of multiprocessing's fork server, done once for all runs of a study by importing this module.

The server then holds no model, no data and no device, so that a forked run begins like a fresh interpreter
after its imports. A module that cannot be imported is left to the runs, which log the reason.
"""

import gc
import os
import signal
from contextlib import suppress

import numpy as np

# A signal for the whole group, such as Ctrl-C, is for the command, which then stops its runs. One for a run
# that is being forked waits until the run can handle it.
with suppress(PermissionError):  # of a process that leads its group already
    os.setsid()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})

gc.disable()  # collecting while modules are imported takes a tenth of the time
with suppress(Exception):
    import poslab.study.run.execute
    import poslab.study.run.parts
    import poslab.study.run.worker
    import poslab.training.loop  # noqa: F401 - Lightning, which every run imports before it trains
gc.collect()
gc.freeze()  # never collected again, so that its pages stay shared between the runs
gc.enable()

os.register_at_fork(after_in_child=np.random.seed)  # as Python does for `random`
