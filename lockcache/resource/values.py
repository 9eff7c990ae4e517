# SPDX-License-Identifier: Apache-2.0
"""Keys, values and caps: which are accepted, and how an entry's code and metadata become what is stored.

Decides it once, for all back ends. Imports nothing of CUDA: an ObjectCode can only be passed where cuda.core is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lockcache import metadata as _metadata
from lockcache.artifact import identify

#: A longer one would be ``unknown`` to readers of the entry.
LONGEST_NAMESPACE: Final = 80
_MOST_KERNELS: Final = 3
_NOTHING: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True)
class Entry:
    """One cached program: the code as stored, and the metadata published with it as one unit.

    ``metadata`` holds what the writer knew, under names such as ``kind``, ``arch``, ``compiler``, ``namespace``,
    ``symbol_mapping``, ``kernels`` (the first names), and ``compile_cost_ns`` (int, nanoseconds); see
    :func:`lockcache.metadata.encode` for the types it may hold.
    """

    code: bytes
    metadata: Mapping[str, Any] = field(default_factory=dict)


def coerce_key(key: object) -> bytes:
    """Returns a key as bytes. ``str`` is taken as UTF-8, so ``"k"`` and ``b"k"`` are one entry."""
    if isinstance(key, bytes):
        return key
    if isinstance(key, str):
        try:
            return key.encode()
        except UnicodeEncodeError as error:
            error.reason = f"{error.reason}: key must be what UTF-8 can be made of, got {key!r:.80}"
            raise
    if isinstance(key, bytearray):
        return bytes(key)
    raise TypeError(f"key must be bytes, bytearray or str, got {type(key).__name__} {key!r:.80}")


def coerce_value(value: object, argument: str = "value") -> tuple[bytes, dict[str, Any]]:
    """Returns the code of a value, and its metadata: none for bytes-like, the kind and symbols of an ObjectCode.

    ``argument`` is what errors call it. Raises :class:`TypeError` for any other type, :class:`FileNotFoundError` for an
    ObjectCode whose file is gone, :class:`ValueError` for an ObjectCode without code.
    """
    if isinstance(value, bytes):
        return value, {}
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value), {}
    object_code = getattr(sys.modules.get("cuda.core"), "ObjectCode", None)
    if object_code is not None and isinstance(value, object_code):
        return _from_object_code(value, argument)
    accepted = "bytes, bytearray, memoryview or a cuda.core.ObjectCode"
    raise TypeError(f"{argument} must be {accepted}, got {type(value).__name__} {value!r:.80}")


def _from_object_code(value: Any, argument: str) -> tuple[bytes, dict[str, Any]]:
    code = value.code
    if isinstance(code, str):
        try:
            with open(code, "rb") as file:
                code = file.read()
        except FileNotFoundError as error:
            raise FileNotFoundError(error.errno, "the file behind this ObjectCode is gone", code) from None
    if not code:
        hint = "; LTO-IR needs ProgramOptions(link_time_optimization=True)" if value.code_type == "ltoir" else ""
        what = f"{argument} must hold code, got an ObjectCode ({value.code_type}) without any"
        raise ValueError(f"{what}: there is nothing to cache{hint}")
    identified = identify(code)
    found: dict[str, Any] = {"kind": value.code_type}
    # Not in an ObjectCode, and yet what an operator asks for when a driver or a compiler is retired.
    if identified.arch:
        found["arch"] = identified.arch
    if identified.compiler:
        found["compiler"] = identified.compiler
    if value.symbol_mapping:
        found["symbol_mapping"] = dict(value.symbol_mapping)
    elif identified.kernels:  # for people, who know no digests
        found["kernels"] = list(identified.kernels[:_MOST_KERNELS])
    return bytes(code), found


def coerce_max_size_bytes(value: object) -> int | None:
    """Returns a cap in bytes, from a number or a text such as ``"10G"``; ``None`` for no cap.

    Raises :class:`TypeError` or :class:`ValueError` naming the value.
    """
    if value is None:
        return None
    if isinstance(value, str):
        from lockcache.sizes import parse_size  # 3 ms, needless for a number

        try:
            return parse_size(value)
        except ValueError as error:
            raise ValueError(f"max_size_bytes: {error}") from None
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f'max_size_bytes must be a number of bytes, a text such as "10G", or None, got {value!r}')
    number: int = value.__index__()
    if not 0 < number < 2**63:
        raise ValueError(f"max_size_bytes must be between 1 and 2**63-1 bytes, or None for no cap, got {number}")
    return number


def computed_entry(value: object, cost_ns: int, argument: str = "the computed value") -> Entry:
    """Returns a computed value as an entry that states its cost, unless it is an entry that states one itself.

    ``argument`` is what errors call it.
    """
    return as_entry(value, argument, {_metadata.COMPILE_COST: cost_ns})


def as_entry(value: object, argument: str, known: Mapping[str, Any] = _NOTHING) -> Entry:
    """Returns a computed value as an entry, with the metadata that are ``known`` unless it states others.

    ``argument`` is what errors call it.
    """
    if isinstance(value, Entry):
        code, found = coerce_value(value.code, f"the code of {argument}")
        return Entry(code, {**known, **found, **value.metadata})
    code, found = coerce_value(value, argument)
    return Entry(code, {**known, **found})


def in_namespace(namespace: str, publish: Callable[[object, int], Entry]) -> Callable[[object, int], Entry]:
    """Returns ``publish`` for entries that state ``namespace`` unless they state one; unchanged if it is empty.

    Raises :class:`TypeError` or :class:`ValueError` for one that nothing could show.
    """
    if not isinstance(namespace, str):
        raise TypeError(f"namespace must be str, got {type(namespace).__name__} {namespace!r:.80}")
    if not namespace.isprintable() or len(namespace) > LONGEST_NAMESPACE:
        raise ValueError(
            f"namespace must be printable and of at most {LONGEST_NAMESPACE} characters, got {namespace!r:.80}"
        )
    if not namespace:
        return publish

    def publish_named(value: object, cost_ns: int) -> Entry:
        entry = computed_entry(value, cost_ns)
        return publish(Entry(entry.code, {"namespace": namespace, **entry.metadata}), cost_ns)

    return publish_named


def coerce_entry(entry: object) -> tuple[bytes, bytes, int]:
    """Returns an :class:`Entry` as (code, encoded metadata without the cost, compile cost in nanoseconds)."""
    if not isinstance(entry, Entry):
        raise TypeError(f"entry must be a lockcache.Entry, got {type(entry).__name__} {entry!r:.80}")
    code, found = coerce_value(entry.code, "entry.code")
    if not isinstance(entry.metadata, Mapping):
        raise TypeError(f"entry.metadata must be a mapping, got {type(entry.metadata).__name__}")
    return split_metadata(code, {**found, **entry.metadata})


def split_metadata(code: bytes, metadata: dict[str, Any]) -> tuple[bytes, bytes, int]:
    """Returns an entry as it is stored: (code, encoded metadata without the cost, compile cost in ns)."""
    cost_ns = metadata.pop(_metadata.COMPILE_COST, 0)
    if isinstance(cost_ns, bool) or not isinstance(cost_ns, int) or not 0 <= cost_ns < 2**63:
        what = f"metadata[{_metadata.COMPILE_COST!r}] must be an int number of nanoseconds, 0 or more"
        raise ValueError(f"{what}, got {cost_ns!r:.80}")
    return code, _metadata.encode(metadata) if metadata else b"", cost_ns


def join_metadata(tail: bytes, cost_ns: int) -> dict[str, Any]:
    """Returns the inverse of :func:`split_metadata`: what ``Entry.metadata`` shows."""
    found = _metadata.decode(tail)
    if cost_ns:
        found[_metadata.COMPILE_COST] = cost_ns
    return found
