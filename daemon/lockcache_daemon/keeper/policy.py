# SPDX-License-Identifier: Apache-2.0
"""The cap in force for one directory: the operator's, first from the settings and then from the directory's state.

Keeps the promise that a change of the policy takes effect at the next tick, and that a full disk, which takes no new
policy, is swept all the same. Without a cap in the settings the directory keeps the cap that it has. Keeps an
operator's cap in force (invariant 3, hard cap, across changes): one that was damaged or taken away is put back, and
logged with the reason.
"""

from __future__ import annotations

from dataclasses import replace

from lockcache.lowlevel import Policy, StatedPolicy
from lockcache.sizes import format_size
from lockcache_daemon.observe import Report
from lockcache_daemon.settings import Rules
from lockcache_daemon.stores import Store


class Cap:
    """The cap of a keeper's directory; :meth:`forget` it when the directory is opened again."""

    def __init__(self, root: str, rules: Rules, report: Report) -> None:
        self._root = root
        self._rules = rules
        self._report = report
        self._is_unannounced = self._is_known = False
        self._replaced: Policy | None = None
        self.policy = Policy()

    def forget(self) -> None:
        self.policy = Policy()
        self._is_known = False

    def change(self, rules: Rules) -> None:
        """Use other settings. A cap that changed in them is the operator's last word: it counts from the next tick."""
        if rules.policy != self._rules.policy:
            self._is_unannounced = True
            self._replaced = self._rules.policy
        self._rules = rules

    def obey(self, store: Store) -> None:
        """Put the cap of the settings in force, once; from then on what an operator writes into the policy counts."""
        found, why = read_policy(store.policy)
        if self._is_unannounced:
            self._announce(store, found)
        elif self._rules.max_size_bytes is None:
            self._follow(found)
        else:
            self._insist(store, found, why)
        # A seed takes its bytes of any cap, and so do files of others. Read again: a seed may just have gone.
        now = store.policy.current()
        self.policy = replace(self.policy, seed=now.seed, others_bytes=now.others_bytes)
        self._is_known = True

    def _announce(self, store: Store, found: Policy) -> None:
        wanted = self._rules.policy
        if wanted.max_size_bytes is None and found != self._replaced:
            wanted = found  # somebody replaced the daemon's policy already; the daemon removes no other
        self.policy = wanted
        if found != wanted:
            store.replace_policy(wanted)
        self._is_unannounced = False
        self._report.cap_changed(self._root, wanted, is_setting=True)

    def _follow(self, found: Policy) -> None:
        was, self.policy = self.policy, found
        if found != was and self._is_known:
            self._report.cap_changed(self._root, found)

    def _insist(self, store: Store, found: Policy, why: str) -> None:
        was, wanted = self.policy, self._rules.policy
        if was.by_operator and found.by_operator:
            self.policy = found
            if found != was:
                self._report.cap_changed(self._root, found)
        elif found == wanted:
            self.policy = wanted
        else:
            self.policy = wanted  # also if it cannot be written: a full disk needs its sweeps most of all
            store.replace_policy(wanted)
            if was.by_operator:  # else this is the first time, which the start reports
                self._report.cap_restored(self._root, wanted, why)


def read_policy(file: StatedPolicy) -> tuple[Policy, str]:
    """Returns the policy on disk (the default one if it is damaged), and why it would not count if no operator set it.

    Raises :class:`OSError` where it cannot be read.
    """
    found = file.load()
    if found.max_size_bytes is not None:
        return found, f"a program, and not an operator, had set it to {format_size(found.max_size_bytes)}"
    return found, "it had been taken away or lost, and as long as a daemon runs its --max-size or another cap holds"
