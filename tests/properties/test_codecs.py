# SPDX-License-Identifier: Apache-2.0
"""Codecs: what is written into a cache directory or a bundle reads back as it was, and damage is seen.

Codecs with properties of their own in the unit tests: records (``test_record.py``), metadata, names of entries and of
staged files, sizes.
"""

from __future__ import annotations

import hashlib
import io
import struct
from pathlib import Path

import pytest
from hypothesis import assume, given, strategies as st

from lockcache import Entry, FileStreamProgramCache
from lockcache.errors import ArchiveError
from lockcache.filestream.accounting import HEAD_BYTES, Head, decode_head, encode_page
from lockcache.filestream.accounting.counters import CountersCodec
from lockcache.filestream.bundle import BundleStream, BundleWriter
from lockcache.filestream.bundle_format import SLOT, START_BYTES, encode_end, encode_start, lay_out
from lockcache.filestream.disk import Space
from lockcache.filestream.disk.layout import Layout, QuarantinedName, entry_name, parse_quarantined_name
from lockcache.filestream.policy import PRIORITIES, Policy, Seed
from lockcache.reports import Counters
from lockcache.sizes import parse_size
from tests.properties.examples import examples
from tests.unit.bundle.packed import packed, unpacked

_int64 = st.integers(0, 2**63 - 1)


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    root = tmp_path_factory.mktemp("codecs") / "cache"
    FileStreamProgramCache(root).close()
    return Layout(str(root))


# ---- the head of the state page --------------------------------------------------------------------------------------

_paths = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=100).map("/{}".format)
_seeds = st.builds(Seed, _paths, st.integers(0, 2**63 - 1), st.text(max_size=30), st.booleans(), st.booleans())
_policies = st.builds(
    Policy,
    st.none() | st.integers(1, 2**63 - 1),
    st.booleans(),
    st.sampled_from(PRIORITIES),
    st.booleans(),
    states_priority=st.booleans(),
    seed=st.none() | _seeds,
)
_spaces = st.builds(Space, st.integers(1, 2**20), st.integers(0, 4096), st.booleans())
_heads = st.builds(Head, st.integers(0, 2**64 - 1), _spaces, _policies)


@examples(100)
@given(head=_heads)
def test_a_head_reads_back_as_it_was_written(head):
    found = decode_head(encode_page(head))
    assert found == head
    assert (found.policy.seed, found.policy.states_priority) == (head.policy.seed, head.policy.states_priority)


@examples(200)
@given(head=_heads, at=st.integers(0, HEAD_BYTES - 1), bit=st.integers(0, 7))
def test_a_head_with_one_bit_flipped_states_nothing_but_what_was_written(head, at, bit):
    page = bytearray(encode_page(head))
    page[at] ^= 1 << bit
    found = decode_head(bytes(page))
    assert found is None or found == head
    assert found is None or found.policy.seed in (None, head.policy.seed)


@examples(100)
@given(page=st.binary(max_size=60) | st.binary(min_size=HEAD_BYTES, max_size=HEAD_BYTES))
def test_any_other_page_states_nothing(page):
    assert decode_head(page) is None
    assert decode_head(b"LCstate\3" + page) is None


# ---- the sector of counters ------------------------------------------------------------------------------------------

_counts = st.builds(Counters, *[st.integers(0, 2**62)] * 7)
_counters = CountersCodec(Counters, Counters._fields)


@examples(50)
@given(first=_counts, second=_counts)
def test_the_counters_are_the_sum_of_all_reports(first, second):
    sector = _counters.add(_counters.reset(_counters.add(b"", first)), second)
    found, since = _counters.read(sector), _counters.read_since(sector)
    assert found[:7] == tuple(min(one + other, 2**63 - 1) for one, other in zip(first[:7], second[:7], strict=True))
    assert found.reports == 2
    assert since[:7] == tuple(now - base for now, base in zip(found[:7], first[:7], strict=True))


@examples(100)
@given(sector=st.binary(max_size=520))
def test_any_sector_gives_numbers_and_takes_a_report(sector):
    assert all(0 <= number < 2**63 for number in _counters.read(sector))
    assert _counters.read(_counters.add(sector, Counters(hits=1))).hits > 0


# ---- names in quarantine ---------------------------------------------------------------------------------------------

_stamps = st.datetimes(allow_imaginary=False).map(lambda time: time.strftime("%Y%m%dT%H%M%S.123456789Z").zfill(26))
_quarantined = st.builds(
    QuarantinedName,
    _stamps,
    st.binary(max_size=8).map(entry_name),
    st.sampled_from(["digest", "truncated", "grown", "empty", "record", "tail", "foreign"]),
    st.booleans(),
)


@examples(50)
@given(name=_quarantined)
def test_a_name_in_quarantine_says_what_it_was_made_from(name):
    assert parse_quarantined_name(str(name)) == name
    assert name.shard == int(name.entry[:2], 16)


@examples(100)
@given(name=_quarantined, at=st.integers(0, 120), letter=st.characters())
def test_an_altered_name_in_quarantine_is_another_one_or_none(name, at, letter):
    text = str(name)
    altered = text[: at % len(text)] + letter + text[at % len(text) + 1 :]
    found = parse_quarantined_name(altered)
    assert found is None or str(found) == altered


# ---- packed bundles --------------------------------------------------------------------------------------------------


@examples(50)
@given(
    key=st.binary(max_size=20),
    payload=st.binary(max_size=1500),
    last_use_ns=st.integers(0, 2**64 - 1),
    record=st.binary(max_size=700),
)
def test_an_entry_of_a_bundle_reads_back_front_to_back_as_it_was_written(key, payload, last_use_ns, record):
    out, names = io.BytesIO(), [hashlib.sha256(key + end).digest() for end in (b"", b"2")]
    writer = BundleWriter(out)
    for name in names:
        writer.add(name, payload, record, last_use_ns)
    writer.finish()
    out.seek(0)
    stream = BundleStream(out)
    for count, head in enumerate(stream):
        assert head == (names[count], last_use_ns, len(payload), len(record))
        if count:  # what was not read is passed over
            assert stream.read() == (record, payload)
    assert count == 1
    assert len(out.getvalue()) % 64 == 4 * SLOT.size % 64


@examples(60)
@given(rest=st.binary(max_size=200))
def test_nothing_else_behind_a_head_reads_as_a_bundle(rest):
    assume(rest != lay_out([]) + encode_end(encode_start(), lay_out([]), START_BYTES, 0))
    with pytest.raises(ArchiveError):
        list(BundleStream(io.BytesIO(encode_start() + rest)))


_programs = st.dictionaries(
    st.binary(max_size=8),
    st.builds(
        Entry,
        st.binary(max_size=3000),
        st.dictionaries(st.sampled_from(["kind", "arch", "log"]), st.text(max_size=300) | st.binary(max_size=9)),
    ),
    max_size=6,
)


@examples(12)
@given(programs=_programs)
def test_a_cache_comes_out_of_a_packed_bundle_as_it_went_in(tmp_path_factory, programs):
    folder = tmp_path_factory.mktemp("packed")
    with FileStreamProgramCache(folder / "one") as cache:
        for key, entry in programs.items():
            cache.put_entry(key, entry)
    content, done = packed(folder / "one")
    assert done.entries == len(programs)
    unpacked(content, folder / "two")
    with FileStreamProgramCache(folder / "two", verified_only=True) as cache:
        assert len(cache) == len(programs)
        assert {key: cache.get_entry(key) for key in programs} == programs


# ---- sizes, shares, durations ----------------------------------------------------------------------------------------

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


@examples(100)
@given(
    number=st.integers(1, 9000), unit=st.sampled_from(list(_UNITS)), b=st.sampled_from(["", "B"]), lower=st.booleans()
)
def test_a_size_is_its_number_times_its_unit(number, unit, b, lower):
    text = f"{number}{unit}{b}"
    assume(unit or b)  # so small a number without a unit is refused
    assert parse_size(text.lower() if lower else text) == number * _UNITS[unit]


# ---- what stands in a record's head ----------------------------------------------------------------------------------


@examples(50)
@given(cost_ns=_int64, about=st.text(max_size=50), code=st.binary(max_size=100))
def test_the_record_on_the_disk_is_the_documented_bytes(tmp_path_factory, cost_ns, about, code):
    """docs/design.md states the offsets; other programs may read them."""
    root = tmp_path_factory.getbasetemp() / "documented"
    with FileStreamProgramCache(root, record_files=True, signing_key_file=False) as cache:
        cache.put_entry("k", Entry(code, {"about": about, "compile_cost_ns": cost_ns}))
        blob = Path(Layout(str(root)).record(entry_name(b"k"))).read_bytes()
    magic, version, algorithm, tail, length, _, cost = struct.unpack_from("<2sBBIIqq", blob)
    assert (magic, version, algorithm & 0x7F, length, cost) == (b"LC", 1, 1, len(code), cost_ns)
    assert len(blob) == 44 + tail
