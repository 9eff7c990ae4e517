# SPDX-License-Identifier: Apache-2.0
"""The tables of layouts know each layout that an operator may name; and which of them a directory gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.layouts import WrongLayoutError
from lockcache_daemon.settings.model import LAYOUTS
from lockcache_daemon.stores.layouts import choose_layout, store_of, view
from tests.daemon.triton_format import compile_kernel


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_layout_that_can_be_named_has_a_store_and_a_view(layout: str) -> None:
    assert callable(store_of(layout))
    assert callable(view(layout))


def test_of_a_directory_that_two_programs_use_the_entries_are_managed_with_a_warning(cache_path: Path) -> None:
    FileStreamProgramCache(cache_path)[b"k"] = b"v"
    compile_kernel(cache_path, 0)
    said: list[str] = []
    assert choose_layout(str(cache_path), "auto", said.append) == "lockcache"
    [line] = said
    assert "holds both entries/ and files of triton" in line


def test_a_layout_that_is_another_programs_is_refused(cache_path: Path) -> None:
    compile_kernel(cache_path, 0)
    with pytest.raises(WrongLayoutError, match="use --layout triton"):
        choose_layout(str(cache_path), "warp", pytest.fail)


def test_entries_are_not_managed_as_what_they_are_not(cache_path: Path) -> None:
    FileStreamProgramCache(cache_path)[b"k"] = b"v"
    with pytest.raises(WrongLayoutError, match="use --layout auto"):
        choose_layout(str(cache_path), "warp", pytest.fail)


def test_budgets_of_namespaces_have_no_effect_where_entries_state_none(cache_path: Path) -> None:
    compile_kernel(cache_path, 0)
    said: list[str] = []
    assert choose_layout(str(cache_path), "triton", said.append, has_namespaces=True) == "triton"
    assert "--namespaces has no effect there" in said[0]
