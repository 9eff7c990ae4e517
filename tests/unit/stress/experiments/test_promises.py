# SPDX-License-Identifier: Apache-2.0
"""The verdict on a read of the scenario ``checked``: what breaks a promise, and what is right though it is older."""

from __future__ import annotations

import pytest

from lockcache_stress.experiments.remote.promises import (
    KeyState,
    Value,
    as_bytes,
    as_value,
    fault_of,
)

_MINE = Value("k", 0, 3, "me")
_STATE = KeyState(begun=5, stored=4, removals=1)


def _fault(value: Value, **changes: object) -> str:
    given = {
        "key": "k", "node": 0, "before": _STATE, "after": _STATE, "evicts": False, "own": None, "writer": "me",
        "is_of_server": False,
    }  # fmt: skip
    return fault_of(as_bytes(value, 2000), **(given | changes))  # type: ignore[arg-type]


def test_a_value_is_known_by_all_of_its_bytes() -> None:
    code = as_bytes(_MINE, 1500)
    assert as_value(code) == _MINE
    assert len(code) == 1500
    for other in (code[:-1], code[:1000] + b"x" + code[1001:], b"", b"|||||", code + b"x"):
        assert as_value(other) is None


@pytest.mark.parametrize(
    "value, changes, words",
    [
        (_MINE._replace(key="other"), {}, "nobody stored"),
        (_MINE._replace(version=6), {}, "nobody wrote"),
        (_MINE, {}, "older than the last write"),
        (_MINE._replace(node=1, version=9), {}, "older than the last write"),
        (_MINE, {"is_of_server": True, "own": _MINE._replace(version=4), "evicts": True}, "reader's own"),
        (_MINE._replace(version=4), {}, ""),
        (_MINE._replace(version=5), {}, ""),
        (_MINE, {"evicts": True}, ""),
        (_MINE, {"after": _STATE._replace(removals=2)}, ""),
        (_MINE, {"before": KeyState(), "after": _STATE}, ""),
        (_MINE._replace(node=1, version=9), {"before": KeyState(5, 0, 1)}, ""),
        (_MINE, {"is_of_server": True, "own": _MINE, "evicts": True}, ""),
        (_MINE, {"is_of_server": True, "own": _MINE._replace(version=4), "writer": "other", "evicts": True}, ""),
    ],
)
def test_which_read_breaks_a_promise(value: Value, changes: dict[str, object], words: str) -> None:
    found = _fault(value, **changes)
    assert words in found
    assert bool(words) == bool(found)
