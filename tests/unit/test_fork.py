# SPDX-License-Identifier: Apache-2.0
"""The calls in a forked child, and which objects get them."""

from __future__ import annotations

import gc
import os

from lockcache import fork
from tests.unit.forked import in_child


class Thing:
    def __init__(self):
        self.called_in = []

    def _after_fork_in_child(self):
        self.called_in.append(os.getpid())


def test_a_child_is_told_once_and_the_parent_is_not():
    thing = Thing()
    fork.after_fork_in_child(thing)
    fork.after_fork_in_child(thing)
    assert in_child(lambda: thing.called_in == [os.getpid()])
    assert thing.called_in == []


def test_a_grandchild_is_told_too():
    thing = Thing()
    fork.after_fork_in_child(thing)
    assert in_child(lambda: in_child(lambda: len(thing.called_in))) == 2


def test_what_is_gone_is_forgotten():
    thing = Thing()
    fork.after_fork_in_child(thing)
    before = len(fork._live)
    del thing
    gc.collect()
    assert len(fork._live) <= before - 1
