# SPDX-License-Identifier: Apache-2.0
"""``lockcache config``: the settings in force for a directory, and where each comes from."""

from __future__ import annotations

import errno
import os
import textwrap
from typing import Final, NamedTuple

import click

from lockcache.arguments import (
    SWITCHES,
    VARIABLES,
    coerce_compile_once,
    coerce_group,
    coerce_key_file,
    coerce_lease_timeout,
    coerce_seed,
    configured_cap,
    configured_file,
    configured_switch,
    default_cap,
    resolve_path,
    unknown_in_words,
    unknown_variables,
)
from lockcache.cli import options
from lockcache.cli.open_directory import no_cache
from lockcache.cli.output import cap_in_words, in_one_word, plain, print_json, print_table, seed_in_words, size_in_words
from lockcache.compile_server import configured_mode
from lockcache.filestream import Seed, configured_priority
from lockcache.lowlevel import Layout, Policy, StatedPolicy, is_cache
from lockcache.remote import configured_url
from lockcache.serving import configured_seal
from lockcache.telemetry import configured_telemetry


class _Setting(NamedTuple):
    name: str
    #: The value as a program reads it.
    value: str | float | bool | None
    #: For people.
    shown: str
    origin: str


def _variables() -> str:
    width = max(map(len, VARIABLES))
    return "\n".join(
        "\n".join(textwrap.wrap(text, 78, initial_indent=f"  {name:<{width}}  ", subsequent_indent=" " * (width + 4)))
        for name, text in VARIABLES.items()
    )


_HELP: Final = f"""Show the settings that programs use by default, and where each setting comes from.

An argument in a program takes precedence over a variable, and a cap that an operator set over both. For the
settings of the daemon: lockcache-daemon --dry-run.

\b
Examples:
  lockcache config
  LOCKCACHE_MAX_SIZE=20G lockcache config /scratch/kernels

\b
Variables:
{_variables()}
"""


@click.command("config", help=_HELP)
@options.directory
@options.as_json
def command(directory: str | None, as_json: bool) -> None:
    """Its help is above, for it holds the list of variables."""
    layout = Layout(resolve_path(directory))
    if os.path.lexists(layout.root) and not os.path.isdir(layout.root):
        raise no_cache(directory, layout)
    if os.path.isdir(layout.root) and not os.access(layout.root, os.R_OK | os.X_OK, effective_ids=True):
        raise PermissionError(errno.EACCES, "cannot be read, so its rules are not known", layout.root)
    settings = [
        _directory(directory, layout),
        *_rules(directory, layout),
        *_sharing(),
        *_turns(),
        *_remote(),
        *_seal(),
        _telemetry(),
        *_switches(),
    ]
    unknown = unknown_variables(os.environ)
    if as_json:
        found = {each.name: {"value": each.value, "origin": each.origin} for each in settings}
        print_json({**found, "unknown_variables": unknown})
        return
    print_table("settings", ("setting", "value", "from"), [(each.name, each.shown, each.origin) for each in settings])
    for name, meant in unknown.items():
        click.echo(plain(f"lockcache: {unknown_in_words(name, meant)}"), err=True)


def _directory(given: str | None, layout: Layout) -> _Setting:
    origin = _variable("LOCKCACHE_DIR") or "the default, in the user cache directory"
    return _Setting("directory", layout.root, layout.root, "as given" if given is not None else origin)


def _rules(given: str | None, layout: Layout) -> list[_Setting]:
    policy, cap, stated_priority = StatedPolicy(layout).load(), configured_cap(), configured_priority()
    if default_cap(given) is not None and not is_cache(layout):
        policy = Policy(default_cap(given), is_default=True)  # as it will be made
    stated = "set by an operator" if policy.by_operator else "the default" if policy.is_default else "set by a program"
    place = "in the directory" if is_cache(layout) else "when it is made"
    origin = f"{stated}, {place}" if policy.max_size_bytes is not None else "not set"
    size_bytes = policy.max_size_bytes
    if cap is not None and not policy.by_operator:
        size_bytes, origin = cap, "$LOCKCACHE_MAX_SIZE"
    elif cap is not None:
        origin += f"; $LOCKCACHE_MAX_SIZE={size_in_words(cap)} does not count"
    priority: str = policy.priority
    from_file = "set in the directory" if policy.states_priority else "the default"
    variable = ""
    if (
        stated_priority is not None
        and priority == Policy.priority
        and not policy.by_operator
        and not policy.states_priority
    ):
        priority, variable = stated_priority, "$LOCKCACHE_POLICY"
    return [
        _Setting("max_size_bytes", size_bytes, cap_in_words(size_bytes), origin),
        _Setting("policy", priority, priority, variable or from_file),
        _seed(policy.seed),
    ]


def _seed(stated: Seed | None) -> _Setting:
    wanted = coerce_seed(None)
    if stated is not None and (stated.by_operator or not wanted):
        origin = f"set by {'an operator' if stated.by_operator else 'a program'}, in the directory"
        return _Setting("seed", stated.path, seed_in_words(stated), origin)
    return _Setting("seed", wanted or None, wanted or "none", _variable("LOCKCACHE_SEED") or "the default")


def _sharing() -> list[_Setting]:
    group, key_file = coerce_group(None), coerce_key_file(None)
    shared = "none" if group is False else "the directory's" if group is True else group
    default = "the default"
    return [
        _Setting("group", group, shared, _variable("LOCKCACHE_GROUP") or default),
        _Setting(
            "signing_key_file", key_file or None, key_file or "none", _variable("LOCKCACHE_SIGNING_KEY_FILE") or default
        ),
    ]


def _turns() -> list[_Setting]:
    seconds = coerce_lease_timeout(None)
    shown = "a minute, or longer as compiling took" if seconds is None else f"{seconds:g} s"
    is_on, server, default = coerce_compile_once(None), configured_mode(), "the default"
    return [
        _Setting("compile_once", is_on, str(in_one_word(is_on)), _variable("LOCKCACHE_COMPILE_ONCE") or default),
        _Setting("lease_timeout_seconds", seconds, shown, _variable("LOCKCACHE_LEASE_TIMEOUT") or default),
        _Setting("compile_server", server.value, server.value, _variable("LOCKCACHE_COMPILE_SERVER") or default),
    ]


def _remote() -> list[_Setting]:
    url = configured_url()
    shown = None if url is None else url.shown  # without the password in it
    manifest = configured_file("LOCKCACHE_MANIFEST")
    return [
        _Setting("remote", shown, shown or "none", _variable("LOCKCACHE_REMOTE") or "the default"),
        _Setting("manifest", manifest or None, manifest or "none", _variable("LOCKCACHE_MANIFEST") or "the default"),
    ]


def _seal() -> list[_Setting]:
    mode, seconds, misses = configured_seal()
    shown = "once the manifest was served" if seconds is None else f"after {seconds:g} s" if seconds else "at once"
    default = "the default"
    return [
        _Setting("sealed", mode, mode or "no", _variable("LOCKCACHE_SEALED") or default),
        _Setting(
            "seal_after",
            "manifest" if seconds is None else seconds,
            shown,
            _variable("LOCKCACHE_SEAL_AFTER") or default,
        ),
        _Setting("seal_manifest", misses or None, misses or "none", _variable("LOCKCACHE_SEAL_MANIFEST") or default),
    ]


def _telemetry() -> _Setting:
    words = ", ".join(configured_telemetry())
    return _Setting("telemetry", words or None, words or "none", _variable("LOCKCACHE_TELEMETRY") or "the default")


def _switches() -> list[_Setting]:
    names = [name.removeprefix("LOCKCACHE_").lower() for name in SWITCHES]
    stated = [configured_switch(variable) for variable in SWITCHES]
    return [
        _Setting(name, is_on, str(in_one_word(is_on)), _variable(variable) or "the default")
        for name, variable, is_on in zip(names, SWITCHES, stated, strict=True)
    ]


def _variable(name: str) -> str:
    return f"${name}" if os.environ.get(name) else ""
