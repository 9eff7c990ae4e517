# SPDX-License-Identifier: Apache-2.0
"""A program of a user's: compiles kernels that fail, keeps the errors, and prints the number of open turns."""

from __future__ import annotations

import itertools
import json
import os
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TARGET = GPUTarget("cuda", 90, 32)
kept, numbers = [], itertools.count(1)  # the numbers make each kernel another one


@triton.jit
def kernel(p, constant: tl.constexpr):
    tl.store(p, constant)


@triton.jit
def fails(p, constant: tl.constexpr):
    tl.store(p, no_such_name + constant)  # noqa: F821


class Nesting(ASTSource):
    """Compiles two other kernels before it fails itself: a good one, and one whose error is kept too."""

    def make_ir(self, *_, **__):
        compile_kernel(ASTSource, kernel)
        compile_kernel(ASTSource, fails)
        raise ValueError("does not compile")


def compile_kernel(kind, function):
    """Compile a kernel. Returns the number of turns that are open afterwards."""
    source = kind(fn=function, signature={"p": "*i32", "constant": "constexpr"}, constexprs={(1,): next(numbers)})
    try:
        triton.compile(source, target=TARGET)
    except Exception as error:  # noqa: BLE001 - as a notebook does
        kept.append(error)
    leases = f"{os.environ['LOCKCACHE_DIR']}/lockcache/leases"
    return len(os.listdir(leases))


def compile_gluon():
    """Compile a kernel of Gluon's, which fails. Returns the number of turns that are open afterwards."""
    from triton.experimental import gluon
    from triton.experimental.gluon._runtime import GluonASTSource

    return compile_kernel(GluonASTSource, gluon.jit(fails.fn))


if "gluon-first" in sys.argv:
    import triton.experimental.gluon

found = {
    "works": compile_kernel(ASTSource, kernel),
    "fails": compile_kernel(ASTSource, fails),
    "gluon": compile_gluon(),
}
print(json.dumps({**found, "nesting": compile_kernel(Nesting, kernel), "errors": len(kept)}))
