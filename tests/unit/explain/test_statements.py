# SPDX-License-Identifier: Apache-2.0
"""Statements of programs about keys: found again for a while, computed once, and next to metadata in a record."""

from __future__ import annotations

from lockcache import metadata
from lockcache.explain import (
    Hashed,
    Label,
    Part,
    Stated,
    is_remembered,
    make_part,
    parts_of_digest,
    remember,
    remember_digest,
    statement_of,
)
from lockcache.explain.statements import _MOST

PART = make_part("option arch", b"1", "sm_90")


def stating(parts: list[Part], label: str = "saxpy") -> Stated:
    return Stated(lambda: parts, lambda: label)


def test_a_statement_is_found_by_its_key_and_the_oldest_are_forgotten() -> None:
    for number in range(3 * _MOST):
        remember(b"key %d" % number, stating([PART]))
        assert is_remembered(b"key 0"), "which is asked for all the time"
    assert statement_of(b"key 1") is None
    last = statement_of(b"key %d" % (3 * _MOST - 1))
    assert last is not None
    assert (last.label, last.parts) == ("saxpy", [PART])


def test_a_label_of_the_caller_counts_over_what_was_stated() -> None:
    remember(b"labelled", stating([PART]))
    found = statement_of(b"labelled", "mine")
    assert found is not None
    assert (found.label, found.parts) == ("mine", [PART])
    unknown = statement_of(b"nobody stated this", "a label")
    assert unknown is not None
    assert (unknown.label, unknown.parts) == ("a label", [])
    assert statement_of(b"nobody stated this") is None


def test_parts_are_worked_out_once_and_only_when_wanted() -> None:
    calls: list[None] = []
    remember(b"worked out", Stated(lambda: calls.append(None) or [PART], lambda: ""))  # type: ignore[func-returns-value]
    found = statement_of(b"worked out")
    assert (found is not None, calls) == (True, [])
    assert found.parts == found.parts == [PART]
    assert len(calls) == 1


def test_a_note_has_label_and_parts_and_no_metadata() -> None:
    assert metadata.decode_fields(stating([PART]).note()) == ({}, {"label": "saxpy", "parts": [list(PART)]})
    assert stating([], "").note() == b""


def test_a_note_joins_metadata_which_reads_as_before() -> None:
    for tail in (metadata.encode({"kind": "cubin", "t": ("x", b"y")}), b""):
        joined = metadata.join_fields(stating([PART]).note(), tail)
        assert metadata.decode(joined) == metadata.decode(tail)
        assert metadata.decode_fields(joined)[1] == {"label": "saxpy", "parts": [list(PART)]}


def test_parts_of_a_digest_are_found_by_it() -> None:
    remember_digest(b"digest", (PART,))
    assert (parts_of_digest(b"digest"), parts_of_digest(b"another")) == ((PART,), ())


def test_a_label_states_the_parts_of_a_key_once_and_only_of_one_that_is_asked_about() -> None:
    calls: list[None] = []
    label = Label.of("saxpy", lambda: calls.append(None) or {"code": Hashed("secret", "in words"), "n": 4})  # type: ignore[func-returns-value]
    assert (label, calls) == ("saxpy", [])
    for _ in range(2):
        found = statement_of(b"of a label", label)
        assert found is not None
        assert found.label == "saxpy"
        assert found.parts == [make_part("code", b"'secret'", "in words"), make_part("n", b"4", "4")]
    assert len(calls) == 1
    assert statement_of(b"of a label") is not None
