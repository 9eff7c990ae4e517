# SPDX-License-Identifier: Apache-2.0
"""Parts of keys: what is kept of a value, what is not, and that all of it fits."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from lockcache.explain import (
    MOST_BYTES,
    Part,
    bounded,
    decode_label,
    decode_parts,
    differences,
    make_part,
    name_path_taker,
    reasons_of,
)
from tests.unit.material import property_test

_parts = st.lists(
    st.builds(make_part, st.text(max_size=100), st.binary(max_size=8), st.text(max_size=200)), max_size=80
)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=4), max_leaves=12
)


@pytest.mark.parametrize(
    "name, value",
    [
        ("define TOKEN", "abc"),
        ("define API_KEY", "abc"),
        ("variable DB_PASSWORD", "abc"),
        ("define BODY", "if (a) { return b[i]; }"),
        ("define NAME", '"text"'),
        ("define LINES", "a\nb"),
        ("define NAME", "\x1b[31m"),
    ],
)
def test_what_may_be_a_secret_or_source_code_is_only_hashed(name: str, value: str) -> None:
    part = make_part(name, value.encode(), value)
    assert part.value == ""
    assert part != make_part(name, b"another", value)


def test_a_strange_or_long_name_is_shortened_and_stays_distinct() -> None:
    names = [make_part(f"define {'A' * 100}{end}", b"").name for end in "xy"]
    assert len({*names, make_part("define \x1b[0m", b"").name}) == 3
    assert all(len(name) < 40 for name in names)


@property_test
@given(_parts)
def test_all_parts_fit_and_come_back_as_they_were_written(parts: list[Part]) -> None:
    kept = bounded(parts)
    written = json.dumps(kept, separators=(",", ":"))
    assert len(written) <= MOST_BYTES
    assert list(decode_parts(json.loads(written))) == kept
    assert len(kept) == len(parts) or kept[-1].name == "others"


@property_test
@given(_json)
def test_what_no_writer_wrote_is_no_parts_and_no_label(value: object) -> None:
    assert all(isinstance(text, str) for part in decode_parts(value) for text in part)
    assert isinstance(decode_label(value), str)


def test_of_many_parts_one_that_changed_is_named_or_is_among_the_others() -> None:
    before = [make_part(f"define M{n:03}", b"1", "1") for n in range(200)]
    for changed in (0, 30, 199):
        after = [make_part(part.name, b"2", "2") if n == changed else part for n, part in enumerate(before)]
        [difference] = differences(bounded(before), bounded(after))
        assert difference.name in (f"define M{changed:03}", "others")


def test_the_last_values_go_before_the_first_ones() -> None:
    parts = bounded([make_part(f"option number {n:02}", b"1", "a short value") for n in range(24)])
    shown = [bool(part.value) for part in parts]
    assert shown == sorted(shown, reverse=True)
    assert {*shown} == {True, False}
    assert len(parts) == 24


def test_where_others_and_the_rest_of_a_key_differ_others_are_named() -> None:
    def parts(number: str) -> list[Part]:
        others = make_part("others", number.encode(), f"{number} more")
        return [make_part("rest of the key", number.encode()), make_part("code", b"1"), others]

    assert [each.name for each in differences(parts("3"), parts("4"))] == ["others"]


def test_what_one_of_two_keys_had_no_room_for_is_not_called_a_difference() -> None:
    macros = [make_part(f"define M{n:03}", b"1", "1") for n in range(200)]
    many = bounded(macros)
    fewer = bounded(macros[5:])
    assert [each.name for each in differences(fewer, many)] == ["others"]
    assert [each.name for each in differences(many, [make_part("define M000", b"2"), *many[1:]])] == ["define M000"]


@pytest.mark.parametrize("headers", [(40, 40), (40, 2), (2, 40)], ids=str)
@pytest.mark.parametrize("option", ["option fmad", "define NEW", "include path"])
def test_an_option_of_one_key_is_named_though_headers_had_no_room(option: str, headers: tuple[int, int]) -> None:
    def parts(count: int, *options: str) -> list[Part]:
        named = ["code", "option arch", *options, "define OLD", "order of options", "headers"]
        return bounded(
            [make_part(name, b"1") for name in [*named, *(f"header include/{n:02}.h" for n in range(count))]]
        )

    with_it, without = parts(headers[0], option), parts(headers[1])
    assert {each[-1].name for each in (with_it, without)} & {"others"}
    for mine, other in ((with_it, without), (without, with_it)):
        found = [each.name for each in differences(mine, other)]
        assert [name for name in found if not name.startswith(("header", "others"))] == [option]


def test_a_header_of_one_key_is_named_unless_it_may_be_cut_from_the_other() -> None:
    few, many = ([make_part(f"header {n}.h" * 4, b"1") for n in range(count)] for count in (2, 60))
    one, cut = bounded([*few, make_part("header new.h", b"1")]), bounded(many)
    assert [each.name for each in differences(one, cut) if each.mine] == [], "it may be among the other's others"
    assert [each.name for each in differences(one, cut) if each.other][:1] == [many[2].name], "of these one has all"


@pytest.mark.parametrize(
    "cause, consequence",
    [
        ("option generate-line-info", "working directory"),
        ("option device-debug", "working directory"),
        ("option dlink-time-opt", "working directory"),
        ("target", "working directory"),
        ("target", "variable LLVM_OVERRIDE_PRODUCER"),
        ("header x.h", "headers"),
        ("define A", "order of options"),
        ("option num_warps", "other options"),
        ("code", "functions and globals"),
        ("anything", "rest of the key"),
    ],
)
def test_a_consequence_is_not_named_next_to_its_cause(cause: str, consequence: str) -> None:
    found = differences([make_part(cause, b"1"), make_part(consequence, b"1")], [make_part(cause, b"2")])
    assert [each.name for each in found] == [cause]
    alone = differences([make_part(consequence, b"1")], [make_part(consequence, b"2")])
    assert [each.name for each in alone] == [consequence]


def test_an_option_that_does_not_need_the_working_directory_is_not_its_cause() -> None:
    cause, directory = "option fmad", make_part("working directory", b"1")
    found = differences([make_part(cause, b"1"), directory], [make_part(cause, b"2")])
    assert [each.name for each in found] == [cause, "working directory"]
    assert reasons_of("working directory", [make_part(cause, b"1"), make_part("option device-debug", b"1")]) == [
        "debug"
    ]


@pytest.mark.parametrize("path", ["include path", "pre-include", "option use-bundled-headers"])
@pytest.mark.parametrize(
    "takers, changed, named",
    [
        (["lineinfo"], ["option generate-line-info"], False),
        (["LTO-IR"], ["target"], False),
        (["lineinfo"], ["option fmad"], True),
        (["lineinfo", "extra_digest"], ["option generate-line-info"], True),
        (["__FILE__ or the like in a text"], ["code"], True),
    ],
    ids=str,
)
def test_paths_of_one_key_are_a_consequence_of_what_alone_takes_them_in(
    path: str, takers: list[str], changed: list[str], named: bool
) -> None:
    one = [*map(name_path_taker, takers), *(make_part(name, b"1") for name in changed), make_part(path, b"/a")]
    other = [make_part(name, b"2") for name in changed]
    for pair in ((one, other), (other, one)):
        assert [each.name for each in differences(*pair)] == [*changed, *([path] if named else [])]
    assert reasons_of(path, one) == takers
    moved = [*one[:-1], make_part(path, b"/b")]
    assert [each.name for each in differences(one, moved)] == [path], "what takes it in is not a difference"
