"""Keys of numba's kernels: types that print alike and differ. numba itself is not here; tests/frameworks has it."""

from __future__ import annotations

import enum
from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import pytest

from lockcache.integrations.numba import _name_of


class _Type:
    """Prints its name, and is what its key is, as numba's types are."""

    def __init__(self, name: str, key: Any = None) -> None:
        self.name = name
        self.key = name if key is None else key

    def __repr__(self) -> str:
        return self.name


_FILE = SimpleNamespace(_cache_path="/cache", _index_name="kernel", _source_stamp=(1.0, 2))
_INT = _Type("int64")


def _name(*types: Any) -> str | None:
    return _name_of(_FILE, (tuple(types), ("sm_90",), ("bytecode", "no closure")))


def _of_class(kind: type) -> _Type:
    return _Type("Point(int64 x 2)", (kind, (_INT, _INT)))


PAIRS = {
    "fields": (namedtuple("Point", "x y"), namedtuple("Point", "y x")),  # type: ignore[misc]
    "values": (enum.IntEnum("Color", {"R": 1}), enum.IntEnum("Color", {"R": 2})),  # type: ignore[misc]
    "modules": (type("A", (), {"__module__": "one"}), type("A", (), {"__module__": "other"})),
}


@pytest.mark.parametrize("which", PAIRS)
def test_types_that_print_alike_have_keys_of_their_own(which: str) -> None:
    one, other = PAIRS[which]
    assert _name(_of_class(one)) != _name(_of_class(other))
    assert _name(_Type("array", (_of_class(one), 1))) != _name(_Type("array", (_of_class(other), 1))), "inside others"
    assert _name(_of_class(one)) == _name(_of_class(one))


def test_what_another_process_cannot_tell_apart_has_no_key() -> None:
    assert _name(_INT) is not None
    assert _name(_Type("object", (object(),))) is None
    endless = _Type("endless")
    endless.key = (endless,)
    assert _name(endless) is None


def test_the_order_of_a_set_is_not_part_of_a_key() -> None:
    names = [f"name{number}" for number in range(20)]
    one = _Type("record", frozenset(names))
    other = _Type("record", frozenset(reversed(names)))
    assert _name(one) == _name(other)
