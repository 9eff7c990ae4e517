"""Keys of frameworks, as they have to be in a directory that others share: what each framework's own key lacks.

Promises that what cannot be described is not shared, or has a key of its own (:class:`NotDescribedError`, ``None``):
a key never says less than what changes a kernel. Nothing here looks up or stores.

May use: nothing else of the package.
"""

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.integrations.framework_keys.cupy import *
    from lockcache.integrations.framework_keys.host import *
    from lockcache.integrations.framework_keys.numba import *
    from lockcache.integrations.framework_keys.triton import *
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "cupy": "Request SharedKey restricts shared_key",
            "host": "c_library cpu_features",
            "numba": "NotDescribedError describe_program describe_types",
            "triton": "add_constants_to_keys constants_elsewhere constants_printed_alike",
        },
    )
