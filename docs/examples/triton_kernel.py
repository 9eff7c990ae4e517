# SPDX-License-Identifier: Apache-2.0
"""Triton: a kernel, compiled once for all processes. Compiles for sm_90 also where there is no GPU."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import lockcache.integrations.triton


@triton.jit
def scale(x, factor: tl.constexpr, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(x + at, tl.load(x + at) * factor)


def main() -> None:
    # Before the first kernel. `lockcache run -- python PROGRAM` does the same without this line.
    lockcache.integrations.triton.install()
    # A program with a GPU calls `scale[grid](x, 3, 128)`, which compiles for that GPU in the same way.
    constants = {"factor": "constexpr", "block": "constexpr"}
    source = ASTSource(scale, {"x": "*fp32", **constants}, constexprs={(1,): 3, (2,): 128})
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    print(f"{compiled.metadata.name}: {len(compiled.asm['cubin'])} bytes for sm_90")


if __name__ == "__main__":
    main()
