# SPDX-License-Identifier: Apache-2.0
"""Refusals of a key: their wording, and those that more than one compiler path shares.

Keeps the contract's rule that one error refuses a compilation that cannot be cached, and names all reasons and
remedies: a user who learns of one option at a time would have to try once for each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from lockcache.errors import UncacheableError
from lockcache.keys.options import unreadable_fields

# Read by ptxas inside NVRTC 13.5 and nvJitLink 13.5 (tried); they can be given as -optf=FILE or in two elements.
_PTXAS_FILE_OPTIONS = frozenset({"options-file", "optf", "apply-controls"})

_UNSET: Final = "unset {them}, or compile without a cache"
_DIGEST: Final = (
    "pass extra_digest, a digest of all that it reads (lockcache.headers.fingerprint makes one for headers)"
)


class Refusal(NamedTuple):
    """One reason for which there is no key."""

    what: str
    why: str
    #: The remedy; ``{them}`` stands for all options that it applies to.
    remedy: str
    #: An alternative remedy.
    instead: str = ""


def refuse(found: list[Refusal]) -> None:
    """Raise one UncacheableError for all that was found; nothing if nothing was."""
    if found:
        reasons = "; nor with ".join(f"{each.what}: {each.why}" for each in found)
        remedies = ". ".join(_remedy(remedy, found) for remedy in dict.fromkeys(each.remedy for each in found))
        raise UncacheableError(f"cannot make a cache key with {reasons}. {remedies}", reasons)


def _remedy(remedy: str, found: list[Refusal]) -> str:
    helped = [each for each in found if each.remedy == remedy]
    them = "it" if len(found) == 1 else " and ".join(each.what for each in helped)
    instead = "".join(dict.fromkeys(each.instead for each in helped))
    return remedy[0].upper() + remedy[1:].replace("{them}", them) + instead


def external(what: str, why: str, instead: str = "", *, remedy: str = _DIGEST) -> Refusal:
    """Returns the refusal of a compilation that reads what the key cannot see."""
    return Refusal(what, f"{why}, and the key cannot see that", remedy, instead)


def side_effect(field: str) -> Refusal:
    """Returns the refusal of a compilation that does more than return code."""
    why = "it makes the compiler write a file or a report, and a hit does not compile"
    return Refusal(f"options.{field}", why, _UNSET)


def unusable(options: Any) -> list[Refusal]:
    """Returns the options that no compiler's key can hold: no architecture, and newer options with complex values."""
    found = unreadable(unreadable_fields(options))
    if options.arch is None:
        remedy = "set options.arch, for example arch='sm_90'"
        found.append(Refusal("options.arch None", "the output depends on the device", remedy))
    return found


def unreadable(fields: Iterable[tuple[str, str]]) -> list[Refusal]:
    """Returns the refusals of newer options, each with why no key can hold its value."""
    return [
        Refusal(
            f"options.{name}", f"it is newer than this lockcache, which does not know what it changes: {why}", _UNSET
        )
        for name, why in fields
    ]


def ptxas_files(given: Iterable[str], *, takes_digest: bool = True) -> list[Refusal]:
    """Returns the refusals of ptxas options that read a file; an extra_digest remedies them where one can be given."""
    remedy = _DIGEST if takes_digest else _UNSET
    return [
        external(f"options.ptxas_options {option!r}", "ptxas reads a file for it", remedy=remedy)
        for option in given
        if option.lstrip("-").partition("=")[0] in _PTXAS_FILE_OPTIONS
    ]


def extra_sources(options: Any, code_type: str) -> list[Refusal]:
    """Returns the refusal of ``extra_sources`` for compilers whose ``Program`` refuses it."""
    if options.extra_sources is None:
        return []
    why = f"it is for code_type 'nvvm', and cuda.core.Program refuses it for {code_type!r}"
    return [Refusal("options.extra_sources", why, _UNSET)]
