# SPDX-License-Identifier: Apache-2.0
"""The key of a compilation: :func:`make_program_cache_key`, and what :mod:`lockcache.cuda` needs beyond it.

Importing this package loads nothing of CUDA; a call needs cuda.core, because its options come from there.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.keys.environment import all_variables, temporary_source, variable_names, working_directory
    from lockcache.keys.linking import link_key
    from lockcache.keys.make import ProgramKeys, kernel_names, make_program_cache_key, program_keys
    from lockcache.keys.paths import Headers, prints_one
    from lockcache.keys.versions import compilers_of_numba, file_digest, fingerprint, nvrtc_build
else:
    __getattr__, __dir__ = door(__name__)
