# SPDX-License-Identifier: Apache-2.0
"""The workers of a run: spawned processes (:class:`SpawnedWorkers`), or the ranks of one MPI job (:class:`Ranks`).

A real ``mpiexec`` starts ranks: ``python -m lockcache_stress.run.workers PLAN``. No worker and no rank is left when the
``with`` block ends.
"""

from __future__ import annotations

import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from glob import glob
from multiprocessing.process import BaseProcess
from typing import Final

from lockcache_stress.plan import Plan, now_us
from lockcache_stress.processes import start_process, wait_until
from lockcache_stress.run.counters import Counters
from lockcache_stress.run.worker import run_worker, stacks_path

# Spawning 32 interpreters on two cores takes some ten seconds; on a loaded or emulated machine it takes much longer.
_READY_SECONDS: Final = 180.0
# The time after the stop time in which a worker may finish its operation, such as a compilation or a put that waits.
_GRACE_SECONDS: Final = 30.0
# The time in which a worker that hangs may write its stacks.
_STACKS_SECONDS: Final = 2.0


class Workers(ABC):
    """The worker processes of one run, none of which is left when the ``with`` block ends."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.counters = Counters(plan)
        #: The deaths of workers that should not have died.
        self.deaths: list[str] = []
        self.kills = 0

    @abstractmethod
    def __enter__(self) -> Workers: ...

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...

    @abstractmethod
    def is_working(self) -> bool:
        """Returns whether any worker still has something to do. A worker that died meanwhile is counted as a death."""

    @abstractmethod
    def hung(self) -> list[str]:
        """Returns the names of the workers that are still at work."""

    def pids(self) -> Iterator[int]:
        """Returns the process ids of all workers that may be stopped for a moment."""
        return iter(())

    def kill_one(self) -> bool:
        """SIGKILL a random worker, and start another under a new writer number. Returns whether there was a worker."""
        return False

    def wait_until_ready(self) -> None:
        """Wait until every worker has imported what it needs and opened the cache."""

        def are_ready() -> bool:
            return self.counters.total("ready") >= self._plan.processes or not self.is_working() or bool(self.deaths)

        if not wait_until(are_ready, _READY_SECONDS):
            raise TimeoutError(f"the workers did not start within {_READY_SECONDS:.0f} s")

    def go(self) -> None:
        """Let the workers begin."""
        self.counters.start(now_us(), self._plan.latest_stop_us())

    def finish(self) -> None:
        """Have all workers end, and wait. A worker that does not end in time is a death, and ends with the block.

        Where its threads are is a finding.
        """
        self.counters.stop()
        if not wait_until(lambda: not self.is_working(), _GRACE_SECONDS):
            self.deaths += [f"{name} still hung {_GRACE_SECONDS:.0f} s after its time" for name in self.hung()]
            self._write_stacks()

    def _write_stacks(self) -> None:
        """Have the workers that are still at work write where their threads are, for :func:`.runner.read_findings`."""
        pids = list(self.pids())
        for pid in pids:
            os.kill(pid, signal.SIGUSR1)

        def have_written() -> bool:
            return sum(map(bool, map(os.path.getsize, glob(stacks_path(self._plan, "*"))))) >= len(pids)

        wait_until(have_written, _STACKS_SECONDS)


class SpawnedWorkers(Workers):
    """Spawned processes."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._epoch_us = now_us()
        self._rng = random.Random(f"{plan.seed}/victims")
        self._workers: dict[int, tuple[BaseProcess, int]] = {}
        self._next_writer = 0

    def __enter__(self) -> SpawnedWorkers:
        try:
            for index in range(self._plan.processes):
                self._start(index)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process, _index in self._workers.values():
            process.kill()
        for process, _index in self._workers.values():
            process.join()
            process.close()
        self._workers.clear()

    def pids(self) -> Iterator[int]:
        return (process.pid for process, _ in self._workers.values() if process.pid is not None)

    def is_working(self) -> bool:
        self._reap()
        return bool(self._workers)

    def kill_one(self) -> bool:
        at_work = [writer for writer in self._workers if self.counters.get(writer, "operations")]
        if not at_work or self._next_writer >= self._plan.columns:
            return False
        writer = self._rng.choice(at_work)
        process, index = self._workers.pop(writer)
        process.kill()
        process.join()
        process.close()
        self.kills += 1
        self._start(index)
        return True

    def hung(self) -> list[str]:
        return [f"worker {writer}" for writer in self._workers]

    def _start(self, index: int) -> None:
        writer, self._next_writer = self._next_writer, self._next_writer + 1
        self._workers[writer] = self._spawn(writer, index), index

    def _spawn(self, writer: int, index: int) -> BaseProcess:
        return start_process(run_worker, self._plan, writer, index, self._epoch_us)

    def _reap(self) -> None:
        for writer, (process, _) in list(self._workers.items()):
            if process.is_alive():
                continue
            if code := process.exitcode:
                how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
                self.deaths.append(f"worker {writer} ended with {how}")
            process.close()
            del self._workers[writer]


class Ranks(Workers):
    """The ranks of one MPI job. None is killed or stopped: MPI's proxies would notice, and end the other ranks."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._process: subprocess.Popen[bytes] | None = None
        self._job = ExitStack()

    def __enter__(self) -> Ranks:
        path = os.path.join(self._plan.control, "plan.pickle")
        with open(path, "wb") as file:
            pickle.dump((self._plan, now_us()), file)
        command = [str(find_mpiexec()), "-n", str(self._plan.processes), sys.executable, "-m", __name__, path]
        self._process = self._job.enter_context(started_job(command))
        return self

    def __exit__(self, *_: object) -> None:
        self._job.close()

    def is_working(self) -> bool:
        code = None if self._process is None else self._process.poll()
        if code and not self.deaths:
            self.deaths.append(f"mpiexec ended with exit code {code}")
        return code is None

    def hung(self) -> list[str]:
        return ["the job"] if self.is_working() else []


def find_mpiexec() -> str | None:
    """Returns the program next to this interpreter, where a wheel puts it, or on the path."""
    neighbour = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    return neighbour if os.access(neighbour, os.X_OK) else shutil.which("mpiexec")


def why_no_mpi() -> str | None:
    """Returns why ranks cannot be started here; ``None`` if they can."""
    if find_mpiexec() is None:
        return "needs mpiexec: pip install mpich mpi4py"
    try:
        import mpi4py  # noqa: F401
    except ImportError:
        return "needs mpi4py: pip install mpich mpi4py"
    return None


@contextmanager
def started_job(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a job in a session of its own; all of it is ended with the block."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main() -> None:
    """Run one rank, which begins to work when all ranks have opened the cache."""
    from mpi4py import MPI

    with open(sys.argv[1], "rb") as file:
        plan, epoch_us = pickle.load(file)
    rank = MPI.COMM_WORLD.Get_rank()
    MPI.COMM_WORLD.Barrier()
    run_worker(plan, rank, rank, epoch_us)
    MPI.COMM_WORLD.Barrier()


if __name__ == "__main__":
    main()
