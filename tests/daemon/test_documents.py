# SPDX-License-Identifier: Apache-2.0
"""The daemon's page says what is true."""

from __future__ import annotations

import re
from pathlib import Path

from lockcache_daemon.settings.model import DirectorySettings, Settings, settings_of
from lockcache_daemon.settings.sources import Sources

PAGE = (Path(__file__).parents[2] / "docs" / "daemon.md").read_text()


def test_the_file_in_the_documentation_is_valid_and_has_every_setting(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    config = tmp_path / "lockcache.toml"
    config.write_text(text)
    settings = Sources({}, (), str(config), {}).load()
    assert [(each.max_size, each.floor) for each in settings.directories] == [
        (40 * 10**9, 10**10),
        (5 * 10**9, 10**9),
        (20 * 10**9, 10**9),
        (30 * 10**9, 10**9),
    ]
    written = set(re.findall(r"^(\w+) =", text, re.MULTILINE))
    assert written == {*settings_of(Settings), *settings_of(DirectorySettings), "path"}
