# SPDX-License-Identifier: Apache-2.0
"""numba-cuda's cache of kernels (``@cuda.jit(cache=True)``) on lockcache: one entry a kernel, and no index to race for.

:func:`install`, before the first kernel is compiled. The directory is ``$LOCKCACHE_DIR``. numba's own directory is made
all the same, and stays empty but for its marks of kernels that depend on how they are launched.

Values are numba's pickles: who may write to the directory may run code in the processes that read it. Keys are numba's,
without the path and time of the source file, and with what numba leaves out: the program of the kernel
(``lockcache.integrations.framework_keys``), numba's settings, and the builds of NVVM, libdevice, NVRTC and the
linker. A kernel whose program cannot be described, or whose key has an address in it, since an argument is an object
without a name, stays in numba's own cache.

Tried with numba-cuda 0.22.2 to 0.30.4. If its private parts are others, numba keeps its own cache, with a warning.
numba-cuda-mlir, which has the same cache, is :mod:`lockcache.integrations.numba_mlir`.

Promises invariant 7 (never take the job down) for programs that compile with numba: whatever fails here, numba does
what it does without lockcache.

May use: adapter, framework_keys, key_parts.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.integrations.numba.adapting import install
    from lockcache.integrations.numba.kernels import Doors, adapt_kernels
else:
    __getattr__, __dir__ = door(__name__)
