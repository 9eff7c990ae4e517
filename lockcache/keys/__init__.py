"""The key of a compilation: one name, :func:`make_program_cache_key`.

Importing this package loads nothing of CUDA; a call needs cuda.core, because its options come from there.
"""

from lockcache.keys.make import make_program_cache_key

__all__ = ["make_program_cache_key"]
