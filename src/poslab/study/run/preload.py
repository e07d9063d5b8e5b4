"""The imports of multiprocessing's fork server, done once for all runs of a study by importing this module.

The server then has no model, no data and no device, so that a forked run starts like a new interpreter after
its imports. If a module cannot be imported here, the runs try again and log the reason.
"""

import gc
import os
import signal
from contextlib import suppress

import numpy as np

# A signal for the whole process group, such as Ctrl-C, is for the command, which then stops its runs. A
# signal for a run that is being forked is blocked until the run can handle it.
with suppress(PermissionError):  # this process already leads its group
    os.setsid()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})

gc.disable()  # garbage collection would take a tenth of the time of the imports
with suppress(Exception):
    import poslab.study.run.execute
    import poslab.study.run.parts
    import poslab.study.run.worker
    import poslab.training.loop  # noqa: F401 - Lightning, which every run imports before it trains
gc.collect()
gc.freeze()  # never collected again, so that its pages stay shared between the runs
gc.enable()

os.register_at_fork(after_in_child=np.random.seed)  # Python does the same for `random`
