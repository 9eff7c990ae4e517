# SPDX-License-Identifier: Apache-2.0
"""A manifest: the keys that a job looks up, in a small text file, so that the next start can fetch them at once.

Promises that a manifest is read up to a bound, never through a symlink, and refused by line where it is not one; that
what many processes of many hosts add to one file is merged in it; and that recording costs a lookup no system call.

May use: nothing else of the package.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.remote.manifest.file import add_to_manifest, is_manifest, read_manifest
    from lockcache.remote.manifest.missed import MissedKey
    from lockcache.remote.manifest.recorder import Recorder, recorder_of
    from lockcache.remote.manifest.text import MOST_KEYS, format_manifest, parse_manifest

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)
