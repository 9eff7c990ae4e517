# SPDX-License-Identifier: Apache-2.0
"""A bundle: many entries in one file that is never changed. Its bytes, reading it, and writing one.

Promises invariant 1 (a hit is whole) in :class:`BundleFile`, whatever the file holds; and reads a directory's own copy
of one, its seed (:class:`SeedFile`). A directory's bundles are made and merged by :mod:`lockcache.bundle`.

May use: accounting, entry, seed_marks, bundle_format, disk.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.filestream.bundle.reader import BundleFile, RefusedEntryError, is_bundle, refuse_unsafe
    from lockcache.filestream.bundle.seed_reader import SeedFile, SeedSource, SeededRecords
    from lockcache.filestream.bundle.stream import BundleStream
    from lockcache.filestream.bundle.writer import BundleWriter

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)
