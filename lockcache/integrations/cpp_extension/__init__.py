# SPDX-License-Identifier: Apache-2.0
"""Torch's C++ and CUDA extensions on lockcache: each library is built once, by one of all processes and nodes.

:func:`install`, before the first ``torch.utils.cpp_extension.load`` or ``load_inline``; or ``lockcache run``. The
directory is ``$LOCKCACHE_DIR``. Torch writes a ``build.ninja`` into the extension's folder (``$TORCH_EXTENSIONS_DIR``)
as without lockcache; in the place of ninja, lockcache looks for the library under a key of all that the commands in
there depend on, and puts it into the folder. What is missing is built by ninja, by turns, in a folder of its own next
to it, and appears by one rename.

Torch before 2.14 makes a file ``lock`` while it builds. A build that was killed leaves it, and the next process waits
for ever. Here a killed builder's turn falls with its process, and a ``lock`` that nobody has open any more is taken
over. From 2.14 on torch locks the file instead, for each load, and so it does here.

Extensions of ``setup.py``, and what cannot be described by a key, are built as without lockcache.

An entry is machine code for the CPU: who may write to the directory may run code in the processes that read it. A
directory that others write to needs a signing key.

Tried with torch 2.13.0 and 2.14.1 for the CPU. If its private parts are others, torch builds as without lockcache, with
a warning.

Promises invariant 7 (never take the job down) for programs that build extensions: whatever fails here, torch does what
it does without lockcache.

May use: adapter, framework_keys, key_parts, staged.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.integrations.cpp_extension.adapting import install
    from lockcache.integrations.cpp_extension.keys import describe_toolkit
    from lockcache.integrations.cpp_extension.libraries import BUILD_FILE, Libraries, read_whole
else:
    __getattr__, __dir__ = door(__name__)
