# SPDX-License-Identifier: Apache-2.0
"""The compile server for one program: which programs it may compile, and what is asked.

Decides that in the caller's process without a word to a server: a program without includes, and one whose output could
depend on how it is compiled, costs nothing here. Loaded only where ``$LOCKCACHE_COMPILE_SERVER`` says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from typing import Any

from cuda.core import ProgramOptions

from lockcache.compile_server import Answer, Mode, Request, ask, head_of, identity_here
from lockcache.cuda.headers import examine
from lockcache.errors import LockcacheError, UncacheableError
from lockcache.headers import ClosureStore, encode_facts
from lockcache.keys import all_variables, temporary_source, versions, working_directory

#: Options with files or reports of their own, and those that decide themselves what is compiled once.
_OWN_WAYS = ("pre_include", "pch", "create_pch", "use_pch", "pch_dir", "time", "fdevice_time_trace", "no_cache")


def compile_by_server(
    source: str | bytes,
    options: ProgramOptions,
    target_type: str,
    names: Iterable[Any],
    nvrtc: bytes,
    mode: Mode,
    store: ClosureStore | None,
) -> Answer | None:
    """Returns what a server compiled; ``None`` where this process has to.

    ``nvrtc``: the version that the key has. ``store`` has what other processes found out about headers.
    """
    if not isinstance(source, str) or any(getattr(options, name, None) is not None for name in _OWN_WAYS):
        return None
    head = head_of(source)
    encoded = [name if isinstance(name, bytes) else str(name).encode() for name in names]
    library = versions.nvrtc_path() if head else None
    directories: list[Any] = working_directory()
    if library is None or not directories or temporary_source(options) is not None:
        return None
    try:
        identity, variables = identity_here(), all_variables()
    except (OSError, UncacheableError):  # one that may not be entered any more; or variables have just changed
        return None
    request = Request(
        library=library,
        build=nvrtc.hex(),
        options=tuple(map(os.fsdecode, options.as_bytes("nvrtc", target_type))),
        name=options.name or "default_program",
        target=target_type.lower(),
        head=head,
        directories=tuple(map(os.fsdecode, directories)),
        identity=identity,
        variables=tuple((name, value) for name, value in variables),
    )
    return ask(request, source.encode(), tuple(encoded), mode, partial(_evidence, source, options, target_type, store))


def _evidence(source: str, options: ProgramOptions, target_type: str, store: ClosureStore | None) -> bytes:
    """Returns the facts about headers by which a holder tells that they changed; empty if they do not suffice."""
    try:
        closure = examine(source, options, target_type, store)
    except (LockcacheError, OSError):
        return b""
    return encode_facts(closure.facts) if closure.settled else b""
