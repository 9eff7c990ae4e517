# SPDX-License-Identifier: Apache-2.0
"""States of runs: the same where all have seen the same and the disk is the same, and another one where not."""

from __future__ import annotations

from lockcache_stress.schedules.calls import Call
from lockcache_stress.schedules.states import DELETED, Known, Made, Moment, states_of

_ALL = 1 << 62


def made(process: int, name: str, *paths: str, **more: object) -> Made:
    call = Call(name, paths, 0, _ALL, bool(more.pop("makes", False)))
    fields = {"said": (0,), "image": None, "ended": (0, 0), "begins": False, **more}
    return Made(process, call, False, 0.0, **fields)  # type: ignore[arg-type]


def last(*steps: Made, has_order: bool = False) -> int:
    return [state for _, state in states_of(steps, 2, b"page", 0, has_order=has_order)][-1]


_MAKE = made(0, "open", "tmp/a", makes=True)
_WRITE = made(0, "write", "tmp/a", said=(7,))
_LOOK = made(1, "stat", "tmp/a")
_OTHER = made(1, "stat", "entries/ab/cd")


def test_calls_that_commute_come_to_the_same_state_in_either_order():
    assert last(_MAKE, _OTHER, _WRITE) == last(_MAKE, _WRITE, _OTHER) == last(_OTHER, _MAKE, _WRITE)


def test_what_a_call_saw_is_a_part_of_the_state():
    assert last(_MAKE, _LOOK, _WRITE) != last(_MAKE, _WRITE, _LOOK)
    assert last(_LOOK, _MAKE) != last(_MAKE, _LOOK)
    listed = made(1, "scandir", "tmp")
    assert last(_MAKE, listed) != last(listed, _MAKE)
    read = made(1, "pread", "lockcache/state")
    change = made(0, "pwrite", "lockcache/state", image=b"other")
    assert last(read, change) != last(change, read)


def test_the_same_bytes_written_again_are_the_same_page():
    read = made(1, "pread", "lockcache/state")
    there, back = made(0, "pwrite", "lockcache/state", image=b"x"), made(0, "pwrite", "lockcache/state", image=b"page")
    assert last(read, there, back) == last(there, back, read) != last(there, read, back)


def test_which_operation_had_ended_before_another_began_is_a_part_of_the_state():
    early, late = made(1, "stat", "x", begins=True), made(1, "stat", "x", begins=True, ended=(1, 0))
    assert last(_MAKE, early) != last(_MAKE, late)


def test_the_order_of_uses_counts_only_where_somebody_evicts():
    uses = [made(0, "utime", "entries/ab/1"), made(1, "utime", "entries/ab/2")]
    assert last(*uses) == last(*reversed(uses))
    assert last(*uses, has_order=True) != last(*reversed(uses), has_order=True)


def test_a_file_without_a_name_makes_a_state_of_its_own():
    read = made(1, "pread", "lockcache/leases/a", said=(DELETED,))
    assert last(_MAKE, read) != last(read, _MAKE)


def test_a_failed_call_changes_nothing_and_is_seen():
    failed = made(0, "unlink", "tmp/a", said=(0, "failed"))
    assert last(failed, _LOOK) == last(_LOOK, failed)
    assert last(failed) != last(made(0, "unlink", "tmp/a"))


def test_a_state_is_known_with_as_few_preemptions_and_the_same_stands():
    known, moment = Known(), Moment(1, 0, False, 0.0, ())
    assert not known.add(5, moment)
    assert known.add(5, moment)
    assert known.add(5, moment._replace(preemptions=2))
    assert not known.add(5, moment._replace(preemptions=0))
    assert not known.add(5, moment._replace(current=1))
