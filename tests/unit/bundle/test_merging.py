# SPDX-License-Identifier: Apache-2.0
"""Merging bundles: of each program the newest, and of all the newest that fit."""

from __future__ import annotations

import io

import pytest

from lockcache import BundleProgramCache
from lockcache.bundle.merging import merge_bundles
from lockcache.filestream.bundle.reader import BundleFile
from tests.unit.bundle.bundles import CREATED_NS, bundle_of, write


@pytest.fixture
def merged(tmp_path):
    """Merges bundles that are given as bytes; returns what became of them, and the file's path."""

    def merge(*contents, **options):
        sources = [
            BundleFile(str(write(tmp_path / f"{number}.lcb", content))) for number, content in enumerate(contents)
        ]
        out = io.BytesIO()
        done = merge_bundles(sources, out, **options)
        return done, write(tmp_path / "merged.lcb", out.getvalue())

    return merge


def bundle_at(seconds, entries):
    return bundle_of(entries, created_ns=CREATED_NS + seconds * 10**9)


def read(path, *keys):
    with BundleProgramCache(path) as cache:
        return [cache.get(key) for key in keys]


@pytest.mark.parametrize("order", [1, -1])
def test_of_each_program_the_newest_wins(merged, order):
    old, new = bundle_at(0, {b"k": b"old", b"a": b"a"}), bundle_at(1, {b"k": b"new", b"b": b"b"})
    done, path = merged(*[old, new][::order])
    assert (done.entries, done.replaced, done.damaged) == (3, 1, 0)
    assert read(path, b"k", b"a", b"b") == [b"new", b"a", b"b"]


def test_of_two_of_one_time_the_later_bundle_s_wins(merged):
    _, path = merged(bundle_at(0, {b"k": b"first"}), bundle_at(0, {b"k": b"second"}))
    assert read(path, b"k") == [b"second"]


@pytest.mark.parametrize("cap, left", [(10**6, 4), (45_000, 4), (40_000, 3), (21_000, 2), (400, 0), (1, 0)])
def test_the_oldest_leave_until_it_fits(merged, cap, left):
    ages = [bundle_at(second, {b"%d" % second: b"x" * 10_000}) for second in range(4)]
    done, path = merged(*ages, max_size_bytes=cap)
    assert (done.entries, done.too_old) == (left, 4 - left)
    assert path.stat().st_size <= cap or not left
    assert read(path, *(b"%d" % second for second in range(4))) == [None] * (4 - left) + [b"x" * 10_000] * left


def test_what_is_damaged_in_one_is_taken_from_another(merged):
    whole = bundle_at(0, {b"k": b"y" * 200, b"a": b"a"})
    damaged = bytearray(bundle_at(1, {b"k": b"z" * 200}))
    damaged[200] ^= 1
    done, path = merged(whole, bytes(damaged))
    assert (done.entries, done.damaged) == (2, 1)
    assert read(path, b"k", b"a") == [b"y" * 200, b"a"]


def test_merging_twice_gives_the_same_bytes(merged):
    contents = [bundle_at(second, {b"%d" % each: b"v" * each for each in range(50 - second)}) for second in range(3)]
    _, path = merged(*contents)
    first = path.read_bytes()
    assert merged(first, first)[1].read_bytes() == first


def test_progress_ends_at_its_end(merged):
    reported = []
    merged(bundle_at(0, {b"k": b"v"}), progress=lambda done, of: reported.append((done, of)))
    assert all(done <= of for done, of in reported)
