"""Workers as MPI ranks, started by a real ``mpiexec``: ``python -m lockcache_stress.run.mpi_workers PLAN``."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from lockcache_stress.plan import Plan, now_us
from lockcache_stress.run.group import Workers

__all__ = ["Ranks", "find_mpiexec", "started_job", "why_no_mpi"]


def find_mpiexec() -> str | None:
    """The program next to this interpreter, where a wheel puts it, or on the path."""
    neighbour = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    return neighbour if os.access(neighbour, os.X_OK) else shutil.which("mpiexec")


def why_no_mpi() -> str | None:
    """Why no ranks can be started here."""
    if find_mpiexec() is None:
        return "needs mpiexec: pip install mpich mpi4py"
    try:
        import mpi4py  # noqa: F401
    except ImportError:
        return "needs mpi4py: pip install mpich mpi4py"
    return None


@contextmanager
def started_job(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A job in a session of its own; all of it is ended with the block."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Ranks(Workers):
    """The job. No rank is killed on the way, since MPI would end the others, or stopped: its proxies would see that."""

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
