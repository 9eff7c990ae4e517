# SPDX-License-Identifier: Apache-2.0
"""The source of a directory's path, and the variables that influence it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from lockcache.arguments import SWITCHES, configured_file, configured_switch, unknown_variables
from lockcache.compile_server import configured_mode, describe_state, read_state
from lockcache.composition import coerce_arguments
from lockcache.doctor.findings import DEGRADED, NOTE, UNUSABLE, Finding
from lockcache.remote import configured_url
from lockcache.serving import configured_seal
from lockcache.telemetry import configured_telemetry

# Variables by which platformdirs finds the user cache directory.
_OTHERS = ("XDG_CACHE_HOME", "HOME")


def origin(given: str | None, root: str) -> Finding:
    """Report the source of ``root``: the path that was ``given``, ``$LOCKCACHE_DIR`` or the default."""
    if given is not None:
        source = "as given"
    elif os.environ.get("LOCKCACHE_DIR"):
        source = "from $LOCKCACHE_DIR"
    else:
        source = "the default, in the user cache directory"
    environment = _environment(os.environ)
    shown = ", ".join(f"{name}={value}" for name, value in environment.items() if name not in _OTHERS)
    found = f"{root} ({source}); {shown or 'no LOCKCACHE_ variable is set'}"
    try:
        is_on = check_variables()
    except ValueError as error:
        return Finding("path", UNUSABLE, str(error), "programs fail when they open a cache", "lockcache config")
    unknown = unknown_variables(os.environ)
    meant = ", ".join(f"{name} (did you mean {meant}?)" if meant else name for name, meant in unknown.items())
    means = f"nothing obeys {meant}" if unknown else f"programs obey {', '.join(is_on)}" if is_on else ""
    advice = "lockcache config" if unknown else ""
    measured = {"source": source, "environment": environment, "unknown_variables": unknown}
    return Finding("path", NOTE, found, means, advice, measured)


def compile_server() -> Finding:
    """Report the compile server of this user on this node, and what it does not compile any more."""
    state = read_state()
    mode = configured_mode()
    found = f"{describe_state(state)}; programs that are started here: {mode.value}"
    off = [] if state is None else [each for each in state["prefixes"] if each["state"] == "off"]
    if not off:
        return Finding("compile server", NOTE, found, measured={"state": state, "mode": mode.value})
    means = f"it does not compile programs that begin with {', '.join(off[0]['includes'])}: {off[0]['why']}"
    advice = "report the program and the versions of its headers; LOCKCACHE_COMPILE_SERVER=off switches it off"
    return Finding("compile server", DEGRADED, found, means, advice, {"state": state, "mode": mode.value})


def check_variables() -> list[str]:
    """Returns the switches that are on. Raises :class:`ValueError` for a variable with which no cache can be opened."""
    coerce_arguments({"path": os.sep})
    is_on = [name for name in SWITCHES if configured_switch(name)]
    configured_file("LOCKCACHE_MANIFEST")
    configured_url()
    configured_seal()
    configured_telemetry()
    return is_on


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    names = sorted(name for name in variables if name.startswith("LOCKCACHE_"))
    return {name: _shown(name, variables[name]) for name in [*names, *_OTHERS] if name in variables}


def _shown(name: str, value: str) -> str:
    # A key itself, if somebody puts one there, is not for logs; the name of its file is.
    is_secret = any(word in name for word in ("KEY", "SECRET", "TOKEN")) and not name.endswith(("_FILE", "_DIR"))
    # In a URL a password stands before the host, or among the settings.
    is_secret |= name == "LOCKCACHE_REMOTE" and ("@" in value or "?" in value)
    return "(not shown)" if is_secret else value
