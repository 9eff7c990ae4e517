# SPDX-License-Identifier: Apache-2.0
"""Presence: the last command of a folder, and whether all ended well."""

from __future__ import annotations

from pathlib import Path

from lockcache import FileStreamProgramCache
from lockcache.integrations.kept_folders.presence import Presence
from lockcache.lowlevel import Layout


def test_all_ended_well_if_each_did_and_the_last_one_hears_it(tmp_path: Path) -> None:
    FileStreamProgramCache(tmp_path / "cache").close()
    layout = Layout(str(tmp_path / "cache"))
    first, second, elsewhere = (Presence(layout, str(tmp_path / name)) for name in ("a", "a", "b"))
    assert elsewhere.all_ended_well()
    assert not first.all_ended_well()
    first.close()
    assert second.all_ended_well()
    second.close()
    elsewhere.close()


def test_one_that_ended_without_a_word_is_remembered_until_nobody_is_there(tmp_path: Path) -> None:
    FileStreamProgramCache(tmp_path / "cache").close()
    layout = Layout(str(tmp_path / "cache"))
    killed, other = Presence(layout, str(tmp_path)), Presence(layout, str(tmp_path))
    killed.close()
    third = Presence(layout, str(tmp_path))
    assert not other.all_ended_well()
    other.close()
    assert not third.all_ended_well()
    third.close()
    last = Presence(layout, str(tmp_path))
    assert last.all_ended_well()
    last.close()


def test_one_that_begins_while_the_last_one_still_stores_is_counted(tmp_path: Path) -> None:
    FileStreamProgramCache(tmp_path / "cache").close()
    layout = Layout(str(tmp_path / "cache"))
    storing = Presence(layout, str(tmp_path))
    assert storing.all_ended_well()
    killed = Presence(layout, str(tmp_path))
    storing.close()
    other = Presence(layout, str(tmp_path))
    killed.close()
    assert not other.all_ended_well()
    other.close()


def test_where_there_can_be_no_lock_nobody_ended_well(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    presence = Presence(Layout(str(tmp_path / "cache")), str(tmp_path))
    assert not presence.all_ended_well()
    presence.close()
