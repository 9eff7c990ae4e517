"""A program of a user's: one function of numba-cuda's that is compiled for hundreds of types. The types are numbers."""

from __future__ import annotations

import itertools
import sys
from types import SimpleNamespace

from numba import cuda, types
from numba.cuda import dispatcher
from numba.cuda.cudadrv import devices
from protocol import run

from lockcache.integrations.numba import install

compiled = []
_device = SimpleNamespace(compute_capability=(9, 0), id=0, uuid="GPU-0")
devices._runtime.get_or_create_context = lambda *_: SimpleNamespace(device=_device, id=0)
dispatcher._Kernel.bind = lambda self: None
_make = dispatcher._Kernel.__init__


def _counted(*args, **options):
    compiled.append(1)
    _make(*args, **options)


dispatcher._Kernel.__init__ = _counted
is_installed = "own" not in sys.argv and install()

_NUMBERS = (types.int8, types.int16, types.int32, types.int64, types.uint8, types.uint16, types.uint32, types.float32)
SIGNATURES = [*itertools.product((types.float64[:],), *[(*_NUMBERS, types.uint64, types.float64)] * 3)]


@cuda.jit(cache=True)
def kernel(out, first, second, third):
    out[0] = first + second * third


def compile_kernel(number: int) -> bool:
    found = kernel.compile(SIGNATURES[number])
    return found.signature.args == SIGNATURES[number]


run(compile_kernel, compiled, is_installed)
