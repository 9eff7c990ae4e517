# SPDX-License-Identifier: Apache-2.0
"""Parts of the frameworks' keys, in the words of each framework, for ``lockcache why``.

Each function is called at a miss, and takes what its adapter was given for the key. Promises texts, numbers and digests
by name, the most important first and in one order, and paths and values of programs only where the key has them. What a
version of a framework lacks is left out: the parts of a key decide nothing. May raise, which its caller expects.

May use: framework_keys.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.integrations.key_parts.cpp_extension import parts_of_extension
    from lockcache.integrations.key_parts.cupy import parts_of_cupy
    from lockcache.integrations.key_parts.cute import parts_of_cute
    from lockcache.integrations.key_parts.cutile import parts_of_cutile
    from lockcache.integrations.key_parts.helion import parts_of_helion
    from lockcache.integrations.key_parts.inductor import parts_of_graph
    from lockcache.integrations.key_parts.jax import parts_of_jax
    from lockcache.integrations.key_parts.numba import parts_of_numba
    from lockcache.integrations.key_parts.triton import parts_of_launcher, parts_of_triton
    from lockcache.integrations.key_parts.warp import parts_of_warp
    from lockcache.integrations.key_parts.words import list_variables
else:
    __getattr__, __dir__ = door(__name__)
