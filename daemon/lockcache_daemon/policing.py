"""Policies that are not as an operator left them: what became of one, and how a damaged one is replaced.

Keeps an operator's word in force (invariant 3 across changes): a policy that cannot be understood never keeps a daemon,
which brings a cap of its own, from starting; and what is put back is put back with a reason for the log.
"""

from __future__ import annotations

import os

from lockcache.errors import PolicyError
from lockcache.filestream.directory import check_directory
from lockcache.filestream.layout import Layout
from lockcache.filestream.policy import Policy, PolicyFile
from lockcache.sizes import format_size
from lockcache_daemon.instance import Instance

__all__ = ["read_policy", "repair_policy"]


def read_policy(file: PolicyFile, layout: Layout) -> tuple[Policy, str]:
    """The policy on disk, none if it is damaged or missing, and why it would not count if it is not an operator's.

    Raises :class:`OSError` where it cannot be read.
    """
    try:
        found = file.load()
    except PolicyError as error:
        return Policy(), f"the policy was damaged ({error})"
    if found.max_size_bytes is not None:
        return found, f"a program, and not an operator, had set it to {format_size(found.max_size_bytes)}"
    if os.path.lexists(layout.policy):
        return found, "it had been taken away, and as long as a daemon runs its --max-size or another cap holds"
    return found, "policy.json had been removed"


def repair_policy(root: str, policy: Policy, group: bool | str = False) -> None:
    """Replace a policy that cannot be understood.

    Raises :class:`AlreadyServedError`: it is then the business of the daemon that keeps the directory, and of its cap.
    """
    layout = Layout(root)
    check_directory(layout, group)
    instance = Instance(layout)
    instance.acquire()
    try:
        PolicyFile(layout).replace(policy)
    finally:
        instance.release()
