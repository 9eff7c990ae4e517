# SPDX-License-Identifier: Apache-2.0
"""The doctor of two hosts: their messages, who meets whom, and what becomes of numbers that are not good."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockcache.doctor.findings import DEGRADED, GOOD, NOTE, UNTESTED, UNUSABLE, Subject
from lockcache.doctor.pair import prints
from lockcache.doctor.pair.clocks import CLOCKS
from lockcache.doctor.pair.contents import REPLACING
from lockcache.doctor.pair.hosts import Card, judge_hosts, owner_of
from lockcache.doctor.pair.locks import CREATION, LOCKS
from lockcache.doctor.pair.messages import Link, LostError
from lockcache.doctor.pair.names import NEW
from lockcache.doctor.pair.rendezvous import TOKEN_PREFIX, Meeting, Met, remove_leftovers
from lockcache.doctor.pair.trial import Side, Trial, run_trial
from lockcache.doctor.pair.worker import TRIALS
from lockcache.doctor.probe_dir import PREFIX
from lockcache.filestream.disk import GuestLayout, Layout, Owner, myself


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    tmp_path.chmod(0o700)
    return GuestLayout(str(tmp_path))


def make_folder(layout: Layout, number: int) -> str:
    path = f"{layout.root}/{PREFIX}{TOKEN_PREFIX}{number:016x}"
    os.mkdir(path, 0o700)
    return path


@pytest.fixture
def links(layout: Layout) -> tuple[Link, Link]:
    one, other = make_folder(layout, 1), make_folder(layout, 2)
    both = Link(layout, one, other, 20.0), Link(layout, other, one, 20.0)
    for link in both:
        link.begin(0)
    return both


def together(*acts: Callable[[], Any]) -> list[Any]:
    """Do all at once; each result, or the exception."""
    results: list[Any] = [None] * len(acts)

    def work(number: int) -> None:
        try:
            results[number] = acts[number]()
        except Exception as error:  # noqa: BLE001 - it is looked at
            results[number] = error

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


# ---- messages


def test_numbers_reach_the_other_in_order(links: tuple[Link, Link]) -> None:
    one, other = links
    for number in range(3):
        assert together(lambda n=number: one.exchange({"n": n}), lambda n=number: other.exchange({"n": -n})) == [
            {"n": -number},
            {"n": number},
        ]


def message(links: tuple[Link, Link], write: Callable[[Path], object], layout: Layout) -> Any:
    """Returns what the second makes of a message that ``write`` puts in place of the first's."""
    write(Path(layout.root, f"{PREFIX}{TOKEN_PREFIX}{1:016x}", "0.0"))
    try:
        return links[1].exchange()
    except LostError as error:
        return str(error)


@pytest.mark.parametrize(
    "text, read",
    [
        ('{"a": 1, "b": "/etc/passwd", "c": [1], "d": true, "e": 1.5}', {"a": 1, "d": 1}),
        ('{"a": 9300000000000000000}', {}),
        ("{}", {}),
    ],
)
def test_of_a_message_only_bounded_numbers_are_read(
    text: str, read: dict[str, int], links: tuple[Link, Link], layout: Layout
) -> None:
    assert message(links, lambda path: path.write_text(text), layout) == read


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_text("[" * 100_000),
        lambda path: path.write_text('{"a": ' + "9" * 5000 + "}"),
        lambda path: path.write_text('{"a": 1' + " " * 5000 + "}"),
        lambda path: path.symlink_to("/proc/self/environ"),
        os.mkfifo,
        lambda path: path.mkdir(),
    ],
    ids=["nested", "digits", "long", "symlink", "fifo", "folder"],
)
def test_what_is_no_message_is_waited_past_and_never_followed(write: Callable[[Path], object], layout: Layout) -> None:
    one, other = make_folder(layout, 1), make_folder(layout, 2)
    second = Link(layout, other, one, 0.2)
    second.begin(0)
    assert message((second, second), write, layout) == "the other host did not answer for 0.2 s"


def test_a_folder_that_is_gone_ends_the_wait_at_once(links: tuple[Link, Link], layout: Layout) -> None:
    os.rmdir(f"{layout.root}/{PREFIX}{TOKEN_PREFIX}{1:016x}")
    with pytest.raises(LostError, match="ended, or was interrupted"):
        links[1].sync()
    links[1].begin(1)
    links[1].part()  # who is gone has all that was sent


def test_a_failure_on_one_host_fails_the_check_on_both_and_the_next_one_goes_on(
    links: tuple[Link, Link], tmp_path: Path
) -> None:
    def fails(side: Side) -> dict[str, int]:
        side.sync()
        raise PermissionError(13, "Permission denied", side.path)

    def waits(side: Side) -> dict[str, int]:
        side.sync()
        side.sync()
        raise AssertionError("the other failed")

    (tmp_path / "trial").mkdir()
    failing, good = Trial(fails, waits, NEW.judge), CREATION
    for number, (trial, verdict) in enumerate([(failing, UNTESTED), (good, GOOD)]):
        found = together(
            *(
                lambda link=link, is_first=is_first, number=number, trial=trial: run_trial(
                    "check", number, trial, link, str(tmp_path / "trial"), is_first, 0.2
                )
                for link, is_first in zip(links, (True, False), strict=True)
            )
        )
        assert [finding.verdict for finding in found] == [verdict, verdict]


# ---- the meeting


def meetings(layout: Layout, count: int) -> list[Meeting]:
    card = Card.of(layout.root)
    return [Meeting(layout, make_folder(layout, number), card) for number in range(count)]


def meet(waiting: list[Meeting], rounds: int = 20) -> dict[int, Met]:
    """Whom each has met after so many looks."""
    met: dict[int, Met] = {}
    for _ in range(rounds):
        for number, meeting in enumerate(waiting):
            if number not in met and (found := meeting.look()) is not None:
                met[number] = found
    return met


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_of_any_number_of_hosts_each_is_in_one_pair_at_most_and_one_is_left_over(count: int, layout: Layout) -> None:
    met = meet(meetings(layout, count))
    assert len(met) == count // 2 * 2
    partner = {number: int(found.folder[-16:], 16) for number, found in met.items()}
    assert all(partner[partner[number]] == number for number in met)
    assert all(met[number].is_first == (number < partner[number]) for number in met)
    assert Card.parse(met[min(met)].card) == Card.of(layout.root)


def test_what_a_killed_run_left_is_met_by_nobody(layout: Layout) -> None:
    dead = meetings(layout, 1)
    dead[0].look()
    late = Meeting(layout, make_folder(layout, 7), Card.of(layout.root))
    assert meet([late]) == {}
    assert not [name for name in os.listdir(make_path(layout, 7)) if name.startswith(("to-", "yes-"))]


def make_path(layout: Layout, number: int) -> str:
    return f"{layout.root}/{PREFIX}{TOKEN_PREFIX}{number:016x}"


def test_a_folder_of_another_user_is_met_by_nobody(layout: Layout) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    one, other = meetings(layout, 2)
    os.chown(make_path(layout, 0), 65534, 65534)
    assert meet([one, other]) == {}


def test_leftovers_of_the_dead_and_old_ones_are_removed_and_others_stay(layout: Layout) -> None:
    card = Card.of(layout.root)
    me = myself()
    cards = {
        1: card,  # alive
        2: card._replace(owner=Owner(me.host, me.pid, me.start_ticks + 1)),  # dead: the pid is another's by now
        3: card._replace(owner=Owner("0" * 16, 1, 1)),  # of another host, young
        4: card._replace(owner=Owner("0" * 16, 1, 1)),  # of another host, old
    }
    for number, each in cards.items():
        Meeting(layout, make_folder(layout, number), each)
    os.utime(make_path(layout, 4), (0, 0))
    make_folder(layout, 5)  # killed before it wrote its card, young
    mine = make_folder(layout, 6)
    Path(layout.root, PREFIX + "0123").mkdir()  # of one host's examination
    assert remove_leftovers(Subject(layout.root, "other", mine, ""), layout) == 2
    left = {name[-16:] for name in os.listdir(layout.root)}
    assert {f"{number:016x}" for number in (1, 3, 5, 6)} <= left
    assert not {f"{number:016x}" for number in (2, 4)} & left


# ---- who the two are


def card(**more: Any) -> Card:
    return Card("1", "alpha", "boot", 1, "nfs4", Owner("", 0, 0))._replace(**more)


@pytest.mark.parametrize(
    "other, verdict, said",
    [
        (card(), UNTESTED, "both run on one machine"),
        (card(host="beta"), UNTESTED, "alpha and beta"),
        (card(host="beta", boot="another"), GOOD, "in two mounts (nfs4)"),
        (card(host="beta", device=2), NOTE, "on one machine"),
        (card(boot="another"), DEGRADED, "both are called alpha"),
        (card(boot="another", kind="lustre"), DEGRADED, "both are called alpha"),
        (card(device=2), DEGRADED, "both are called alpha"),
    ],
)
def test_two_hosts_are_told_from_one(other: Card, verdict: str, said: str) -> None:
    found = judge_hosts(card(), other)
    assert (found.verdict, said in found.found) == (verdict, True)
    assert judge_hosts(card(kind="ceph"), card(boot="x", kind="ceph")).verdict == NOTE, "only NFS goes by the name"


@pytest.mark.parametrize("text", ["{}", '{"owner": 1, "host": 3, "device": "x"}', '{"owner": [1, 2, 3]}'])
def test_a_card_that_is_none_is_nobody_s(text: str) -> None:
    parsed = Card.parse(json.loads(text))
    assert (parsed.host, parsed.device, parsed.owner) == ("", -1, Owner("", 0, 0))
    assert owner_of({}) == Owner("", 0, 0)
    assert len(Card.parse({"host": "h" * 1000}).host) == 64


@pytest.mark.parametrize("variable", ["PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"])
def test_rank_0_prints_and_whoever_has_none(variable: str) -> None:
    assert prints({})
    assert prints({variable: "0"})
    assert not prints({variable: "1"})


# ---- judgements that no file system here gives cause for


def test_clocks_that_are_apart_are_degraded_and_slow_messages_are_not() -> None:
    hour = 3600 * 10**9
    found = CLOCKS.judge([{"least_ns": hour, "most_ns": hour + 10}, {"least_ns": -hour - 10, "most_ns": -hour}])
    assert (found.verdict, found.measured["least_seconds"]) == (DEGRADED, 3600)
    assert CLOCKS.judge([{"least_ns": -hour, "most_ns": hour}, {}]).verdict == GOOD


def test_errors_of_reads_are_a_note_and_missing_files_are_degraded() -> None:
    assert REPLACING.judge([{"reads": 9, "errors": 1}, {"reads": 9}]).verdict == NOTE
    assert REPLACING.judge([{"reads": 9, "missing": 1}, {"reads": 9}]).verdict == DEGRADED


def test_locks_in_one_direction_only_are_degraded() -> None:
    good = {"excluded": 1, "released_us": 1, "freed_us": 1}
    assert LOCKS.judge([good, good]).verdict == GOOD
    assert LOCKS.judge([good, {**good, "excluded": 0}]).verdict == DEGRADED
    assert LOCKS.judge([good, {**good, "refused": 1}]).verdict == UNUSABLE


@pytest.mark.parametrize("check", TRIALS)
def test_numbers_that_are_missing_or_absurd_are_never_good_of_a_host_that_lies_and_never_an_error(check: str) -> None:
    judge = TRIALS[check].judge
    numbers = "excluded released_us freed_us name_us folder_us idle_us acting observing torn set read plain_us limit_us"
    for value in (-(2**63) + 1, -1, 0, 1, 2**63 - 1):
        assert judge([dict.fromkeys(numbers.split(), value)] * 2).check in check
    assert judge([{}, {}]).verdict != UNUSABLE
