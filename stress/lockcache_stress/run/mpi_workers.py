"""Workers as MPI ranks, started by a real ``mpiexec``: ``python -m lockcache_stress.run.mpi_workers PLAN``."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Final

from lockcache_stress.plan import Plan, now_us
from lockcache_stress.run.counters import Counters

__all__ = ["Ranks", "find_mpiexec", "why_no_mpi"]

_READY_SECONDS: Final = 120.0
_GRACE_SECONDS: Final = 30.0


def find_mpiexec() -> str | None:
    """The program next to this interpreter, where a wheel puts it, or on the path."""
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    return beside if os.access(beside, os.X_OK) else shutil.which("mpiexec")


def why_no_mpi() -> str | None:
    """Why no ranks can be started here."""
    if find_mpiexec() is None:
        return "needs mpiexec: pip install mpich mpi4py"
    try:
        import mpi4py  # noqa: F401
    except ImportError:
        return "needs mpi4py: pip install mpich mpi4py"
    return None


class Ranks:
    """The job, with what the runner asks of its crew. None is killed on the way: MPI would end the others."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._process: subprocess.Popen[bytes] | None = None
        self.counters = Counters(plan)
        self.deaths: list[str] = []
        self.kills = 0

    def __enter__(self) -> Ranks:
        path = os.path.join(self._plan.control, "plan.pickle")
        with open(path, "wb") as file:
            pickle.dump((self._plan, now_us()), file)
        command = [str(find_mpiexec()), "-n", str(self._plan.processes), sys.executable, "-m", __name__, path]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def wait_until_ready(self) -> None:
        """Until every rank has opened the cache."""
        deadline = time.monotonic() + _READY_SECONDS
        while self.counters.total("ready") < self._plan.processes and self.is_working():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the ranks did not start within {_READY_SECONDS:.0f} s")
            time.sleep(0.01)

    def go(self) -> None:
        """Let them begin."""
        self.counters.start(now_us(), self._plan.latest_stop_us())

    def pids(self) -> Iterator[int]:
        """None: mpiexec's proxies must not see their ranks stopped."""
        return iter(())

    def is_working(self) -> bool:
        """Whether the job goes on."""
        code = None if self._process is None else self._process.poll()
        if code and not self.deaths:
            self.deaths.append(f"mpiexec ended with exit code {code}")
        return code is None

    def kill_one(self) -> None:
        """Nobody is killed."""

    def finish(self) -> None:
        """Have them end, and wait for it."""
        self.counters.stop()
        deadline = time.monotonic() + _GRACE_SECONDS
        while self.is_working() and time.monotonic() < deadline:
            time.sleep(0.01)
        if self.is_working():
            self.deaths.append(f"ranks still hung {_GRACE_SECONDS:.0f} s after their time")


def main() -> None:
    """One rank: all of them open the cache, then work at once."""
    from mpi4py import MPI

    from lockcache_stress.run.worker import run_worker

    with open(sys.argv[1], "rb") as file:
        plan, epoch_us = pickle.load(file)
    rank = MPI.COMM_WORLD.Get_rank()
    MPI.COMM_WORLD.Barrier()
    run_worker(plan, rank, rank, epoch_us)
    MPI.COMM_WORLD.Barrier()


if __name__ == "__main__":
    main()
