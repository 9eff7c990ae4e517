# SPDX-License-Identifier: Apache-2.0
"""The record: whatever differs in payload, name, head or tail is not whole."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from lockcache.filestream.disk.layout import entry_name
from lockcache.filestream.entry.codec import (
    HEAD_BYTES,
    LONG_PAYLOAD,
    ORDINARY,
    SIGNED,
    TAIL_BESIDE,
    Record,
    cost_of,
    is_known,
    is_understood,
    is_whole,
    pack,
    payload_bytes,
    split_records,
    unpack,
)
from tests.unit.material import property_test

NAME, PAYLOAD, TAIL = entry_name(b"k"), b"payload", b"tail"


def make(name=NAME, payload=PAYLOAD, tail=TAIL, created_ns=7, cost_ns=9, beside=False):
    return pack(name, payload, Record(len(payload), created_ns, cost_ns, tail), beside=beside)


def is_served(blob, name, payload):
    return is_understood(blob) and is_whole(blob, name, payload)


def test_a_cost_of_more_than_a_day_says_nothing():
    day_ns = 24 * 3600 * 10**9
    assert cost_of(make(cost_ns=day_ns)) == day_ns
    assert cost_of(make(cost_ns=day_ns + 1)) == 0


def test_the_head_fits_under_64_bytes_so_that_any_file_system_with_attributes_takes_it():
    assert HEAD_BYTES < 64
    assert len(make(tail=b"")) == HEAD_BYTES


@property_test
@given(st.binary(), st.binary(), st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), st.booleans())
def test_a_record_says_what_it_was_made_from(payload, tail, created_ns, cost_ns, beside):
    record = Record(len(payload), created_ns, cost_ns, tail)
    blob = pack(NAME, payload, record, beside=beside)
    assert is_served(blob, NAME, payload)
    assert unpack(blob) == record
    assert bool(blob[3] & TAIL_BESIDE) == beside


@pytest.mark.parametrize("payload, tail", [(b"payload", b"tail"), (b"", b"tail"), (b"payload", b""), (b"x", b"y" * 40)])
def test_one_flipped_bit_anywhere_is_not_served(payload, tail):
    blob = make(payload=payload, tail=tail)
    for bit in range(8 * len(blob)):
        assert not is_served(flipped(blob, bit), NAME, payload), f"bit {bit} of the record"
    for bit in range(8 * len(payload)):
        assert not is_served(blob, NAME, flipped(payload, bit)), f"bit {bit} of the payload"


@property_test
@given(st.binary(min_size=1), st.binary(), st.data())
def test_any_other_payload_tail_or_length_is_not_served(payload, tail, data):
    blob = make(payload=payload, tail=tail)
    cut = data.draw(st.integers(0, len(payload) - 1))
    assert not is_served(blob, NAME, payload[:cut])
    assert not is_served(blob, NAME, payload + b"\0")
    assert not is_served(blob + b"\0", NAME, payload)
    for length in range(len(blob)):
        assert not is_served(blob[:length], NAME, payload)


def test_another_name_is_not_served():
    assert not is_served(make(), entry_name(b"other"), PAYLOAD)


@pytest.mark.parametrize("offset, value", [(0, ord("X")), (1, ord("X")), (2, 0), (2, 2), (3, 0), (3, 2), (3, 0x7F)])
def test_what_another_version_or_program_wrote_is_not_understood(offset, value):
    blob = bytearray(make())
    blob[offset] = value
    assert not is_understood(bytes(blob))


@pytest.mark.parametrize("blob", [b"", b"LC", b"LC\x01\x01", b"LC\x01\x01" + bytes(HEAD_BYTES - 5)])
def test_a_short_record_is_not_understood(blob):
    assert not is_understood(blob)


def test_a_payload_of_four_gib_is_stated_as_long():
    class Long(bytes):  # four gigabytes that nobody needs to have
        def __len__(self):
            return 2**33

    blob = pack(NAME, Long(b"x"), Record(2**33, 0, 0, b""))
    assert int.from_bytes(blob[8:12], "little") == LONG_PAYLOAD


@property_test
@given(st.lists(st.binary(max_size=20), min_size=1, max_size=4))
def test_a_record_file_comes_apart_into_its_records(tails):
    records = [make(tail=tail) for tail in tails]
    assert split_records(b"".join(records)) == records


@property_test
@given(st.binary())
def test_any_junk_comes_apart_into_something(junk):
    assert b"".join(split_records(junk)) == junk
    assert len(split_records(junk)) >= 1


def flipped(blob: bytes, bit: int) -> bytes:
    changed = bytearray(blob)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_the_numbers_of_the_format_are_the_documented_ones():
    """docs/design.md states them: another number would be another format."""
    assert (HEAD_BYTES, LONG_PAYLOAD, TAIL_BESIDE) == (44, 2**32 - 1, 0x80)
    assert (ORDINARY, SIGNED) == (b"LC\x01\x01", b"LC\x01\x02")
    record = Record(len(PAYLOAD), 0, 0, TAIL)
    assert pack(NAME, PAYLOAD, record)[:4] == ORDINARY
    assert pack(NAME, PAYLOAD, record, beside=True)[:4] == b"LC\x01\x81"


@pytest.mark.parametrize("size", [0, 255, 256, 65_536, 2**24 + 5])
def test_the_stated_length_is_the_payloads(size):
    assert payload_bytes(make(payload=bytes(size))) == size


def test_a_record_is_known_whoever_verifies_it_and_wherever_its_tail_is():
    for algorithm in (1, 2, 0x81, 0x82):
        blob = b"LC\x01" + bytes([algorithm]) + make(tail=b"")[4:]
        assert is_known(blob)
        assert not is_known(blob[:-1])
    for algorithm in (0, 3, 0x7F, 0x80, 0x83):
        assert not is_known(b"LC\x01" + bytes([algorithm]) + make()[4:])
    for prefix in (b"LD\x01", b"LC\x02", b"XX\x01"):
        assert not is_known(prefix + make()[3:])
