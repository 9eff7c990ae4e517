# SPDX-License-Identifier: Apache-2.0
"""Parts of the key that JAX makes of a program, by the names that JAX has for them."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from lockcache.explain import Hashed
from lockcache.integrations.key_parts.words import in_words, without_paths

__all__ = ["parts_of_jax"]

#: Of the options of a compilation, those that programs set by themselves.
_OPTIONS: Final = ("num_replicas", "num_partitions")


def parts_of_jax(name: str, arguments: Mapping[str, Any], cpu_features: str) -> dict[str, object]:
    """Returns the parts of the key of the program ``name``. ``arguments``: those of JAX's ``get_cache_key``, by name.

    Each is hashed by JAX's own function for it, once more: what it hashes is said there alone. ``cpu_features``: what
    is added to the key of a program for the CPU, else empty.
    """
    own = importlib.import_module("jax._src.cache_key")
    module, devices, options, backend = (
        arguments.get(name) for name in ("module", "devices", "compile_options", "backend")
    )
    rest = (arguments["ignore_callbacks"],) if "ignore_callbacks" in arguments else ()
    found: dict[str, object] = {"program": name}
    found |= _hashed("code", own, "_hash_computation", module, *rest)
    found |= {"platform": in_words(getattr(backend, "platform", "")), "devices": _kinds(devices)}
    found |= _options(options)
    found |= _hashed("compile options", own, "_hash_serialized_compile_options", options, _is_gpu(backend))
    found |= _hashed("XLA flags", own, "_hash_xla_flags", _flag_prefixes(own))
    found |= {
        "jaxlib": in_words(getattr(own, "jaxlib_version_str", "")),
        "platform version": in_words(getattr(backend, "platform_version", "")).strip(),
    }
    found |= _hashed("topology", own, "_hash_accelerator_config", devices)
    if cpu_features:
        found["instructions of the CPU"] = Hashed(cpu_features)
    return found


def _hashed(name: str, own: Any, function: str, *given: Any) -> dict[str, object]:
    """Returns a part by the hash that JAX makes of it; nothing where this version makes it in another way."""
    with contextlib.suppress(Exception):
        digest = hashlib.sha256(usedforsecurity=False)
        getattr(own, function)(digest, *given)
        return {name: Hashed(digest.hexdigest())}
    return {}


def _flag_prefixes(own: Any) -> Any:
    find: Callable[[], Any] | None = getattr(own, "get_flag_prefixes", None)
    return [] if find is None else find()


def _is_gpu(backend: Any) -> bool:
    """Returns whether JAX leaves out which devices a program is for."""
    return getattr(backend, "platform", "") == "gpu"


def _kinds(devices: Any) -> str:
    kinds = [str(getattr(device, "device_kind", "")) for device in getattr(devices, "flat", ())]
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))


def _options(options: Any) -> dict[str, object]:
    found: dict[str, object] = {f"option {name}": in_words(getattr(options, name, "")) for name in _OPTIONS}
    for name, value in getattr(options, "env_option_overrides", None) or ():
        found[f"option {name}"] = without_paths(in_words(value))
    return found
