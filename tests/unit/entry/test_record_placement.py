# SPDX-License-Identifier: Apache-2.0
"""Where a record is put, and what errors of a file system teach about it."""

from __future__ import annotations

import errno
import os

import pytest

from lockcache.filestream.disk.layout import entry_name
from lockcache.filestream.entry.codec import (
    HEAD_BYTES,
    AttributeRefusedError,
    Record,
    RecordPlacement,
    is_tail_beside,
    pack,
)

NAME = entry_name(b"k")


def refused(code, size):
    return AttributeRefusedError(OSError(code, os.strerror(code)), size)


def placed(placement, record_bytes):
    """Returns how much of a record of this length goes into the attribute, and how much into a file."""
    packed = placement.pack(pack, NAME, b"", Record(0, 0, 0, b"t" * (record_bytes - HEAD_BYTES)), b"")
    assert is_tail_beside(packed.attribute) == bool(packed.attribute and packed.file)
    return len(packed.attribute), len(packed.file)


def test_small_records_go_into_the_attribute_and_large_ones_keep_their_head_there():
    placement = RecordPlacement(use_files=False)
    assert [placed(placement, size) for size in (500, 5000)] == [(500, 0), (HEAD_BYTES, 5000 - HEAD_BYTES)]
    assert placed(RecordPlacement(use_files=True), 44) == (0, 44)


def test_a_note_goes_into_an_attribute_of_its_own_or_into_the_tail_of_a_record_file():
    for use_files in (False, True):
        packed = RecordPlacement(use_files=use_files).pack(pack, NAME, b"", Record(0, 0, 0, b""), b"note")
        assert (packed.note, bool(packed.file)) == ((b"", True) if use_files else (b"note", False))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.E2BIG, errno.ERANGE])
def test_an_attribute_that_is_too_big_teaches_to_put_less_there(code):
    placement = RecordPlacement(use_files=False)
    assert placement.learn_from(refused(code, 300)) is not None
    assert placed(placement, 300) == (HEAD_BYTES, 300 - HEAD_BYTES)
    assert placed(placement, 200) == (200, 0)
    assert placement.learn_from(refused(code, HEAD_BYTES)) is None  # that is a full disk


@pytest.mark.parametrize("code", [errno.ENOTSUP, errno.ENOSYS, errno.EPERM])
def test_a_file_system_without_attributes_teaches_to_put_everything_into_files(code):
    placement = RecordPlacement(use_files=False)
    assert placement.learn_from(refused(code, HEAD_BYTES)) is not None
    assert placed(placement, 44) == (0, 44)


def test_other_errors_teach_nothing():
    placement = RecordPlacement(use_files=False)
    assert placement.learn_from(refused(errno.EIO, 300)) is None
    assert placed(placement, 300) == (300, 0)
