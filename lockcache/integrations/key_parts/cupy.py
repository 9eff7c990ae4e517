# SPDX-License-Identifier: Apache-2.0
"""Parts of a CuPy kernel's key."""

from __future__ import annotations

import re
from typing import Any, Final

from lockcache.explain import Hashed
from lockcache.integrations.key_parts.words import without_paths

__all__ = ["parts_of_cupy"]

# CuPy's description of a kernel begins with the architecture, the options and the version of NVRTC.
_BEGIN: Final = re.compile(r"\('([^']*)', \(.*?\), \((\d+), (\d+)\), '", re.DOTALL)
_DEFINE: Final = re.compile(r"(?:-D|--define-macro=)\s*(\w+)=?(.*)", re.DOTALL)
# A macro may hold a statement: only what is one word is shown.
_WORD: Final = re.compile(r"[\w.+-]{0,32}", re.ASCII)
_INCLUDE: Final = re.compile(r"(?:-I|--include-path=)\s*(.*)", re.DOTALL)


def parts_of_cupy(request: Any, key: Any, source_of_key: bytes) -> dict[str, object]:
    """Returns the parts of ``key``, which :func:`.framework_keys.shared_key` made of the other two."""
    text = source_of_key.decode(errors="replace")
    begin = _BEGIN.match(text)
    # Behind the digest of CuPy's description a key has that of the headers, and the working directory where it counts.
    headers, *directory = key.name.split("/", 2)[1:]
    found: dict[str, object] = {
        "code": Hashed(request.source),
        "kernels": ", ".join(request.name_expressions) or request.label,
        "output": "LTO-IR" if request.is_ltoir else "cubin",
    }
    if begin is not None:
        found |= {"compute capability": begin[1], "NVRTC": f"{begin[2]}.{begin[3]}"}
    found |= _options(request.options, has_paths=key.has_paths)
    found |= {"headers": Hashed(headers), "headers of CuPy": Hashed(text.rpartition(" ")[2])}
    if directory:
        found["working directory"] = Hashed(directory)
    return found


def _options(options: tuple[str, ...], *, has_paths: bool) -> dict[str, object]:
    found: dict[str, object] = {}
    for option in options:
        if (define := _DEFINE.fullmatch(option)) is not None:
            found[f"define {define[1]}"] = Hashed(define[2], define[2] if _WORD.fullmatch(define[2]) else "")
        elif _INCLUDE.fullmatch(option) is None:
            name, _, value = option.lstrip("-").partition("=")
            found[f"option {name}"] = without_paths(value or "on")
        elif has_paths:
            found["include path"] = Hashed([each for each in options if _INCLUDE.fullmatch(each)])
    return found
