"""The processes of a run: one that ends with whoever started it, and several that share its batches."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from poslab.config.schema import ConfigError, TrainerOptions
from poslab.study.launch.contract import LIFELINE

GRACE = 10.0  # seconds that a process has to end by itself once its starter is gone


def exit_with_parent() -> None:
    """Where we were started with a lifeline, end as on SIGTERM when whoever holds its other end is gone.

    A killed command so leaves no run behind that nobody watches, and the run writes its checkpoint.
    """
    if os.environ.get(LIFELINE) == "stdin":
        threading.Thread(target=_end_with_input, daemon=True).start()


def _end_with_input() -> None:
    while os.read(0, 1024):
        pass
    if int(os.environ.get("LOCAL_RANK", "0")):
        os._exit(128 + signal.SIGTERM)  # it holds nothing that could be lost, and its device is wanted
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(GRACE)  # this thread is a daemon: it does not hold up an end in good order
    os._exit(128 + signal.SIGTERM)


@contextmanager
def process_group(
    options: TrainerOptions, slurm: bool, command: Sequence[str], on_lost: Callable[[int, int], None]
) -> Iterator[int]:
    """This process's number among those that share the run's batches; number 0 keeps the record.

    Number 0 starts the others, with the same `command`, and ends them; under `slurm` all were started by
    Slurm. `on_lost` is called, from another thread, with the number and the exit status of one that fails:
    number 0 may then wait for it for ever. Raises ConfigError where Slurm started another number of processes
    than the run has.
    """
    world = options.devices * options.nodes
    if world == 1:
        yield 0
        return
    if options.nodes == 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    if slurm and "LOCAL_RANK" not in os.environ:
        os.environ.update(_ranks_of_slurm(world))
    if "LOCAL_RANK" in os.environ:
        number = int(os.environ.get("NODE_RANK", "0")) * options.devices + int(os.environ["LOCAL_RANK"])
        if number:
            for asked in (signal.SIGTERM, signal.SIGINT):  # number 0 decides when to stop
                signal.signal(asked, signal.SIG_IGN)
        yield number
        return
    os.environ.update(LOCAL_RANK="0", NODE_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=_free_port())
    with ExitStack() as stack:
        for number in range(1, world):
            stack.enter_context(_other(number, command, on_lost))
        yield 0


def _ranks_of_slurm(world: int) -> Mapping[str, str]:
    told = os.environ
    if "SLURM_STEP_ID" not in told or told.get("SLURM_NTASKS") != str(world):
        raise ConfigError(
            f"trainer.devices x trainer.nodes is {world}, but the processes of Slurm's job are "
            f"{told.get('SLURM_NTASKS', '1')}: give the command outside of a job, with launcher=slurm"
        )
    hosts = subprocess.run(
        ["scontrol", "show", "hostnames", told["SLURM_JOB_NODELIST"]],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    return {
        "LOCAL_RANK": told["SLURM_LOCALID"],
        "NODE_RANK": told["SLURM_NODEID"],
        "MASTER_ADDR": "127.0.0.1" if len(hosts) == 1 else hosts[0],
        "MASTER_PORT": str(20_000 + int(told["SLURM_JOB_ID"]) % 20_000),
    }


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@contextmanager
def _other(number: int, command: Sequence[str], on_lost: Callable[[int, int], None]) -> Iterator[None]:
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
            process.kill()  # it holds nothing that number 0 has not
        process.wait()
