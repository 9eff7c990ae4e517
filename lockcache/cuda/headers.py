# SPDX-License-Identifier: Apache-2.0
"""The headers of one compilation by NVRTC: which directories it searches, and what it finds there.

Decides nothing about headers themselves (:mod:`lockcache.headers`): only what cuda.core and NVRTC add to the options
before they search, such as NVRTC's own headers and the copy of the source that debuggers get.
"""

from __future__ import annotations

import os
from typing import Any, Final

from cuda.core import ProgramOptions

from lockcache import headers
from lockcache.keys import Headers, temporary_source

_BUNDLED: Final = b"--use-bundled-headers="


def examine_headers(
    source: str | bytes, options: ProgramOptions, target_type: str, store: headers.ClosureStore | None
) -> Headers | None:
    """Returns the headers as they are now; ``None`` where the program can read none.

    ``store`` has what other processes found out. Raises what :func:`lockcache.headers.fingerprint` does.
    """
    code = source.encode(errors="surrogatepass") if isinstance(source, str) else bytes(source)
    is_named = "/" in (options.name or "")  # a directory, in which NVRTC looks for headers
    if not (is_named or options.include_path or options.pre_include or headers.may_include(code, options.define_macro)):
        return None
    found = examine(code, options, target_type, store)
    return Headers(found.digest, found.placed, found.paths, bool(found.parts))


def examine(
    code: str | bytes, options: ProgramOptions, target_type: str, store: headers.ClosureStore | None
) -> headers.Closure:
    """Returns the closure of a program's headers as it is now. Raises as :func:`examine_headers`."""
    name, include_path = _searched(options, target_type)
    return headers.examine(
        code,
        include_path,
        options.pre_include,
        name=name,
        define_macro=options.define_macro,
        no_source_include=options.no_source_include,
        store=store,
    )


def _searched(options: ProgramOptions, target_type: str) -> tuple[str | None, list[Any]]:
    """Returns the name of the source and the directories of headers, as NVRTC gets them."""
    include_path = [*_bundled(options, target_type), *_as_list(options.include_path)]
    source = temporary_source(options)
    if source is not None:  # cuda.core has the working directory searched last then
        return source, [*include_path, os.curdir]
    return options.name, include_path


def _bundled(options: ProgramOptions, target_type: str) -> list[str]:
    """Returns the folders of NVRTC's own headers, which it searches first; none if this compilation has none.

    NVRTC writes them into a home directory where they are missing. Left to the compilation, it would change them after
    the fingerprint, and the first result of each home would not be kept.
    """
    for option in options.as_bytes("nvrtc", target_type):
        if option.startswith(_BUNDLED):
            root = option[len(_BUNDLED) :].decode()
            _install_bundled(root)
            return [root, f"{root}/cccl"]
    return []


def _install_bundled(root: str) -> None:
    """Unpack NVRTC's own headers where they are missing, as the compiler would do."""
    if os.path.exists(os.path.join(root, ".nvrtc_headers_version")):
        return
    from cuda.bindings import nvrtc

    # Waits for a process that is unpacking them. A failure is reported by the compilation, which tries the same.
    nvrtc.nvrtcInstallBundledHeaders(os.fsencode(root), nvrtc.NVRTC_INSTALL_HEADERS_SKIP_IF_EXISTS)


def _as_list(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]
