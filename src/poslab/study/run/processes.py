"""The processes of a run: their memory, their end when the launcher dies, and their process group."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from poslab.config.schema import TrainerOptions
from poslab.study.launch.contract import LIFELINE

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
LARGEST_KEPT = 32 * 2**20  # bytes of an allocation; glibc accepts no larger number
SECONDS_UNTIL_EXIT = 10.0  # the time a process has to end by itself once its parent is gone


def exit_with_parent() -> None:
    """End as upon SIGTERM when the launcher that started this process with a lifeline dies.

    So a killed command leaves no run behind, and the run still writes its checkpoint.
    """
    if os.environ.get(LIFELINE) == "stdin":
        threading.Thread(target=_end_with_input, daemon=True).start()


def _end_with_input() -> None:
    while os.read(0, 1024):
        pass
    if int(os.environ.get("LOCAL_RANK", "0")):
        os._exit(128 + signal.SIGTERM)  # only process 0 has a record and checkpoints
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(SECONDS_UNTIL_EXIT)  # the process may end earlier, since this thread is a daemon
    os._exit(128 + signal.SIGTERM)


def keep_freed_memory() -> None:
    """Let glibc reuse freed memory for the next tensor; do nothing with other C libraries.

    By default, large tensors are returned to the system, which clears each page when it is used again. With
    model=nano, these are about ten thousand pages per step, a twentieth of the step's time.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


@contextmanager
def process_group(
    options: TrainerOptions,
    ranks: Callable[[int], Mapping[str, str] | None],
    command: Sequence[str],
    on_lost: Callable[[int, int], None],
) -> Iterator[int]:
    """Yield this process's number among those that share the run; process 0 writes the record.

    Within the block, they form PyTorch's default process group. `ranks` is `Launcher.ranks`: if the launcher
    has not started all processes, process 0 starts the others with the same `command`, and ends them. If one
    of these fails, `on_lost` is called in another thread with its number and exit status, since process 0
    might wait for it forever. Raise ConfigError like `ranks`.
    """
    world = options.devices * options.nodes
    if world == 1:
        yield 0
        return
    if options.nodes == 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    if "LOCAL_RANK" not in os.environ:
        os.environ.update(ranks(world) or {})
    with ExitStack() as stack:
        stack.callback(_leave)  # runs last: the others are ended before they notice that this one left
        if "LOCAL_RANK" not in os.environ:
            first = {"LOCAL_RANK": "0", "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
            with socket.create_server(("127.0.0.1", 0)) as free:
                os.environ.update(first, MASTER_PORT=str(free.getsockname()[1]))
            for number in range(1, world):
                stack.enter_context(_started(number, command, on_lost))
        number = int(os.environ.get("NODE_RANK", "0")) * options.devices + int(os.environ["LOCAL_RANK"])
        if number:
            for number_of_signal in (signal.SIGTERM, signal.SIGINT):  # process 0 decides when to stop
                signal.signal(number_of_signal, signal.SIG_IGN)
        _join(number, world, options.accelerator == "cuda")
        yield number


def _join(number: int, world: int, cuda: bool) -> None:
    """Join the process group at MASTER_ADDR and MASTER_PORT, and wait for the others."""
    import torch

    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("nccl" if cuda else "gloo", rank=number, world_size=world)


def _leave() -> None:
    import torch

    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@contextmanager
def _started(number: int, command: Sequence[str], on_lost: Callable[[int, int], None]) -> Iterator[None]:
    environment = {**os.environ, "LOCAL_RANK": str(number), LIFELINE: "stdin"}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    ending = threading.Event()

    def watch() -> None:
        if process.wait() and not ending.is_set():
            on_lost(number, process.returncode)

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        ending.set()
        if process.poll() is None:
            process.kill()  # process 0 has everything that is recorded
        process.wait()
