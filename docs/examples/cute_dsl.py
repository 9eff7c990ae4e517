# SPDX-License-Identifier: Apache-2.0
"""CuTe DSL: a kernel by ``cute.compile``, compiled once for all processes. Compiles for sm_90a without a GPU."""

from __future__ import annotations

import os

os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")  # else that of this machine's GPU

import cutlass
from cutlass import cute

import lockcache.integrations.cute


@cute.kernel
def kernel(n: cutlass.Int32) -> None:
    thread, _, _ = cute.arch.thread_idx()
    cute.printf("{}", thread + n)


@cute.jit
def host(n: cutlass.Int32) -> None:
    kernel(n).launch(grid=(1, 1, 1), block=(32, 1, 1))


def main() -> None:
    # Before the first kernel. `lockcache run -- python PROGRAM` does the same without this line.
    lockcache.integrations.cute.install()
    cute.compile(host, cutlass.Int32(1))
    print("compiled or found; on a machine with a GPU, call what cute.compile returned")


if __name__ == "__main__":
    main()
