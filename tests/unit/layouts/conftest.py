# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lockcache.layouts.own_folder import GuestFiles


@pytest.fixture
def keep_open() -> Iterator[Callable[[GuestFiles], GuestFiles]]:
    """Prepares the files of a layout, and closes them after the test."""
    made: list[GuestFiles] = []

    def start(files: GuestFiles) -> GuestFiles:
        made.append(files)
        files.prepare()
        return files

    yield start
    for files in made:
        files.close()
