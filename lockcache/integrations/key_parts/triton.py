# SPDX-License-Identifier: Apache-2.0
"""Parts of the keys of Triton's kernels and launchers."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from lockcache.explain import Hashed
from lockcache.integrations.framework_keys import c_library, constants_lacking
from lockcache.integrations.key_parts.words import in_words, list_options, list_variables

__all__ = ["parts_of_launcher", "parts_of_triton"]

# Of a backend's options, those of which each kernel has another value.
_NAMED: Final = ("num_ctas", "num_stages", "num_warps")
# In the words of ptxas.
_VERSION: Final = re.compile(r"\bV\d+(?:\.\d+)+")
_PLAIN: Final = (type(None), bool, int, float, str)
# Said by the target.
_OF_TARGET: Final = ("arch", "backend_name", "warp_size")
# Where versions of Triton have a function.
_HOMES: Final = {
    "triton_key": ("triton.runtime.cache", "triton.compiler.compiler"),
    "get_cache_invalidating_env_vars": ("triton._C.libtriton", "triton.compiler.compiler"),
}


def parts_of_triton(source: Any, backend: Any, options: Any) -> dict[str, object]:
    """Returns the parts of the key that Triton makes of a source for a backend with these options."""
    function = getattr(source, "fn", None)
    # Of a kernel that is given in one of Triton's intermediate languages, the text is its code.
    code = getattr(source if function is None else function, "src", None)
    found: dict[str, object] = {
        "code": Hashed(code if code is not None else getattr(function, "cache_key", "")),
        "functions and globals": Hashed(getattr(function, "cache_key", "")),
        "kernel": str(getattr(source, "name", "")),
        "argument types": _types(source),
        **_constants(source),
        "constants of modules": Hashed(constants_lacking(source)),
    }
    target = getattr(backend, "target", None)
    if target is not None:
        found["target"] = f"{getattr(target, 'backend', '')} {getattr(target, 'arch', '')}".strip()
    if options is not None:
        found |= _options(options)
    found["argument attributes"] = Hashed(_attributes(source))
    variables = _of_triton("get_cache_invalidating_env_vars")
    if isinstance(variables, Mapping):
        found |= list_variables(variables.items())
    with contextlib.suppress(Exception):  # of a backend
        compiler = str(backend.hash())
        found["compiler of the target"] = Hashed(compiler, " ".join(_VERSION.findall(compiler)) or compiler)
    return {**found, "files of Triton": Hashed(_of_triton("triton_key"))}


def parts_of_launcher(key: str, filename: str) -> dict[str, object]:
    """Returns the parts of the key of a launcher: Triton's own is a digest of its source, its folders and the host."""
    return {
        "code": Hashed(key),
        "file": filename,
        "C library": c_library(),
        **list_variables((name, os.environ[name]) for name in ("CC", "CXX") if name in os.environ),
    }


def _types(source: Any) -> str:
    signature = getattr(source, "signature", None)
    if not isinstance(signature, Mapping):
        return ""
    return ", ".join(f"{name} {in_words(kind)}" for name, kind in signature.items() if kind != "constexpr")


def _constants(source: Any) -> dict[str, object]:
    constants = getattr(source, "constants", None)
    names = list(getattr(getattr(source, "fn", None), "arg_names", ()))
    found: dict[str, object] = {}
    for place, value in (constants if isinstance(constants, dict) else {}).items():
        is_number = isinstance(place, tuple) and len(place) == 1 and isinstance(place[0], int)
        name = names[place[0]] if is_number and place[0] < len(names) else place
        found[f"constant {name}"] = _constant(getattr(value, "value", value) if _is_wrapped(value) else value)
    return found


def _is_wrapped(value: object) -> bool:
    return type(value).__name__ == "constexpr"


def _constant(value: object) -> Hashed:
    shown = str(value) if isinstance(value, _PLAIN) else type(value).__name__
    return Hashed(getattr(value, "cache_key", in_words(value)), shown)


def _attributes(source: Any) -> str:
    attributes = getattr(source, "attrs", None)
    own: Callable[[], str] | None = getattr(attributes, "hash", None)
    return own() if own is not None else in_words(attributes)


def _options(options: Any) -> dict[str, object]:
    fields = getattr(type(options), "__dataclass_fields__", {})
    defaults = {name: getattr(field, "default", None) for name, field in fields.items()}
    values = {
        name: value
        for name, value in vars(options).items()
        if name not in _OF_TARGET
        and isinstance(value, _PLAIN)
        and (name in _NAMED or name not in defaults or value != defaults[name])
    }
    return {
        **list_options(values, (*_NAMED, *sorted(values.keys() - set(_NAMED)))),
        "other options": Hashed(options.hash()),
    }


def _of_triton(function: str) -> object:
    """Returns what a function of Triton's returns; nothing where this version has no such function."""
    for home in _HOMES[function]:
        with contextlib.suppress(ImportError, AttributeError):
            return getattr(importlib.import_module(home), function)()
    return ""
