# SPDX-License-Identifier: Apache-2.0
"""Back ends: the interface of all of them, and what goes in and out of one.

Promises that what a key and a value may be is decided once, and that nothing here imports CUDA. A back end of somebody
else's is made of ``ProgramCacheResource``, ``CacheStats``, ``Entry``, ``coerce_key``, ``coerce_max_size_bytes`` and
``coerce_value``; the rest is for the back ends of this package.

May use: calling, serving, explain, metadata.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.resource.interface import ProgramCacheResource, renewed_keys
    from lockcache.resource.stats import CacheStats
    from lockcache.resource.tiers import copy_into, put_copy_into, put_into, remove_from
    from lockcache.resource.values import LONGEST_NAMESPACE, Entry, coerce_entry, coerce_key, coerce_max_size_bytes
    from lockcache.resource.values import coerce_value, computed_entry, in_namespace, join_metadata
    from lockcache.resource.values import split_metadata
else:
    __getattr__, __dir__ = door(__name__)
