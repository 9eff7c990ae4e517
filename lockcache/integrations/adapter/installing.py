# SPDX-License-Identifier: Apache-2.0
"""Installation of an adapter, once for each process, and the directory that it is installed on.

Keeps invariant 7 (never take the job down): an adapter that cannot be installed is one warning.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from lockcache.arguments import coerce_lease_timeout, is_disabled, resolve_path
from lockcache.composition import FileStreamProgramCache
from lockcache.integrations.adapter.framework_doors import UnsupportedError
from lockcache.integrations.adapter.never_raising import warn
from lockcache.integrations.adapter.shared import Shared

__all__ = ["install", "installed", "open_shared"]

_log = logging.getLogger("lockcache")


def open_shared(
    framework: str,
    version: str,
    path: str | os.PathLike[str] | None,
    cap_bytes: int | None,
    *,
    runs_code: bool = False,
    patience_seconds: float | None = None,
) -> Shared:
    """The entries of ``framework`` in ``path``, or in the directory that ``$LOCKCACHE_DIR`` names.

    ``runs_code``: loading a value runs code of the process that stored it, as unpickling does. ``patience_seconds``:
    for how long a process that compiles is waited for, if ``$LOCKCACHE_LEASE_TIMEOUT`` says nothing.

    Raises what :class:`FileStreamProgramCache` does, and :class:`UnsupportedError` where members of a group could have
    others run their code.
    """
    resolve_path(path)
    stated = coerce_lease_timeout(None)
    patience = patience_seconds if stated is None else stated
    cache = FileStreamProgramCache(path, max_size_bytes=cap_bytes, compile_once=False, lease_timeout_seconds=patience)
    if cache._closures is None:  # nor anything else
        raise UnsupportedError(f"{cache.path} has no place to store anything")
    if runs_code and cache.is_forgeable:
        why = "is shared with a group, and loading its values runs code: sign them (lockcache key new)"
        raise UnsupportedError(f"{cache.path} {why}")
    return Shared(framework, version, cache)


def install(framework: str, action: Callable[[], Shared]) -> bool:
    """Do what installs an adapter, once for each process. Returns whether it is installed.

    Where it cannot be done the framework keeps its own cache, with one warning; where ``$LOCKCACHE_DISABLE`` says so,
    without. A call within ``action`` does nothing: ``action`` imports the framework, and under ``lockcache run`` a hook
    has the adapter installed at the end of that import.
    """
    if framework not in _installed and framework not in _installing:
        _installing[framework] = threading.get_ident()
        try:
            if is_disabled():
                _log.info("%s goes on with its own cache: LOCKCACHE_DISABLE is set", framework)
                return False
            _installed[framework] = action()
        except Exception as error:  # noqa: BLE001 - a program must not fail because its cache cannot be shared
            warn(framework, error)
        finally:
            _installing.pop(framework, None)
    return framework in _installed


_installed: dict[str, Shared] = {}
# By the thread that does it. Others do not wait: it may be importing the framework, whose import this one waits for.
_installing: dict[str, int] = {}


def _forget_threads() -> None:
    # Of the parent's threads a child has the one that forked it.
    for framework in [name for name, thread in _installing.items() if thread != threading.get_ident()]:
        del _installing[framework]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def installed(framework: str) -> Shared | None:
    """The adapter of ``framework`` in this process, if it is installed."""
    return _installed.get(framework)
