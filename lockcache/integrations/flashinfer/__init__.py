# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's kernels on lockcache: each library that it compiles with nvcc is built once, by one of all processes.

:func:`install`, before the first kernel is used; or ``lockcache run``. The directory is ``$LOCKCACHE_DIR``. FlashInfer
writes a ``build.ninja`` into the library's folder below ``cached_ops``, as without lockcache. In the place of ninja,
lockcache looks for the library under a key of all that the commands in there depend on, and puts it into the folder.
What is missing is built by ninja, by turns, in a folder of its own next to it, and appears by one rename.

FlashInfer itself shares within one folder of one machine, whose name has its version and the architectures. The ninja
of a killed process goes on there, while that of the next one writes the same files.

Built as without lockcache: ``build_jit_specs``, libraries with cubins in them, a FlashInfer that is not installed from
a wheel or was changed since, and what cannot be described by a key. Kernels of CuTe DSL are that adapter's.

An entry is machine code for the CPU, with code for the GPU: who may write to the directory may run code in the
processes that read it. A directory that others write to needs a signing key.

Tried with FlashInfer 0.7.2.post1. If its private parts are others, it builds as without lockcache, with a warning.

Promises invariant 7 (never take the job down) for programs that use FlashInfer: whatever fails here, FlashInfer does
what it does without lockcache.

May use: adapter, cpp_extension, framework_keys.
"""

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.integrations.flashinfer.adapting import install
else:
    __getattr__, __dir__ = door(__name__)
