# SPDX-License-Identifier: Apache-2.0
"""Sizes, shares and durations: one meaning each, and refusals that help."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from lockcache.sizes import (
    counted,
    format_duration,
    format_size,
    parse_count,
    parse_duration,
    parse_share,
    parse_size,
    printable,
)


@pytest.mark.parametrize(
    "text, size_bytes",
    [
        ("1B", 1),
        ("4096B", 4096),
        ("7b", 7),
        ("10k", 10_000),
        ("10G", 10 * 10**9),
        ("10GB", 10 * 10**9),
        ("10 GB", 10 * 10**9),
        (" 10G\n", 10 * 10**9),
        ("1.5T", 1_500_000_000_000),
        (".5M", 500_000),
        ("10GiB", 10 * 2**30),
        ("10gi", 10 * 2**30),
        ("1.5TiB", 3 * 2**39),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_a_size_means_the_same_everywhere(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    "text",
    ["", " ", "0", "0G", "0.0", "0.4", "-1", "-1G", "+1", "ten", "G", "10X", "10i", "10GG", "10Gbit", "10 G B", "1e9",
     "1_000", "0x10", "10G!", "10,5G", "nan", "inf", "٣G", "1.G", "9223372036854775808", "9.3E", "8EiB",
     "1" + "0" * 50, "99999999999999999999E"],
)  # fmt: skip
def test_what_is_no_size_is_refused_by_name_and_with_what_is_accepted(text: str) -> None:
    with pytest.raises(ValueError, match="10GiB") as caught:
        parse_size(text)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)


REFUSED: list[tuple[Callable[[str], object], str, list[str]]] = [
    (parse_size, r"has no unit|10GiB", ["1", "10", " 10 ", "4096", "999999", "0.5", "10."]),
    (
        parse_share,
        "from 1% to 100%",
        ["", "0%", "0.5%", "101%", "-5%", "90", "0.9", "%", "ninety", "nan%", "9e1%"],
    ),
    (
        parse_duration,
        "500ms",
        ["", "0", "0s", "5", "-1s", "+1s", "s", "1x", "1.2.3s", "1 s", "1ns", "999999999999d"],
    ),
    (
        parse_count,
        r"is (not a whole number|too small for a count|too large for a count); accepted: .* 1\.5M",
        ["", "0", "ten", "-1", "1.5", "1.0001k", "1T", "1MB", "9300000000G"],
    ),
]


@pytest.mark.parametrize("parse, said, text", [(parse, said, text) for parse, said, texts in REFUSED for text in texts])
def test_what_cannot_be_meant_is_refused_by_name_and_with_what_is_accepted(
    parse: Callable[[str], object], said: str, text: str
) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        parse(text)
    assert repr(text) in str(caught.value)


@given(st.text(max_size=30))
def test_no_text_makes_size_parsing_fail_otherwise(text: str) -> None:
    message = repr(text)
    try:
        size_bytes = parse_size(text)
    except ValueError as error:
        message, size_bytes = str(error), 1
    assert 0 < size_bytes < 2**63
    assert repr(text) in message


@pytest.mark.parametrize("text, share", [("90%", 0.9), ("90 %", 0.9), ("100%", 1.0), ("1%", 0.01), ("99.5%", 0.995)])
def test_a_share_is_a_percentage(text: str, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize(
    "text, seconds",
    [("0.5s", 0.5), ("500ms", 0.5), ("2s", 2), ("1m", 60), ("1h30m", 5400), ("1m0.5s", 60.5), ("2w", 1209600)],
)
def test_a_duration_carries_its_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


def test_a_variable_with_a_duration_is_read_without_what_programs_need() -> None:
    program = "import sys; sys.modules.update(dict.fromkeys(('click', 'durationpy'))); import lockcache; "
    program += "lockcache.FileStreamProgramCache(sys.argv[1], compile_once=True).close()"
    environment = {**os.environ, "LOCKCACHE_LEASE_TIMEOUT": "5m"}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", program, folder], env=environment, check=True)


@pytest.mark.parametrize(
    "size_bytes, words",
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (39_000, "39.0 kB"), (999_949, "999.9 kB"), (999_950, "1.0 MB"),
     (10**10, "10.0 GB"), (2**63 - 1, "9.2 EB")],
)  # fmt: skip
def test_a_size_is_said_in_one_way(size_bytes: int, words: str) -> None:
    assert format_size(size_bytes) == words


@pytest.mark.parametrize(
    "text, count", [("1", 1), ("1_000", 1000), ("500k", 500_000), ("1.5M", 1_500_000), ("2K", 2000)]
)
def test_a_count_is_written_as_sizes_are(text: str, count: int) -> None:
    assert parse_count(text) == count


def test_one_is_not_plural() -> None:
    assert [counted(number, "entry") for number in (0, 1, 2)] == ["0 entries", "1 entry", "2 entries"]


@pytest.mark.parametrize(
    "text, shown",
    [
        ("üñï-日本/a b", "üñï-日本/a b"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\nb\u2028c", "a\\nb\\u2028c"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        (b"\xff.bin".decode(errors="surrogateescape"), "\\xff.bin"),
        ("\ud800", "\\ud800"),
    ],
)
def test_letters_are_shown_and_what_a_terminal_obeys_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    "seconds, words",
    [(0.000753, "753 us"), (0.0123, "12.3 ms"), (1.26, "1.3 s"), (75, "1.2 min"), (7200, "2.0 h"), (200_000, "2.3 d")],
)
def test_a_duration_for_people(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words
