# SPDX-License-Identifier: Apache-2.0
"""The text of a manifest: what is one, and which line is not."""

from __future__ import annotations

import pytest

from lockcache.remote.manifest.text import LARGEST_BYTES, MOST_KEYS, format_manifest, parse_manifest

A, B = "ab" * 32, "0" * 64


def test_what_is_written_reads_back_sorted_and_a_key_a_line() -> None:
    text = format_manifest([A, B, A])
    assert text.decode().splitlines()[0] == "# lockcache manifest 1"
    assert text.decode().splitlines()[1:3] == [B, A]
    assert parse_manifest(text, "m") == {A, B}


def test_two_manifests_one_after_the_other_with_comments_and_other_ends_of_lines_are_one() -> None:
    text = format_manifest([A]) + b"# of the other job\r\n\r\n" + format_manifest([B]).replace(b"\n", b"\r\n")
    assert parse_manifest(text.rstrip(b"\n"), "m") == {A, B}


@pytest.mark.parametrize(
    "text, named",
    [
        (b"", "m: line 1: this is not a manifest"),
        (A.encode(), "m: line 1: this is not a manifest"),
        (b"# lockcache manifest 2\n", "m: line 1: this manifest was made by a newer lockcache"),
        (f"# lockcache manifest 1\n{A}\n{A[1:]}\n".encode(), f"m: line 3: '{A[1:]}' is not a key"),
        (f"# lockcache manifest 1\n{A.upper()}\n".encode(), "m: line 2: 'ABAB"),
        (b"# lockcache manifest 1\n\n\x1b[31m\xff\n", r"m: line 3: '\x1b[31m"),
        (b"# lockcache manifest 1\n" + b"x" * 10_000, "m: line 2: 'xxxx"),
        (b"# lockcache manifest 1\n" + b"\n" * LARGEST_BYTES, "m: this is longer than a manifest of 16384 keys"),
    ],
)
def test_a_line_that_is_not_a_key_is_named(text: bytes, named: str) -> None:
    with pytest.raises(ValueError, match="m: ") as refused:
        parse_manifest(text, "m")
    assert str(refused.value).startswith(named)
    assert len(str(refused.value)) < 300


def test_more_keys_than_a_manifest_has_are_refused_and_as_many_as_it_has_fit() -> None:
    keys = [f"{number:064x}" for number in range(MOST_KEYS + 1)]
    assert len(parse_manifest(format_manifest(keys[:-1]), "m")) == MOST_KEYS
    with pytest.raises(ValueError, match="16385 keys"):
        parse_manifest(format_manifest(keys), "m")
