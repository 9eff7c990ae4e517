# SPDX-License-Identifier: Apache-2.0
"""File names: the same as cuda.core's for entries, and parsers that refuse whatever was not written by them."""

from __future__ import annotations

import hashlib
import string

import pytest
from hypothesis import given, strategies as st

from lockcache.filestream.disk.layout import (
    SHARDS,
    Layout,
    StagedName,
    entry_name,
    is_entry_file,
    parse_staged_name,
)
from tests.unit.material import property_test

GOOD = "ab.123.0123456789abcdef.42.1700000000.1f"

_staged = st.builds(
    StagedName,
    st.integers(0, SHARDS - 1),
    st.integers(0, 2**63 - 1),
    st.text("0123456789abcdef", min_size=16, max_size=16),
    st.integers(0, 10**10 - 1),
    st.integers(0, 10**12 - 1),
    st.integers(0, 16**16 - 1),
)


def test_an_entry_is_named_by_the_sha256_of_its_key():
    assert entry_name(b"k") == hashlib.sha256(b"k").hexdigest()
    layout = Layout("/c")
    name = "ab" + "0" * 62
    assert layout.entry(name) == "/c/entries/ab/" + "0" * 62
    assert layout.record(name) == "/c/lockcache/records/ab/" + "0" * 62
    assert (layout.entry_shard(0xAB), layout.lock(0xAB)) == ("/c/entries/ab", "/c/lockcache/locks/ab")


def test_everything_lies_under_the_root_and_parents_come_before_children():
    layout = Layout("/c")
    paths = [path for path in vars(layout).values() if isinstance(path, str)]
    assert all(path == "/c" or path.startswith("/c/") for path in paths)
    seen = {"/"}
    for path in layout.directories():
        assert path.rpartition("/")[0] in seen | {""}
        seen.add(path)


@property_test
@given(st.text(string.hexdigits + "x.-/\n ", max_size=70) | st.text("0A\n٣", min_size=61, max_size=63))
def test_only_62_lower_case_hex_digits_are_an_entry_file(name):
    assert bool(is_entry_file(name)) == (len(name) == 62 and set(name) <= set("0123456789abcdef"))


@property_test
@given(_staged)
def test_a_staged_name_says_what_it_was_made_from(staged):
    assert parse_staged_name(str(staged)) == staged
    assert "/" not in str(staged)
    assert len(str(staged)) < 100


@property_test
@given(_staged, st.data())
def test_a_staged_name_with_any_character_added_or_removed_is_not_taken_for_itself(staged, data):
    name = str(staged)
    at = data.draw(st.integers(0, len(name) - 1))
    assert parse_staged_name(name[:at] + name[at + 1 :]) != staged
    assert parse_staged_name(name[:at] + data.draw(st.sampled_from(".-_ /\n\0xG٣")) + name[at:]) is None


@pytest.mark.parametrize(
    "bad",
    [
        GOOD + "\n", " " + GOOD, GOOD.upper(), GOOD + ".1", GOOD.replace("ab.", "abc."), GOOD.replace("ab.", "a."),
        GOOD.replace(".123.", ".-1."), GOOD.replace(".123.", ".+1."), GOOD.replace(".123.", ".1_0."),
        GOOD.replace(".123.", ".."), GOOD.replace(".123.", ".1e3."), GOOD.replace(".123.", "." + "9" * 20 + "."),
        GOOD.replace(".123.", f".{2**63}."),
        GOOD.replace(".42.", ".٤٢."), GOOD.replace("abcdef", "abcde"), "policy.json.0123456789abcdef", "",
        "tmpabcdef", GOOD.replace("1f", "0x1f"),
    ],
    ids=range(19),
)  # fmt: skip
def test_what_looks_like_a_staged_name_and_is_none_is_refused(bad):
    assert parse_staged_name(bad) is None
    assert parse_staged_name(GOOD) == StagedName(0xAB, 123, "0123456789abcdef", 42, 1700000000, 0x1F)


@pytest.mark.cuda
def test_cuda_cores_own_cache_finds_what_is_stored_under_these_names(cache_path):
    from cuda.core.utils import FileStreamProgramCache as Upstream

    from lockcache import FileStreamProgramCache

    with FileStreamProgramCache(cache_path) as ours, Upstream(cache_path) as theirs:
        for key in (b"k", "ключ", b"\0" * 100, b""):
            ours[key] = b"of lockcache"
            assert theirs[key] == b"of lockcache"
            theirs[key] = b"of cuda.core"
            assert ours[key] == b"of cuda.core"
