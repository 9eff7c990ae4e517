# SPDX-License-Identifier: Apache-2.0
"""The metadata of a payload: a small mapping, encoded so that it comes back as it went in.

Keeps invariant 1 (a hit is whole) for metadata: what is read is what was stored, types included. JSON alone turns
tuples into lists and knows no bytes, and a cache of PTX and symbol mappings needs both, so those are tagged. Pickle is
refused: a cache directory is input that others may have written, and unpickling runs it.

Relied on by every back end (one codec, so that an entry moves between them unchanged). Not promised: a stable
encoding across versions; callers that compare metadata compare the decoded mapping.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["COMPILE_COST", "FIELDS", "add_fields", "decode", "decode_fields", "encode", "join_fields"]

#: Nanoseconds that the compilation took. The one item with a place of its own in the record's fixed head.
COMPILE_COST = "compile_cost_ns"

#: Names that may stand next to the mapping in a record, so that versions which know them and versions which do not read
#: each other's entries: the key's namespace, a label for people, what the key was made of, and names and lengths of the
#: files that make up the payload.
FIELDS = ("namespace", "label", "parts", "files")

# A JSON object always carries one of these as its only member, so a user's own mapping can never be mistaken for one.
_BYTES, _TUPLE, _MAPPING = "b", "t", "m"


def encode(metadata: Mapping[str, Any]) -> bytes:
    """Encode a metadata mapping; an empty mapping is empty bytes.

    Values may be ``None``, ``bool``, ``int``, ``float``, ``str``, ``bytes``, and lists, tuples and mappings of these
    (mappings also keyed by ``bytes`` and the like). Anything else is a :class:`TypeError` that names the item.
    """
    if not isinstance(metadata, Mapping):
        raise TypeError(f"metadata must be a mapping, got {type(metadata).__name__} {metadata!r:.80}")
    for name in metadata:
        if not isinstance(name, str):
            raise TypeError(f"metadata names must be str, got {type(name).__name__} {name!r:.80}")
    if not metadata:
        return b""
    try:
        return json.dumps(_tag(metadata, "metadata"), separators=(",", ":")).encode()
    except RecursionError:
        raise ValueError("metadata is nested too deeply to be stored, or contains itself") from None


def decode(blob: bytes) -> dict[str, Any]:
    """Returns the mapping that :func:`encode` was given. Raises :class:`ValueError` for anything else.

    What may stand next to it in a record, :data:`FIELDS`, is passed over.
    """
    return decode_fields(blob)[0]


def add_fields(blob: bytes, **fields: Any) -> bytes:
    """Returns encoded metadata with fields of :data:`FIELDS`, plain JSON values, next to the mapping.

    They stand in front: what looks for them in many records need not read a mapping that may be long. Empty ones are
    left out.
    """
    given = {name: value for name, value in fields.items() if value}
    if not given:
        return blob
    pairs = json.dumps(given, separators=(",", ":"))[1:-1].encode()
    return b"{%b,%b}" % (pairs, blob[1:-1] or b'"%b":[]' % _MAPPING.encode())


def join_fields(note: bytes, blob: bytes) -> bytes:
    """Returns ``blob`` with the fields that :func:`add_fields` put next to no metadata at all."""
    without = b',"%b":[]}' % _MAPPING.encode()
    return b"%b,%b" % (note.removesuffix(without), blob[1:]) if blob else note


def decode_fields(blob: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the mapping of :func:`decode`, and the undecoded fields next to it: of any JSON type."""
    if not blob:
        return {}, {}
    fields: dict[str, Any] = {}
    try:
        tagged = json.loads(blob)
        if isinstance(tagged, dict):
            fields = {tag: inner for tag, inner in tagged.items() if tag in FIELDS}
            tagged = {tag: inner for tag, inner in tagged.items() if tag not in FIELDS}
        value = _untag(tagged)
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"not encoded metadata: {error}") from error
    if not isinstance(value, dict):
        raise ValueError("not encoded metadata: no mapping")
    return value, fields


def _tag(value: Any, where: str) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {_BYTES: base64.b64encode(bytes(value)).decode()}
    if isinstance(value, list):
        return [_tag(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, tuple):
        return {_TUPLE: [_tag(item, f"{where}[{index}]") for index, item in enumerate(value)]}
    if isinstance(value, Mapping):
        return {_MAPPING: [[_tag(k, f"a key of {where}"), _tag(v, f"{where}[{k!r}]")] for k, v in value.items()]}
    raise TypeError(
        f"{where} is a {type(value).__name__} ({value!r:.80}); metadata may hold None, bool, int, float, str, bytes, "
        "and lists, tuples and mappings of these"
    )


def _untag(value: Any) -> Any:
    if isinstance(value, list):
        return [_untag(item) for item in value]
    if not isinstance(value, dict):
        return value
    [(tag, inner)] = value.items()
    if tag == _BYTES:
        return base64.b64decode(inner, validate=True)
    if tag == _TUPLE:
        return tuple(_untag(item) for item in inner)
    if tag == _MAPPING:
        return {_untag(k): _untag(v) for k, v in inner}
    raise ValueError(f"not encoded metadata: unknown tag {tag!r}")
