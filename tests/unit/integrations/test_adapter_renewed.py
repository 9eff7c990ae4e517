# SPDX-License-Identifier: Apache-2.0
"""Entries that a program's own command has compiled again: they replace the older ones, with their cost and name."""

from __future__ import annotations

import pytest

from lockcache.filestream.disk import entry_name
from lockcache.filestream.inspect import describe_entry, find_entry
from lockcache.integrations.adapter import Shared

FILES = {"kernel.so": b"newer", "kernel.json": b"{}"}


def _renew_value(shared: Shared) -> None:
    def compile_() -> None:
        shared.renew("k", "a kernel", dict)
        shared.store("k", b"newer")

    shared.compiling(compile_)()


def _renew_files(shared: Shared) -> None:
    with shared.holding(shared.begin_files("k", "a kernel", dict, renews=True)) as turn:
        shared.store_files("k", FILES, turn)


@pytest.mark.parametrize("renew", [_renew_value, _renew_files])
def test_what_is_compiled_again_replaces_the_older_one_and_has_its_cost_and_its_name(renew, shared: Shared) -> None:
    shared.store("k", b"older")
    renew(shared)
    layout = shared.cache._directory.layout
    stored = find_entry(layout, entry_name(b"some/1.2/k"))
    assert stored is not None
    found = describe_entry(layout, stored)
    assert found is not None
    assert found.label == "a kernel"
    assert found.cost_ns
    assert shared.cache["some/1.2/k"].startswith(b"newer")
