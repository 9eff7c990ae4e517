# SPDX-License-Identifier: Apache-2.0
"""Additions of adapters to all keys: versions, and variables of the compilers that frameworks bring along."""

from __future__ import annotations

import pytest

from lockcache.integrations.adapter import Shared, never_raising
from lockcache.keys import variable_names
from tests.started_with import start_with


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(never_raising, "_warned", set())


def test_what_another_version_of_the_framework_stored_is_not_found(shared: Shared) -> None:
    shared.store("key", b"code")
    assert Shared("some", "1.3", shared.cache).look("key") is None
    assert Shared("another", "1.2", shared.cache).look("key") is None
    assert Shared("some", "1.2", shared.cache).look("key") == b"code"


@pytest.mark.parametrize("name", variable_names())
def test_where_a_variable_of_nvidias_compilers_changes_the_framework_goes_on_with_its_own_cache(
    name: str, shared: Shared, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start_with(monkeypatch)
    found = shared.compiling(lambda: shared.look_up("key") or monkeypatch.setenv(name, "other"))()
    shared.store("key", b"of one value or the other")
    assert found is None
    assert shared.has_failed
    assert name in caplog.text
    start_with(monkeypatch)
    assert shared.look("key") is None


@pytest.mark.parametrize("name", variable_names())
def test_a_variable_of_nvidias_compilers_is_in_all_keys_and_is_stated(
    name: str, shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.store("key", b"code")
    start_with(monkeypatch, **{name: "other"})
    assert shared.look("key", "f", dict) is None
    assert str(shared._parts_of("key", dict)[f"variable {name}"]) == "other"
    shared.store("key", b"another")
    assert shared.look("key") == b"another"
    start_with(monkeypatch)
    assert shared.look("key") == b"code"
