# SPDX-License-Identifier: Apache-2.0
"""Folders of other programs' caches: stored as entries while a command runs, and laid down before the next one.

Promises that a folder is stored when it is known to be whole, and never one that a killed builder left behind; that
what is laid down is a copy, which appears whole; and invariant 7 (never take the job down). For programs whose cache is
a folder for each kernel, named by what it was made of, and that lockcache has no adapter for. Nobody asks before
compiling, so there is no compile-once here.

May use: staged.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.integrations.kept_folders.guard import FolderGuard
    from lockcache.integrations.kept_folders.pattern import Pattern, parse_pattern
    from lockcache.integrations.kept_folders.presence import Presence
else:
    __getattr__, __dir__ = door(__name__)
