# SPDX-License-Identifier: Apache-2.0
"""Descriptors with an owner: open for as long as that lives, or until it closes them."""

from __future__ import annotations

import os

import pytest

from lockcache.filestream.disk.descriptors import Descriptor, KeptDescriptor, opened
from tests.unit.material import descriptors, descriptors_to_begin_with


def test_what_is_open_is_closed_with_its_owner(tmp_path):
    before = descriptors_to_begin_with()
    owner = opened(str(tmp_path), os.O_RDONLY, dir_fd=None)
    assert len(descriptors()) == len(before) + 1
    os.fstat(owner.number)
    del owner
    assert descriptors() == before


def test_closing_twice_is_closing_once_and_leaves_the_number_to_others(tmp_path):
    owner = opened(str(tmp_path), os.O_RDONLY, dir_fd=None)
    number = owner.number
    owner.close()
    assert owner.number == -1
    other = opened(str(tmp_path), os.O_RDONLY, dir_fd=None)
    assert other.number == number
    owner.close()
    del owner
    os.fstat(number)


@pytest.mark.parametrize("has_other", [False, True])
def test_a_kept_number_that_a_program_closed_is_left_to_whoever_has_it_by_now(tmp_path, has_other):
    kept = KeptDescriptor()
    kept.open(str(tmp_path), os.O_RDONLY)
    assert kept.is_own(os.fstat(kept.number))
    number = kept.number
    os.close(number)
    other = os.open("/", os.O_RDONLY) if has_other else number
    assert other == number
    kept.close()
    assert (kept.number, kept.identity) == (-1, None)
    if has_other:
        os.close(number)


def test_with_closes_it(tmp_path):
    with (
        opened(str(tmp_path), os.O_RDONLY, dir_fd=None) as folder,
        opened("file", os.O_RDWR | os.O_CREAT, dir_fd=folder) as file,
    ):
        assert os.path.samestat(os.fstat(file), os.stat(tmp_path / "file"))
    for fd in (folder, file):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


def test_what_cannot_be_opened_leaves_nothing_to_close(tmp_path):
    owner = Descriptor()
    with pytest.raises(FileNotFoundError):
        owner.open(str(tmp_path / "none"), os.O_RDONLY)
    assert owner.number == -1
    owner.close()
