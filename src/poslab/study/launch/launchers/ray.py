"""A Ray cluster, or a Ray of our own on this machine: every run a task, in a process of its own.

The task is a small function in a Ray worker that starts the run, waits for it and hands back its status.
A joined cluster must see the study's folder, the code and the Python environment where this machine sees
them, and runs get the environment variables that its workers have, not ours.
"""

import importlib
import logging
import math
import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import Field

from poslab.config.schema import ConfigError
from poslab.study.launch.contract import LIFELINE, End, Launcher, LauncherOptions, Task
from poslab.study.launch.devices import cores

GRACE = 4.0  # seconds that a run has to end once it was asked to
LOOK = 0.2  # seconds between two looks of a worker at its run
PATIENCE = 5.0  # seconds that a cluster has to answer at its address
DELIVERY = 2.0  # seconds that workers have to end their runs when all are killed
OBJECT_STORE = 80 * 2**20  # bytes, about the least that Ray takes: a task hands back one number
LOOPBACK = "127.0.0.1"

OURS = {  # read by Ray when it is imported, and by the processes that it starts
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # or else it takes the machine's outer address for LOOPBACK
    "RAY_worker_niceness": "0",  # or else runs give way to every other program
}
# When a worker ends with its Ray, the run writes its checkpoint and ends by itself, for want of its lifeline.
WORKERS = {"env_vars": {"RAY_kill_child_processes_on_worker_exit": "0"}}


class RayOptions(LauncherOptions):
    address: str | None = Field(
        pattern=r"^(auto|[^/\s]+:\d+)$", description="of the cluster to join; null: start Ray on this machine"
    )
    cores_per_run: int = Field(ge=1)
    runs_per_gpu: int = Field(ge=1, description="runs that share a GPU")


class Ray(Launcher):
    options_class = RayOptions

    @classmethod
    def here(cls, options: RayOptions) -> bool:
        return options.address is None

    def __init__(self, options: RayOptions, runs: int) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # nothing is told to Ray's makers
        if options.address is None:
            os.environ.update(OURS)
        try:
            self.ray: Any = importlib.import_module("ray")
        except ImportError:
            raise ConfigError("launcher=ray needs Ray: uv run --extra ray train.py ...") from None
        self.options = options
        self.started: dict[Any, Task] = {}  # by Ray's reference to the task's result
        self._connected = False

    def start(self, task: Task) -> bool:
        """Hand the task to Ray, which starts it when its devices are free: always True."""
        options = self.options
        if task.nodes > 1:
            raise ConfigError("launcher=ray makes a run on one machine: launcher=slurm for several nodes")
        if not task.cuda and options.runs_per_gpu > 1:
            raise ConfigError(
                f"launcher.runs_per_gpu={options.runs_per_gpu} is for runs on GPUs, and this one is on CPU"
            )
        if task.devices > 1 and options.runs_per_gpu > 1:
            raise ConfigError("launcher.runs_per_gpu above 1 is for runs on one GPU each: trainer.devices=1")
        if not self._connected:
            self._connect()
        gpus = task.devices if task.cuda else 0
        self._check(gpus)
        if options.runs_per_gpu > 1:  # Ray counts in steps of 0.0001, and must not round a share up
            share: float = math.floor(10_000 / options.runs_per_gpu) / 10_000
        else:
            share = gpus
        attend = self.ray.remote(
            num_cpus=options.cores_per_run,
            num_gpus=share,
            max_retries=0,  # the study decides whether a run that was killed is made again
            max_calls=1,
        )(_attend)
        threads = max(1, options.cores_per_run // task.devices)
        reference = attend.options(name=task.name).remote(
            task.command, str(task.working_directory), str(task.log), threads
        )
        self.started[reference] = task
        return True

    def _connect(self) -> None:
        """Start Ray, or join it, and keep the caller's handler of SIGTERM, which Ray replaces."""
        logging.getLogger("ray").setLevel(logging.ERROR)
        address = self.options.address
        before = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL
        try:
            quiet = {"configure_logging": False, "log_to_driver": False, "runtime_env": WORKERS}
            if address is None:
                self.ray.init(
                    address="local",
                    num_cpus=len(cores()),
                    object_store_memory=OBJECT_STORE,
                    include_dashboard=False,
                    _node_ip_address=LOOPBACK,
                    **quiet,
                )
            else:
                _knock(address)
                self.ray.init(address=address, **quiet)
        except SystemExit:  # Ray's answer to SIGTERM; it was meant for the caller's handler
            signal.signal(signal.SIGTERM, before)
            signal.raise_signal(signal.SIGTERM)
            raise
        except (OSError, OverflowError, ValueError, RuntimeError) as error:
            if address is None:
                raise
            reason = str(error).partition("\n")[0]
            raise ConfigError(f"launcher.address={address!r} cannot be joined: {reason}") from None
        finally:
            signal.signal(signal.SIGTERM, before)
        self._connected = True

    def _check(self, gpus: int) -> None:
        wanted = {"CPU": self.options.cores_per_run, "GPU": gpus}
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        if not nodes:
            raise ConfigError("Ray has lost all its machines: the same command starts it again and goes on")
        if not any(all(node.get(name, 0) >= count for name, count in wanted.items()) for node in nodes):
            raise ConfigError(
                f"a run wants launcher.cores_per_run={wanted['CPU']} and {gpus} GPUs, and none of Ray's "
                f"{len(nodes)} machines has them: choose fewer"
            )

    def ended(self) -> list[End]:
        if not self.started:
            return []
        references = list(self.started)
        ready, _ = self.ray.wait(references, num_returns=len(references), timeout=0)
        return [self._end(reference, self.started.pop(reference)) for reference in ready]

    def _end(self, reference: Any, task: Task) -> End:
        errors = self.ray.exceptions
        try:
            return End(task, self.ray.get(reference))
        except errors.WorkerCrashedError:
            return End(task, None, "its Ray worker was killed")
        except errors.OutOfMemoryError:
            return End(task, None, "its Ray worker was killed for want of memory")
        except errors.TaskCancelledError:
            return End(task, None, "it was cancelled", again=False)
        except errors.RayError as error:  # such as a node that was lost
            lines = str(error).strip().splitlines()
            return End(task, None, lines[-1] if lines else type(error).__name__)

    def stop(self) -> None:
        for reference in self.started:
            self.ray.cancel(reference, force=False)

    def kill(self) -> None:
        """A run that was asked to end before ends at once, another one within GRACE."""
        self.stop()
        if self.started:
            self.ray.wait(list(self.started), num_returns=len(self.started), timeout=DELIVERY)

    def close(self) -> None:
        if self._connected:
            self.ray.shutdown()
            self._connected = False


def _knock(address: str) -> None:
    """Raises OSError where nobody listens at HOST:PORT: Ray itself would go on asking for minutes."""
    host, _, port = address.rpartition(":")
    if host:
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()


def _attend(command: Sequence[str], working_directory: str, log: str, threads: int) -> int:
    """Start a run, in a Ray worker, and wait for it; its exit status, negative where a signal killed it.

    KeyboardInterrupt, which is how Ray cancels a task, asks the run to end, and a second one ends it. Where
    the worker itself is ended, the lifeline is enough: a signal beside it would be the run's second.
    """
    # Ray's workers block SIGINT, and the run would inherit that.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    count = str(threads)
    environment = {**os.environ, LIFELINE: "stdin", "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count}
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    with Path(log).open("ab") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=working_directory,
            env=environment,
            start_new_session=True,
        )
    try:
        _wait(process)
    except KeyboardInterrupt:
        process.terminate()
        with suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
            process.wait(GRACE)
    with suppress(ProcessLookupError, PermissionError):  # of the run's group, where anybody is left of it
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def _wait(process: subprocess.Popen[bytes]) -> None:
    """In short waits: a long one, in the operating system, would not hear of a KeyboardInterrupt."""
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(LOOK)
            return
