# SPDX-License-Identifier: Apache-2.0
"""The metadata codec: everything comes back as it went in, and junk is a ValueError and nothing worse."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import example, given, strategies as st

from lockcache.metadata import FIELDS, decode, encode
from tests.unit.material import property_test

_scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
_values = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(
            st.text() | st.binary() | st.integers() | st.tuples(st.text(), st.binary()), inner, max_size=4
        )
    ),
)
_metadata = st.dictionaries(st.text(), _values, max_size=5)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["b", "t", "m", "YQ=="]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["b", "t", "m", "x"]), inner, max_size=2)
    ),
)


def exactly(value):
    """A form in which values are equal only if their types are too, all the way down."""
    if isinstance(value, dict):
        return dict, [(exactly(k), exactly(v)) for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [exactly(item) for item in value]
    return type(value), value


@pytest.mark.slow
@property_test
@given(_metadata)
@example({"b": {"b": {"t": ["b"], "m": ()}}})
@example({"t": ["x"], "m": [["a", "b"]], "": b""})
@example({"-0.0": math.inf, "big": 2**4000})
def test_every_mapping_comes_back_with_its_types_and_order(metadata):
    assert exactly(decode(encode(metadata))) == exactly(metadata)


def test_nan_and_negative_zero_come_back():
    found = decode(encode({"nan": math.nan, "zero": -0.0}))
    assert math.isnan(found["nan"])
    assert math.copysign(1, found["zero"]) == -1


def test_an_empty_mapping_is_no_bytes():
    assert (encode({}), decode(b"")) == (b"", {})


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_bytes_like_values_come_back_as_bytes(kind):
    found = decode(encode({"a": kind(b"\0\xff")}))
    assert exactly(found) == exactly({"a": b"\0\xff"})


@property_test
@given(st.binary())
def test_junk_bytes_are_a_value_error_or_a_mapping(blob):
    expect_mapping_or_value_error(blob)


@property_test
@given(_json)
def test_junk_json_is_a_value_error_or_a_mapping(value):
    expect_mapping_or_value_error(json.dumps(value).encode())


@pytest.mark.slow
@property_test
@given(_metadata, st.data())
def test_a_damaged_encoding_is_a_value_error_or_a_mapping(metadata, data):
    blob = bytearray(encode({**metadata, "more": (b"x", 1)}))
    blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    expect_mapping_or_value_error(bytes(blob))
    expect_mapping_or_value_error(bytes(blob[: data.draw(st.integers(1, len(blob)))]))


@pytest.mark.parametrize(
    "blob",
    [b"[" * 100_000, b'{"t":' * 100_000, b"1" * 10_000, b'{"m":[[{"m":[]},1]]}', b'{"m":[[[1],1]]}', b'{"b":1}',
     b'{"t":1}', b'{"m":1}', b'{"m":[1]}', b'{"b":"\\u0100"}', b"null", b"[]", b'"x"', b"{}", b'{"a":1,"b":2}'],
    ids=range(15),
)  # fmt: skip
def test_what_no_encoder_wrote_is_a_value_error(blob):
    with pytest.raises(ValueError):  # noqa: PT011 - whatever part of the decoder notices it first
        decode(blob)


@pytest.mark.parametrize(
    "metadata, where",
    [
        ({"a": object()}, "'a'.* object"),
        ({"a": [1, {2}]}, "'a'.*1.* set"),
        ({"a": {"x": (1, range(2))}}, "'a'.*'x'.*1.* range"),
        ({"a": {object(): 1}}, "key of.*'a'.* object"),
        ({"a": 1j}, "'a'.* complex"),
        ({1: 1}, "int"),
        ({b"a": 1}, "bytes"),
        ([("a", 1)], "list"),
        (None, "NoneType"),
    ],
    ids=range(9),
)
def test_what_cannot_be_encoded_is_a_type_error_that_says_where_it_is(metadata, where):
    with pytest.raises(TypeError, match=where):
        encode(metadata)


def expect_mapping_or_value_error(blob: bytes) -> None:
    try:
        assert isinstance(decode(blob), dict)
    except ValueError:
        pass


def test_metadata_nested_without_end_is_refused_with_a_reason() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="nested too deeply"):
        encode({"endless": endless})


@pytest.mark.parametrize("name", FIELDS)
def test_what_a_later_version_puts_beside_the_mapping_is_passed_over(name):
    blob = json.dumps({**json.loads(encode({"kind": "cubin"})), name: ["anything", {"of": "its own"}]}).encode()
    assert decode(blob) == {"kind": "cubin"}


def test_what_nobody_knows_beside_the_mapping_is_refused():
    with pytest.raises(ValueError, match="too many values"):
        decode(json.dumps({**json.loads(encode({"kind": "cubin"})), "other": 1}).encode())
