"""The files that a source can reach through ``#include``, and their digest.

Keeps invariant 1 (a hit is whole) for programs with headers. ``source`` reads one text (with ``comments`` and
``macros``) and ``files`` reads files; ``closure`` walks from one to the next as NVRTC searches, ``computed`` adds what
macros may name, ``files_seen`` is what that rests on, ``closure_cache`` remembers it, and ``fingerprint`` is what
callers call. Nothing of CUDA is imported.
"""

from lockcache.headers.fingerprint import fingerprint

__all__ = ["fingerprint"]
