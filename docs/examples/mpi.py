# SPDX-License-Identifier: Apache-2.0
"""MPI: all ranks want the same kernels, and each is compiled by one of them. No rank compiles for the others."""

from __future__ import annotations

from cuda.core import ProgramOptions
from mpi4py import MPI

from lockcache import FileStreamProgramCache
from lockcache.cuda import Program

SOURCE = "template <typename T> __global__ void axpy(T a, const T *x, T *y) { y[threadIdx.x] += a * x[threadIdx.x]; }"


def main() -> None:
    with FileStreamProgramCache() as cache:  # in $LOCKCACHE_DIR: one directory for all ranks
        for name in ("axpy<float>", "axpy<double>", "axpy<int>"):
            program = Program(SOURCE, "c++", ProgramOptions(arch="sm_90"))
            program.compile("cubin", name_expressions=[name], cache=cache)
        compiled = MPI.COMM_WORLD.reduce(cache.stats().puts)
    if MPI.COMM_WORLD.rank == 0:
        print(f"{MPI.COMM_WORLD.size} ranks, 3 kernels: compiled {compiled}")


if __name__ == "__main__":
    main()
