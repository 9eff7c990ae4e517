# SPDX-License-Identifier: Apache-2.0
"""Values of torch's remote caches, as they are stored: without base64, which makes a value a third larger.

Torch hands over JSON, whose ``data`` is base64 of a pickle. It is stored as the rest of the JSON and the pickle's own
bytes. A value of another shape, and one that does not become the same JSON again, is stored as it is; so is what
lockcache stored before it knew of this.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Final

__all__ = ["pack", "state_cost_ns", "unpack"]

# JSON begins with a brace, so no value of torch's begins like this.
_PACKED: Final = b"torch-remote-1\n"
_LENGTH_BYTES: Final = 4


def pack(value: bytes) -> bytes:
    """Returns what is stored for ``value``."""
    said = _parse(value)
    if isinstance(said.get("data"), str):
        try:
            data = base64.b64decode(said["data"], validate=True)
        except ValueError:
            return value
        rest = json.dumps({**said, "data": ""}).encode()
        packed = b"".join((_PACKED, len(rest).to_bytes(_LENGTH_BYTES, "big"), rest, data))
        if unpack(packed) == value:
            return packed
    return value


def unpack(stored: bytes) -> bytes:
    """Returns the value that was packed, as torch's own JSON. What was stored as it is comes back as it is."""
    if not stored.startswith(_PACKED):
        return stored
    begins = len(_PACKED) + _LENGTH_BYTES
    ends = begins + int.from_bytes(stored[len(_PACKED) : begins], "big")
    said = _parse(stored[begins:ends])
    if "data" not in said:
        return stored  # torch refuses it, with a warning
    return json.dumps({**said, "data": base64.b64encode(stored[ends:]).decode("ascii")}).encode("ascii")


def state_cost_ns(value: bytes) -> int:
    """Returns the time, in nanoseconds, that torch states in ``value`` for making it; 0 where it states none."""
    stated = _parse(value).get("time_taken_ms")
    if not isinstance(stated, (int, float)) or not 0 < stated < 1e9:
        return 0
    return int(stated * 1_000_000)


def _parse(value: bytes) -> dict[str, Any]:
    try:
        said = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
