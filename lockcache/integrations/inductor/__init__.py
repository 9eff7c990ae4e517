# SPDX-License-Identifier: Apache-2.0
"""Torch Inductor's compilations on lockcache: each made once by all processes of a machine. Experimental.

:func:`install`, before the first ``torch.compile``; or ``lockcache run``. The directory is ``$LOCKCACHE_DIR``. Inductor
asks its own directory (``$TORCHINDUCTOR_CACHE_DIR``) first and stores there too, which is not under the cap. What it
asks a remote cache for goes to lockcache: graphs and bundles of graphs, by turns, what AOTAutograd makes of them, and
Dynamo's profile of a job. What the C++ compiler builds (kernels for the CPU, and the trials by which Inductor finds out
which vector instructions there are) is built once too. Triton's kernels have an adapter of their own,
:mod:`lockcache.integrations.triton`. Ranks of a distributed program do not wait for each other's graphs. What
AOTAutograd makes is stored where Inductor stores it too: torch 2.6 does if ``TORCHINDUCTOR_AUTOGRAD_CACHE`` is 1.

What autotuning chose for a kernel (Inductor's ``.best_config`` files) is shared with processes of the same GPU and
Triton, and nobody waits for it. Inductor's compile workers know only what is in Inductor's own directory.

Values are pickles and machine code: who may write to the directory may run code in the processes that read it. A
directory that others write to needs a signing key.

Tried with torch 2.6.0, 2.13.0 and 2.14.1. If its private parts are others, or it has a remote cache already, Inductor
keeps what it has, with a warning. If only the parts for C++ are others, C++ alone is built on each node.

Promises invariant 7 (never take the job down) for programs that compile with Inductor: whatever fails here, Inductor
does what it does without lockcache.

May use: adapter, framework_keys, key_parts, staged.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.integrations.inductor.adapting import install
    from lockcache.integrations.inductor.ranks import has_ranks, would_hang
else:
    __getattr__, __dir__ = door(__name__)
