# SPDX-License-Identifier: Apache-2.0
"""The picture of ``lockcache top``: whatever the size of the terminal, it fits and says whose the entries are."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from rich.cells import cell_len

from lockcache.cli.top.sample import Look
from lockcache.cli.top.view import draw, shorten_path
from lockcache.lowlevel import Described

RATES = {"hits": 1.0, "misses": 0.0, "puts": 12.5, "evictions": 0.0}


def entry(name: str = "ab" * 32, **known: str) -> Described:
    described = Described(name, 1500, 0, 1, "whole", cost_ns=2 * 10**9)
    usual = {"kind": "cubin", "arch": "sm_90", "compiler": "nvrtc 13.5.37", "label": "gemm"}
    return described._replace(**{**usual, **known})


def look(path: str = "/scratch/user/projects/kernels", entries: int = 3, **known: object) -> Look:
    newest = [entry() for _ in range(entries)]
    fields = {"bytes": 3_600_000, "max_size_bytes": 4_000_000, "entries": 110, "rates": RATES, "newest": newest}
    return Look(path, **{**fields, **known})  # type: ignore[arg-type]


def drawn(looks: list[Look], width: int = 80, height: int | None = 24, *, is_helping: bool = False) -> list[str]:
    return [line.text for line in draw(looks, width, height, 1.0, is_helping=is_helping)]


def test_on_a_standard_terminal_two_directories_are_two_blocks_with_their_entries() -> None:
    lines = drawn([look("/scratch/kernels"), look("/home/u/.cache/other", daemon="pid 7 on vm")])
    assert "q quits" in lines[0]
    assert "? help" in lines[0]
    heads = [number for number, line in enumerate(lines) if not line.startswith(" ") and number]
    assert [lines[number].split()[0] for number in heads] == ["/scratch/kernels", "/home/u/.cache/other"]
    for number in heads:
        assert "3.6 MB of 4.0 MB" in lines[number + 1]
        assert "90.0%" in lines[number + 1]
        assert "PUT/S 12.5" in lines[number + 2] + lines[number + 3]
        assert any("LATEST" in line and "KERNEL" in line for line in lines[number : number + 5])
    assert sum("abababababab" in line for line in lines) == 6


def test_directories_for_which_there_is_no_room_are_counted() -> None:
    lines = drawn([look(f"/d{number}") for number in range(20)])
    assert len(lines) <= 24
    assert lines[-1].endswith("more directories, for which there is no room")


@pytest.mark.parametrize(
    "path, width, shown",
    [
        ("/a/b", 10, "/a/b"),
        ("/scratch/user/demo", 12, "…/user/demo"),
        ("/scratch/user/demo", 8, "…/demo"),
        ("/scratch/a-name-without-end", 8, "…out-end"),
        ("/scratch/üñï-日本", 10, "…/üñï-日本"),
        ("/scratch/a\x1bb", 8, "…/a\\x1bb"),
    ],
)
def test_a_path_is_shortened_from_the_left(path: str, width: int, shown: str) -> None:
    assert shorten_path(path, width) == shown


def test_what_is_in_a_directory_cannot_write_to_the_terminal() -> None:
    hostile = look("/a\x1b[2J", newest=[entry("dir/\x1b[31mx", label="k\u202ex", kind="\n")])
    assert all(line.isprintable() for line in drawn([hostile], 200))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.text(min_size=1, max_size=60), max_size=4),
    st.integers(10, 200),
    st.integers(1, 60),
    st.booleans(),
)
def test_it_never_leaves_its_frame(names: list[str], width: int, height: int, is_helping: bool) -> None:
    looks = [look(f"/x/{name}", newest=[entry(name, label=name, kind=name)] * 3, daemon=name) for name in names]
    looks.append(look(gone="no such directory"))
    lines = drawn(looks, width, height, is_helping=is_helping)
    assert len(lines) <= height
    assert max(map(cell_len, lines)) <= width
