# SPDX-License-Identifier: Apache-2.0
"""Patterns: the root, the name under which folders are found, and which paths match."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lockcache.integrations.kept_folders import parse_pattern

VARIABLES = {"CACHE_DIR": "/data/cache", "empty": ""}


@pytest.mark.parametrize(
    "text, name, root, levels",
    [
        ("CACHE_DIR/*/", "CACHE_DIR/*/", "/data/cache", ("*",)),
        ("$CACHE_DIR/*/", "CACHE_DIR/*/", "/data/cache", ("*",)),
        ("${CACHE_DIR}//a/./*/", "CACHE_DIR/a/*/", "/data/cache/a", ("*",)),
        ("CACHE_DIR/a/*/kernels/*/", "CACHE_DIR/a/*/kernels/*/", "/data/cache/a", ("*", "kernels", "*")),
        ("/data/*/x/", "/data/*/x/", "/data", ("*", "x")),
        ("~/kernels/*/", "~/kernels/*/", f"{Path.home()}/kernels", ("*",)),
        ("kernels/*/", "./kernels/*/", f"{os.getcwd()}/kernels", ("*",)),
        ("./CACHE_DIR/*/", "./CACHE_DIR/*/", f"{os.getcwd()}/CACHE_DIR", ("*",)),
    ],
)
def test_a_pattern_is_named_as_it_is_written_and_its_root_is_where_it_is_here(
    text: str, name: str, root: str, levels: tuple[str, ...]
) -> None:
    assert parse_pattern(text, VARIABLES) == (name, root, levels)


REFUSED = {
    "is not set": ("$UNSET/*/", "UNSET/*/", "$empty/*/"),
    "begins with": ("$1/*/", "*/"),
    "is not a path": ("a\n/*/", "/" + "x/" * 3000 + "*/"),
    "no level '\\*'": ("CACHE_DIR/x/",),
    "one '\\*' for each level": ("CACHE_DIR/**/",),
    "has '..'": ("CACHE_DIR/../*/", "../*/"),
    "a slash": ("CACHE_DIR/*", ""),
    "the pattern 'a\\*'": ("CACHE_DIR/a*/",),
    "the root of all files": ("/*/",),
    "has more than": ("CACHE_DIR/" + "x/" * 70 + "*/",),
}


@pytest.mark.parametrize("text, why", [(text, why) for why, texts in REFUSED.items() for text in texts])
def test_what_is_not_a_pattern_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_pattern(text, VARIABLES)


@pytest.mark.parametrize("path", ["1/kernels/k", "0.1.15/kernels/kernel.temp_scale.tmpl", "1/kernels/block"])
def test_paths_of_kernels_match(path: str) -> None:
    assert parse_pattern("CACHE_DIR/*/kernels/*/", VARIABLES).matches(path)


@pytest.mark.parametrize(
    "path",
    [
        *(
            "k",
            "1/k",
            "1/other/k",
            "1/kernels",
            "1/kernels/k/x",
            "/kernels/k",
            "1/kernels/",
            "1/kernels/.",
            "1/kernels/..",
        ),
        *(
            "../kernels/k",
            ".x/kernels/k",
            "1/kernels/.hidden",
            "1/kernels/tmpabc",
            "1/kernels/k.tmp",
            "1/kernels/k.tmp.12",
        ),
        *(
            "1/kernels/k.lock",
            "1/kernels/trash",
            "1/kernels/a\0b",
            "1/kernels/\udcff",
            f"1/kernels/{'0' * 32}.kept.{'0' * 16}.1.2.3",
        ),
    ],
)
def test_other_paths_and_those_of_what_is_under_way_do_not(path: str) -> None:
    assert not parse_pattern("CACHE_DIR/*/kernels/*/", VARIABLES).matches(path)
