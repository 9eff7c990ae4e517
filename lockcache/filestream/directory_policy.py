# SPDX-License-Identifier: Apache-2.0
"""The policy of an open directory: read and published by way of the page that the directory has open.

Keeps invariant 3 (hard cap) where a cap is stated for the first time on a network file system.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from lockcache.filestream.accounting import Head, StatedPolicy, decode_head, encode_head, folder_of, is_of, space_of
from lockcache.filestream.policy import Policy

if TYPE_CHECKING:
    from lockcache.filestream.directory import CacheDirectory


class DirectoryPolicy(StatedPolicy):
    """The policy of an open directory."""

    #: Weak: the directory's descriptors are closed once nothing else refers to it.
    directory: weakref.ref[CacheDirectory]

    def _image(self) -> bytes:
        directory = self.directory()
        page = None if directory is None else directory.page
        if page is not None and page.is_at(self._layout.state):
            return page.image()
        image = super()._image()
        head = decode_head(image)
        if page is None or directory is None or head is None:
            return image
        if not is_of(self._layout, head.folder):
            return b""  # it is being counted, or a copy: the policy read before stays, as the next attachment needs it
        # Another page stands in its place. To attach it keeps a cap that was lost with the older one.
        page = directory.usage_if_writable()
        return image if page is None else page.image()

    def _change(self, change: Callable[[Policy], Policy]) -> None:
        directory = self.directory()
        if directory is None:
            raise ReferenceError(f"{self._layout.root}: the directory is gone that this is the policy of")
        with directory.locked() as usage:
            image = usage.image()
            policy, head = change(self.stated_in(image).policy), decode_head(image)
            had_cap = head is not None and head.policy.max_size_bytes is not None
            if policy.max_size_bytes is not None and not had_cap and self._layout.hosts.look_once_for_cap:
                # A write on a network file system that found no cap does not look again after it has reserved. So each
                # shard is counted under its lock before there is one.
                directory.count_again_all_locked(policy)
                self.load()
                return
            head = head or Head(folder_of(self._layout), space_of(self._layout), policy)
            usage.write(0, written := encode_head(head._replace(policy=policy)), fsync=True)
            self.stated_in(written)
