# SPDX-License-Identifier: Apache-2.0
"""Keys of frameworks, as they have to be in a directory that others share: what each framework's own key lacks.

Promises that what cannot be described is not shared, or has a key of its own (:class:`NotDescribedError`, ``None``):
a key never says less than what changes a kernel. Nothing here looks up or stores.

May use: nothing else of the package.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.integrations.framework_keys.cpp import Command, UnkeyableError, describe_binary, describe_compiler
    from lockcache.integrations.framework_keys.cpp import describe_environment, describe_machine, describe_processor
    from lockcache.integrations.framework_keys.cpp import describe_system, digest, key_of, parts_of, read_file
    from lockcache.integrations.framework_keys.cupy import Request, SharedKey, restricts, shared_key
    from lockcache.integrations.framework_keys.host import c_library, cpu_features
    from lockcache.integrations.framework_keys.numba import NotDescribedError, describe_program, describe_types
    from lockcache.integrations.framework_keys.triton import add_constants_to_keys, constants_elsewhere
    from lockcache.integrations.framework_keys.triton import constants_lacking, constants_printed_alike
else:
    __getattr__, __dir__ = door(__name__)
