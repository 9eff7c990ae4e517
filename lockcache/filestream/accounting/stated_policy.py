# SPDX-License-Identifier: Apache-2.0
"""The policy that a directory states, in the head of its state page.

The operator (the daemon, ``lockcache policy set``) may always change it; a program that opens the cache with
``max_size_bytes`` only if no operator has set a cap. Keeps invariant 3 (hard cap) across changes, and invariant 7
(never take the job down): a head that is damaged, or a page that is deleted, while the cache is open leaves the last
good policy in force, which goes into the next page.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from lockcache.filestream.accounting.head import HEAD_BYTES, Head, decode_head
from lockcache.filestream.accounting.state import encode_page, folder_of, read_state, replace_state, space_of
from lockcache.filestream.disk import Layout, refuse_newer
from lockcache.filestream.policy import Policy, Seed

__all__ = ["GuestPolicy", "Stated", "StatedPolicy"]

_log = logging.getLogger("lockcache")

_NOT_READ: Final = b"no page begins like this"

# At a page that may just be written: that takes less than a microsecond.
_LOOKS: Final = 3


class Stated(NamedTuple):
    """The policy as a page states it."""

    #: The bytes of the head that it was read from: an equal mtime proves nothing where clocks are coarse.
    raw: bytes
    policy: Policy
    #: What entries and reservations may add up to; ``None`` for no limit.
    limit_bytes: int | None


class StatedPolicy:
    """The policy that a directory states, read by the path of its page. To publish it, see :class:`.CacheDirectory`."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._reported = ""
        #: The policy as it was last read, and its limit. Replaced as a whole: threads read other pages meanwhile.
        self.stated = Stated(_NOT_READ, Policy(), None)
        #: The policy that this process adds to the directory's, until it is published: see :meth:`want`.
        self.wanted: Policy | None = None
        self._cap_before: int | None = None
        #: Whether more was accounted for than its limit when the page was opened. On NFS the opening reads no sums.
        self.was_exceeded = False
        #: See :meth:`make_room_for`.
        self.others_bytes = 0

    @property
    def latest(self) -> Policy:
        """The policy as it was last read."""
        return self.stated.policy

    def current(self) -> Policy:
        """Returns the policy in force, read each time."""
        try:
            return self.stated_in(self._image()).policy
        except OSError as error:
            self._report(str(error))
            return self.latest

    def stated_in(self, image: bytes) -> Stated:
        """Returns the policy that a page states; the last one that was read, if the page is missing or damaged."""
        stated = self.stated
        if not image.startswith(stated.raw):
            head = decode_head(image)
            if head is not None:
                return self.note(image, head)
            if image:
                self._report(f"{self._layout.state} is damaged")
        return stated

    def note(self, image: bytes, head: Head) -> Stated:
        """Note the policy that a page states, whose head this is, with what is wanted. Returns it."""
        wanted, policy = self.wanted, head.policy
        if wanted is not None:
            if not policy.is_default and policy.max_size_bytes not in (None, self._cap_before):
                wanted = replace(wanted, max_size_bytes=None)  # a later opener's: the last one's counts
            policy = wanted.over(policy)
        if self.others_bytes:
            policy = replace(policy, others_bytes=self.others_bytes)
        stated = Stated(image[:HEAD_BYTES], policy, policy.entries_limit_bytes(head.space))
        self.stated, self._reported = stated, ""
        return stated

    def load(self) -> Policy:
        """Returns the policy on disk, and the default one for a page that is damaged.

        Raises :class:`FormatError`, and :class:`OSError` where the page cannot be read.
        """
        for _ in range(_LOOKS):
            image = read_state(self._layout)
            if not image or image.startswith(self.stated.raw) or decode_head(image) is not None:
                return self.stated_in(image).policy
            refuse_newer(self._layout, image)
        return Policy()

    def want(self, policy: Policy) -> None:
        """Keep to ``policy`` in this process from now on, as far as the directory's leaves it (:meth:`.Policy.over`).

        Until :meth:`publish_wanted` has made it the directory's. That fails while another process counts the directory,
        and on a full disk; what a program asked for when it opened the directory must not be lost over it.
        """
        self._cap_before = self.latest.max_size_bytes
        self.wanted, self.stated = policy, Stated(_NOT_READ, policy.over(self.latest), None)

    def make_room_for(self, others_bytes: int) -> None:
        """Take what other programs have in ``tmp/`` off the limit, as long as it is there.

        Nothing accounts for their files: who looks into the folder, at the first write of a process, at every eviction
        and at a daemon's ticks, states what is there now. So nobody has to find out that a file has gone.
        """
        self.others_bytes, stated = others_bytes, self.stated
        policy = replace(stated.policy, others_bytes=others_bytes)
        self.stated = Stated(stated.raw, policy, policy.entries_limit_bytes(space_of(self._layout)))

    def publish_wanted(self) -> None:
        """Make the directory's what this process wants, if anything. Raises :class:`OSError`; then it stays wanted."""
        wanted = self.wanted
        if wanted is not None:
            self._change(lambda policy: policy)  # which is read with what is wanted
            if self.wanted is wanted:  # else another thread wants something else by now
                self.wanted = None
            self.report_refused(wanted.max_size_bytes)

    def report_refused(self, cap: int | None) -> None:
        """Report a cap that a program states, and that does not count because an operator set another one."""
        policy = self.latest
        if policy.by_operator and cap not in (None, policy.max_size_bytes):
            _log.warning(
                "%s: max_size_bytes=%s is not applied, an operator set it to %s (change: lockcache policy set)",
                self._layout.root,
                cap,
                policy.max_size_bytes,
            )

    def replace(self, policy: Policy) -> None:
        """Publish a policy for every process, but for its seed, which stays what it is on disk.

        Raises :class:`OSError` where the directory cannot be written.
        """
        self._change(lambda before: replace(policy, seed=before.seed))

    def replace_seed(self, seed: Seed | None) -> None:
        """Publish which bundle stands below the directory. Raises :class:`OSError`."""
        self._change(lambda before: replace(before, seed=seed))

    def _image(self) -> bytes:
        return read_state(self._layout)

    def _change(self, change: Callable[[Policy], Policy]) -> None:
        raise ValueError(f"{self._layout.root}: the policy of a cache is published by way of its open directory")

    def _report(self, why: str) -> None:
        if why != self._reported:
            self._reported = why
            # Text only: a handler that keeps the record would keep an error's frames, and what is open in them.
            _log.warning("%s; the policy read before stays in force", why)


class GuestPolicy(StatedPolicy):
    """The policy that a directory of another program states, whose page has nothing else in it."""

    def _change(self, change: Callable[[Policy], Policy]) -> None:
        layout = self._layout
        page = encode_page(Head(folder_of(layout), space_of(layout), change(self.current())))
        replace_state(layout, page)
        self.stated_in(page)
