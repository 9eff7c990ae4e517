"""A process that compiles kernels with Triton itself, for a GPU that need not be there. Does not import lockcache.

``python triton_crowd.py SEED SECONDS`` prints the numbers of kernels from the cache and of compilations. Any error of
Triton's ends the process.
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found]
from triton.compiler import ASTSource  # type: ignore[import-not-found]

#: The number of kernels.
KERNELS = 8


@triton.jit  # type: ignore[untyped-decorator]
def add(x, y, n, amount: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: N803
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) + amount, mask=at < n)


def compile_one(amount: int, block: int, warps: int) -> None:
    signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "amount": "constexpr", "BLOCK": "constexpr"}
    source = ASTSource(fn=add, signature=signature, constexprs={(3,): amount, (4,): block})
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
    assert compiled.asm["cubin"].startswith(b"\x7fELF")
    assert ".entry add" in compiled.asm["ptx"]


def main(seed: int, seconds: float) -> None:
    counts = {True: 0, False: 0}

    def listen(*, cache_hit: bool, **_: Any) -> None:
        counts[cache_hit] += 1

    triton.knobs.compilation.listener = listen
    draw = random.Random(seed)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        compile_one(draw.randrange(2), 64 << draw.randrange(2), 1 << draw.randrange(2))
    print(counts[True], counts[False])


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
