# SPDX-License-Identifier: Apache-2.0
"""Triton's cache on lockcache: each kernel and launcher compiled once by all processes of a machine.

``TRITON_CACHE_MANAGER=lockcache.integrations.triton:LockcacheManager`` in the environment, and no line of code; or
:func:`install`, before the first kernel. The directory is ``$LOCKCACHE_DIR``. All files of a kernel, the intermediate
ones and its metadata, are one entry; Triton is given their paths in a view of it (``view_files``), so it never loads
the files of two writers. Where there can be no view, the files are written into a temporary folder of this process.

A launcher is machine code that Triton loads into the process: who may write to the directory may run code in the
processes that read it. A directory that others write to needs a signing key.

A compilation that raises gives its turn up at once, also where a notebook or a debugger keeps the exception and with it
all that the compilation held.

Results of autotuning are stored, and nobody waits for them: a benchmark may need all ranks. What
``TRITON_KERNEL_OVERRIDE``, ``TRITON_KERNEL_DUMP`` and ``USE_IR_LOC`` read and write is in Triton's own directories.

Tried with Triton 3.2.0 to 3.9.0. If its private parts are others, Triton keeps its own cache, with a warning.

Promises invariant 7 (never take the job down) for programs that compile with Triton.

May use: adapter, framework_keys, key_parts, staged.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.integrations.triton.adapting import LockcacheManager, describe_metadata, install, stored_name
else:
    __getattr__, __dir__ = door(__name__)
