# SPDX-License-Identifier: Apache-2.0
"""A stub of the device for numba-cuda, with which kernels compile and none is launched, and a count of compilations."""

from __future__ import annotations

import os
from types import SimpleNamespace

from numba.cuda import dispatcher
from numba.cuda.cudadrv import devices

compiled = []
_capability = tuple(map(int, os.environ.get("COMPUTE_CAPABILITY", "9 0").split()))
_device = SimpleNamespace(compute_capability=_capability, id=0, uuid="GPU-0")
devices._runtime.get_or_create_context = lambda *_: SimpleNamespace(device=_device, id=0)
dispatcher._Kernel.bind = lambda self: None
_make = dispatcher._Kernel.__init__


def _counted(*args, **options):
    compiled.append(1)
    _make(*args, **options)


dispatcher._Kernel.__init__ = _counted
