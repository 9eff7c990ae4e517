# SPDX-License-Identifier: Apache-2.0
"""State pages of tests: what a directory states, and pages that are damaged, newer, or state other sizes."""

from __future__ import annotations

from pathlib import Path

from lockcache.filestream.accounting import (
    NOT_COUNTED,
    Head,
    StatedPolicy,
    decode_head,
    encode_page,
    folder_of,
    read_state,
    replace_state,
)
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import FORMAT_MAGIC, FORMAT_VERSION, Layout, Space
from lockcache.filestream.policy import Policy


def state_of(root: str | Path) -> Path:
    """Returns the path of the page."""
    return Path(Layout(str(root)).state)


def policy_of(root: str | Path) -> Policy:
    """Returns the policy that a directory states."""
    return StatedPolicy(Layout(str(root))).load()


def set_policy(root: str | Path, policy: Policy) -> None:
    """Publish a policy, as an operator does."""
    directory = CacheDirectory(str(root), 5.0)
    directory.policy.replace(policy)
    directory.close()


def space_stated(root: str | Path) -> Space:
    """Returns the sizes that a directory states."""
    head = decode_head(read_state(Layout(str(root))))
    assert head is not None
    return head.space


def state_space(root: str | Path, space: Space) -> None:
    """Let a directory that is made or opened next count by these sizes."""
    layout = Layout(str(root))
    for folder in (layout.root, layout.tmp, layout.own):
        Path(folder).mkdir(mode=0o700, exist_ok=True)
    replace_state(layout, encode_page(Head(folder_of(layout) + NOT_COUNTED, space, Policy())))


def damage(root: str | Path) -> None:
    """Flip a bit of the head."""
    with state_of(root).open("r+b") as page:
        page.seek(40)
        page.write(b"\x80")


def make_newer(root: str | Path) -> None:
    """Let the page be one of a later version."""
    state_of(root).write_bytes(FORMAT_MAGIC + bytes([FORMAT_VERSION + 1]) + b"whatever it states")
