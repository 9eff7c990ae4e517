# SPDX-License-Identifier: Apache-2.0
"""A program of a user's: calls functions of CuTe DSL, which has them compiled, or finds them in its own directory."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")

import cutlass
from cute_kernels import host
from cutlass.base_dsl.compiler import Compiler
from protocol import run

from lockcache.integrations.cute import install

compiled = []
_compile = Compiler.compile


def _counted(*args, **options):
    compiled.append(1)
    return _compile(*args, **options)


Compiler.compile = _counted
is_installed = "own" not in sys.argv and install()


def compile_kernel(number: int) -> bool:
    host(cutlass.Int32(1), number + 1)  # an exception without a GPU, when it is compiled
    return True


run(compile_kernel, compiled, is_installed)
