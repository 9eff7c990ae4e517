# SPDX-License-Identifier: Apache-2.0
"""The files that a source can reach through ``#include``, and their digest.

Keeps invariant 1 (a hit is whole) for programs with headers. ``source`` reads one text (with ``comments`` and
``macros``) and ``files`` reads files; ``closure`` walks from one to the next as NVRTC searches, ``computed`` adds what
macros may name, ``files_seen`` is what that rests on, ``closure_cache`` remembers it and ``saved`` shares it with other
processes, and ``fingerprint`` is what callers call. ``paths`` says whether a text can put the path of a file into the
output. Nothing of CUDA is imported.
"""

from lockcache.headers.closure import Closure
from lockcache.headers.files_seen import Facts, decode_facts, encode_facts, hold
from lockcache.headers.fingerprint import examine, fingerprint
from lockcache.headers.paths import PathUse
from lockcache.headers.saved import ClosureStore, Evidence
from lockcache.headers.source import clock_in, may_include

__all__ = [
    "Closure",
    "ClosureStore",
    "Evidence",
    "Facts",
    "PathUse",
    "clock_in",
    "decode_facts",
    "encode_facts",
    "examine",
    "fingerprint",
    "hold",
    "may_include",
]
