# SPDX-License-Identifier: Apache-2.0
"""JAX's persistent compilation cache on lockcache: each program compiled once by all processes of a machine.

:func:`install`, before the first compilation, or no line of code at all: with ``LOCKCACHE_JAX=1`` in the environment
JAX finds :func:`initialize` by an entry point. The directory is ``$LOCKCACHE_DIR``. What JAX decides not to store
(``jax_persistent_cache_min_compile_time_secs`` is 1 second unless it is set) is not stored, and nobody waits for it.
Processes of a distributed job other than the first only read, as JAX has it. Where the program, or JAX's variable,
names a directory for JAX's own cache, that one is used for what lockcache does not store. Programs that were imported
from it are found by its name.

Keys are JAX's own; that of a program for the CPU has the CPU's instructions in addition, since it is compiled for them.

Values are executables that JAX serialised: who may write to the directory may run code in the processes that read
it. A directory that others write to needs a signing key.

``jax_compilation_cache_check_contents`` works as in JAX's own cache: what a process compiles first is compared with the
stored one, and a difference is JAX's error.

Tried with JAX 0.4.38 to 0.11.2. If its private parts are others, JAX keeps its own cache, with a warning.

Promises invariant 7 (never take the job down) for programs that compile with JAX.

May use: adapter, framework_keys, key_parts.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.integrations.jax.adapting import initialize, install
else:
    __getattr__, __dir__ = door(__name__)
