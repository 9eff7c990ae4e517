# SPDX-License-Identifier: Apache-2.0
"""A program of a user's: types that print alike and differ, and a function that ``recompile()`` compiles again."""

from __future__ import annotations

import enum
from collections import namedtuple

from numba import cuda, types
from numba.cuda.typing.typeof import typeof
from numba_stub import compiled
from protocol import run

from lockcache.integrations.numba import install

is_installed = install()

_VALUES = (
    namedtuple("Point", "x y")(1, 2),
    namedtuple("Point", "y x")(1, 2),
    enum.IntEnum("Color", {"x": 1009}).x,
    enum.IntEnum("Color", {"x": 7919}).x,
)
FACTOR = 111_111


def _code(kernel, value) -> str:
    signature = (types.int64[:], typeof(value))
    kernel.compile(signature)
    return kernel.inspect_asm(signature)


def _of_points():
    @cuda.jit(cache=True)
    def kernel(out, point):
        out[0] = point.x

    return kernel


@cuda.jit(cache=True)
def _scaled(out, factor):
    out[0] = factor * FACTOR


def compile_kernel(number: int) -> bool:
    """Compile a kernel: 0 and 1 read different fields; 2 and 3 have different keys; 4 is after a constant changed."""
    global FACTOR
    if number < 2:
        return f"_param_{(7, 8)[number]}]" in _code(_of_points(), _VALUES[number])
    if number < 4:
        from lockcache.integrations.framework_keys import describe_types

        one, other = (describe_types(typeof(each)) for each in _VALUES[2:])
        return repr(typeof(_VALUES[2])) == repr(typeof(_VALUES[3])) and one != other and " at 0x" not in one
    _code(_scaled, 1)  # constants are not in numba's key, so a later process finds the kernel of an earlier one
    FACTOR += 111_111
    _scaled.recompile()
    return str(FACTOR) in _code(_scaled, 1)


run(compile_kernel, compiled, is_installed)
