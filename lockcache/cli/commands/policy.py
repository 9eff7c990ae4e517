# SPDX-License-Identifier: Apache-2.0
"""``lockcache policy``: the rules of a directory."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final

import click

from lockcache.arguments import coerce_seed, resolve_path
from lockcache.cli import options
from lockcache.cli.catalogue import Guest
from lockcache.cli.open_directory import (
    LOCK_TIMEOUT_SECONDS,
    GuestRoot,
    guest_of,
    no_cache,
    open_directory,
    refuse_other_things,
)
from lockcache.cli.output import cap_in_words, print_facts, seed_in_words, size_in_words
from lockcache.filestream import PRIORITY_WORDS, attach_seed, detach_seed, replace_policy
from lockcache.filestream.accounting import GuestPolicy
from lockcache.layouts import with_room
from lockcache.lowlevel import (
    CacheDirectory,
    Layout,
    Policy,
    Priority,
    StatedPolicy,
    check_directory,
    keeper_of,
    load_keys,
)
from lockcache.sizes import format_size, parse_size

#: In the table, as the options that set them are called.
# Cubins of small kernels take 3 KB and more.
_SMALL_PROGRAM_BYTES: Final = 3000

_LABELS: Final = {"priority": "policy", "by_operator": "set by operator", "evicts_bytes": "next write evicts"}


@click.group("policy")
def command() -> None:
    """Show or set the rules for all processes that use a directory.

    \b
    Examples:
      lockcache policy get
      lockcache policy set --max-size 10G /scratch/kernels
    """


@command.command("get")
@options.directory
@options.as_json
def policy_get(directory: str | None, as_json: bool) -> None:
    """Show the policy in force.

    \b
    Examples:
      lockcache policy get
      lockcache policy get --json /scratch/kernels
    """
    guest = guest_of(directory)
    if guest is None:
        opened = open_directory(directory)
        layout, now = opened.layout, opened.policy.current()
    else:
        layout = Guest(*guest).layout
        now = StatedPolicy(layout).load()
    found = {"path": layout.root, **_fields_of(now)}
    print_facts(found, as_json, _in_words(now), _LABELS)


def _fields_of(policy: Policy) -> dict[str, Any]:
    fields = asdict(policy)
    # The first is only on disk, since the priority in force is shown; the second states nothing.
    del fields["states_priority"], fields["others_bytes"]
    return fields


def _in_words(policy: Policy) -> dict[str, str]:
    return {"max_size_bytes": cap_in_words(policy.max_size_bytes), "seed": seed_in_words(policy.seed)}


def _parse_cap(text: str) -> int | str:
    # Not None: to click that is an option which was not given.
    try:
        return text if text == "none" else parse_size(text)
    except ValueError as error:
        raise ValueError(f"{error}; or none, for no cap") from None


@command.command("set")
@options.directory
@click.option(
    "--max-size",
    metavar="SIZE",
    callback=options.parsed_by(_parse_cap),
    help="The cap: 10G, 512M, 1.5T, 10GiB; or 'none'. [unchanged]",
)
@click.option(
    "--policy",
    "priority",
    type=click.Choice(tuple(PRIORITY_WORDS)),
    callback=lambda _context, _option, word: word and PRIORITY_WORDS[word],
    help="What writers evict first: value, what saves the least compile time for its bytes; lru, the least recently "
    "used. cost is value. [unchanged]",
)
@click.option(
    "--seed",
    metavar="FILE",
    help="The bundle that the directory starts from, which is copied into it; or 'none'. Takes precedence over the "
    "bundle that programs name. [unchanged]",
)
@options.as_json
def policy_set(
    directory: str | None, max_size: int | str | None, priority: Priority | None, seed: str | None, as_json: bool
) -> None:
    """Set the rules. They apply to running processes from their next write.

    A cap that is set here takes precedence over max_size_bytes in a program. Prints the rules, the size of the
    directory, and the bytes that the next write will evict.

    \b
    G means 10^9 bytes and GiB 2^30.

    \b
    Examples:
      lockcache policy set --max-size 10G /scratch/kernels
      lockcache policy set --max-size none      (no cap; programs may set one)
      lockcache policy set --policy lru
      lockcache policy set --seed /lustre/project/kernels.lcb
    """
    if max_size is None and priority is None and seed is None:
        raise click.UsageError("Specify the rule to set: --max-size, --policy or --seed")
    guest = guest_of(directory)
    layout = Layout(resolve_path(directory)) if guest is None else Guest(*guest).layout
    if not os.path.isdir(layout.root):
        raise no_cache(directory, layout)
    if guest is None:
        refuse_other_things(layout)
        check_directory(layout)
    keeper = keeper_of(layout)  # before: afterwards the daemon may have reacted already
    if guest is not None and seed is not None:
        raise click.UsageError(f"--seed: {guest.program} reads no bundle")
    program = "lockcache" if guest is None else guest.program
    policy = with_room(layout.root, program, partial(_set_policy, layout, max_size, priority, guest))
    if guest is None:
        policy = _set_seed(layout, policy, seed)
    found = {"path": layout.root, **_fields_of(policy), **_what_follows(layout, policy, guest)}
    shown = _in_words(policy)
    shown |= {name: size_in_words(found[name]) for name in ("held_bytes", "evicts_bytes")}
    labels = _LABELS if guest is None else {**_LABELS, "evicts_bytes": "a daemon evicts"}
    print_facts(found, as_json, shown, labels)
    if guest is not None and keeper is None:
        click.echo(f"lockcache: no lockcache-daemon manages this directory, and {guest.program} obeys no cap", err=True)
    if keeper is not None and max_size is not None:
        will = "obey this cap until it is started again" if policy.by_operator else "put its own back; stop it first"
        click.echo(f"lockcache: a lockcache-daemon ({keeper}) manages this directory, and will {will}", err=True)


def _what_follows(layout: Layout, policy: Policy, guest: GuestRoot | None) -> dict[str, int]:
    """Returns what the directory holds, and what of it the next write evicts, or the daemon's next look."""
    if guest is not None:
        slot, limit_bytes = Guest(*guest).held(), policy.max_size_bytes
    else:
        opened = CacheDirectory(layout.root, LOCK_TIMEOUT_SECONDS)
        slot, limit_bytes = opened.held(), policy.entries_limit_bytes(opened.space)
        if limit_bytes is not None and limit_bytes < opened.space.of_bytes(_SMALL_PROGRAM_BYTES):
            left = format_size(max(0, limit_bytes))
            click.echo(f"lockcache: this cap leaves {left} for entries, too little for most kernels", err=True)
    evicts_bytes = 0 if limit_bytes is None else max(0, slot.bytes - limit_bytes)
    return {"held_bytes": slot.bytes, "held_entries": slot.entries, "evicts_bytes": evicts_bytes}


def _set_seed(layout: Layout, policy: Policy, seed: str | None) -> Policy:
    """Attach or detach a seed. Returns the policy then."""
    directory = CacheDirectory(layout.root, LOCK_TIMEOUT_SECONDS)
    if seed == "none":
        detach_seed(directory)
    elif seed is not None:
        is_signed = load_keys(None) is not None
        path = coerce_seed(seed)
        attach_seed(directory, path, policy.max_size_bytes, is_signed=is_signed, by_operator=True)
    return directory.policy.current()


def _set_policy(
    layout: Layout, max_size: int | str | None, priority: Priority | None, guest: GuestRoot | None
) -> Policy:
    directory = None
    if guest is not None:
        Guest(*guest).prepare()
        file: StatedPolicy = GuestPolicy(layout)
    else:
        directory = CacheDirectory(layout.root, LOCK_TIMEOUT_SECONDS)
        file = directory.policy
    was = file.load()
    policy = replace(
        was, priority=priority or was.priority, states_priority=was.states_priority or priority is not None
    )
    if max_size is not None:
        cap = None if isinstance(max_size, str) else max_size
        policy = replace(policy, max_size_bytes=cap, by_operator=cap is not None, is_default=False)
    if directory is None:
        file.replace(policy)
    else:
        replace_policy(directory, policy)
    return policy
