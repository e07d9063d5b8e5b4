"""Runs on a Ray cluster, or with Ray on this machine: every run is a Ray task, in a separate process.

The Ray task is a small function in a worker that starts the run, waits for it and returns its exit status. On
an existing cluster, the study's folder, the code and the Python environment must have the same paths as on
this machine, and runs get the environment variables of the workers.
"""

import importlib
import logging
import math
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import Field

from poslab.config.installation import with_extra
from poslab.config.schema import ConfigError
from poslab.study.launch.contract import LIFELINE, End, Launcher, LauncherOptions, Places, Task
from poslab.study.launch.devices import gpus
from poslab.study.launch.machine import cores

SECONDS_UNTIL_SIGKILL = 4.0  # the time that a run has to end after SIGTERM
POLL_SECONDS = 0.2  # between two checks of a worker on its run
CONNECT_SECONDS = 5.0  # the time that a cluster has to answer at its address
KILL_SECONDS = 2.0  # the time that workers have to end their runs when all are killed
OBJECT_STORE = 80 * 2**20  # bytes, about the least that Ray accepts, since a task returns only one number
LOOPBACK = "127.0.0.1"

VARIABLES = {  # read by Ray when it is imported, and by the processes that it starts
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # otherwise Ray replaces LOOPBACK with an external address
    "RAY_worker_niceness": "0",  # otherwise runs have a lower priority than all other programs
}
# When a worker ends, its run must not be killed: it loses its lifeline, writes its checkpoint and ends.
WORKERS = {"env_vars": {"RAY_kill_child_processes_on_worker_exit": "0"}}


class RayOptions(LauncherOptions):
    address: str | None = Field(
        pattern=r"^(auto|[^/\s]+:\d+)$", description="of the cluster to join; null: start Ray on this machine"
    )
    cores_per_run: int = Field(ge=1, description="CPU cores of a run")
    runs_per_gpu: int = Field(ge=1, description="runs that share a GPU")


class Ray(Launcher):
    options_class = RayOptions
    queues = True

    @classmethod
    def on_this_machine(cls, options: RayOptions) -> bool:
        return options.address is None

    @classmethod
    def places(cls, options: RayOptions, runs: int, task: Task) -> Places | None:
        if not cls.on_this_machine(options):
            return None
        if task.cuda:
            return Places(tuple(f"GPU {name}" for name in gpus()), task.devices, options.runs_per_gpu)
        return Places(tuple(f"core {number}" for number in cores()), options.cores_per_run)

    def __init__(self, options: RayOptions, runs: int) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # nothing is sent to Ray's developers
        if options.address is None:
            os.environ.update(VARIABLES)
        try:
            self.ray: Any = importlib.import_module("ray")
        except ImportError:
            raise ConfigError(f"launcher=ray needs Ray: {with_extra('ray')}") from None
        self.options = options
        self.started: dict[Any, Task] = {}  # by Ray's reference to the task's result
        self._connected = False

    def start(self, task: Task) -> bool:
        """Submit the task to Ray, which starts it when its devices are free, and return True."""
        options = self.options
        if task.nodes > 1:
            raise ConfigError("launcher=ray uses one machine per run: choose launcher=slurm for more nodes")
        if not task.cuda and options.runs_per_gpu > 1:
            raise ConfigError(
                f"launcher.runs_per_gpu={options.runs_per_gpu} is for runs on GPUs, and this one is on CPU"
            )
        if task.devices > 1 and options.runs_per_gpu > 1:
            raise ConfigError(
                "launcher.runs_per_gpu above 1 is for runs of one GPU: choose trainer.devices=1"
            )
        if not self._connected:
            self._connect()
        gpus = task.devices if task.cuda else 0
        self._check(gpus)
        if options.runs_per_gpu > 1:  # Ray counts in steps of 0.0001, and must not round a share up
            share: float = math.floor(10_000 / options.runs_per_gpu) / 10_000
        else:
            share = gpus
        remote = self.ray.remote(
            num_cpus=options.cores_per_run,
            num_gpus=share,
            max_retries=0,  # the pool decides whether a killed run is started again
            max_calls=1,
        )(_run_and_wait)
        threads = max(1, options.cores_per_run // task.devices)
        reference = remote.options(name=task.name).remote(
            task.command, str(task.working_directory), str(task.log), threads
        )
        self.started[reference] = task
        return True

    def _connect(self) -> None:
        """Start or join Ray, and restore the caller's handler for SIGTERM, which Ray replaces."""
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
                _check_address(address)
                self.ray.init(address=address, **quiet)
        except SystemExit:  # Ray raises it upon a SIGTERM that is meant for the caller's handler
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
        needed = {"CPU": self.options.cores_per_run, "GPU": gpus}
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        if not nodes:
            raise ConfigError("Ray has lost all its machines: run the same command again to resume")
        if not any(all(node.get(name, 0) >= count for name, count in needed.items()) for node in nodes):
            cpu = ", or trainer.accelerator=cpu" if gpus else ""
            raise ConfigError(
                f"a run needs launcher.cores_per_run={needed['CPU']} and {gpus} GPUs, but none of Ray's "
                f"{len(nodes)} machines has them: choose fewer{cpu}"
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
            return End(task, None, "its Ray worker was killed because memory ran out", restartable=False)
        except errors.TaskCancelledError:
            return End(task, None, "it was cancelled", restartable=False)
        except errors.RayError as error:  # for example, a node was lost
            lines = str(error).strip().splitlines()
            return End(task, None, lines[-1] if lines else type(error).__name__)

    def stop(self) -> None:
        for reference in self.started:
            self.ray.cancel(reference, force=False)

    def kill(self) -> None:
        """End at once the runs that were stopped before, and all others within SECONDS_UNTIL_SIGKILL."""
        self.stop()
        if self.started:
            self.ray.wait(list(self.started), num_returns=len(self.started), timeout=KILL_SECONDS)

    def close(self) -> None:
        if self._connected:
            self.ray.shutdown()
            self._connected = False


def _check_address(address: str) -> None:
    """Raise OSError if nothing listens at HOST:PORT; Ray itself would try to connect for minutes."""
    host, _, port = address.rpartition(":")
    if host:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()


def _run_and_wait(command: Sequence[str], working_directory: str, log: str, threads: int) -> int:
    """Run a task in a Ray worker, and return its exit status, which is negative if a signal ended it.

    Ray cancels a task with KeyboardInterrupt: the first sends the run SIGTERM, the second ends it. If the
    worker itself is ended, the lifeline ends the run; a signal would count as its second one.
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
        while process.poll() is None:
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        process.terminate()
        with suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
            process.wait(SECONDS_UNTIL_SIGKILL)
    with suppress(ProcessLookupError, PermissionError):  # the run's process group has ended
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()
