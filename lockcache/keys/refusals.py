"""Refusing a key: the words, and the refusals that more than one compiler path shares.

Keeps the contract's rule that what cannot be cached is refused with an error that says what, why, and what to do.
"""

from __future__ import annotations

from typing import Any

from lockcache.errors import UncacheableError
from lockcache.keys.options import as_strings

__all__ = ["external", "refuse_extra_sources", "refuse_ptxas_files", "side_effect"]

# Read by ptxas inside NVRTC 13.5 and nvJitLink 13.5 (tried); they can be given as -optf=FILE or in two elements.
_PTXAS_FILE_OPTIONS = frozenset({"options-file", "optf", "apply-controls"})


def external(what: str, why: str, instead: str = "") -> UncacheableError:
    """The refusal of a compilation that reads what the key cannot see."""
    return UncacheableError(
        f"cannot make a cache key with {what}: {why}, and the key cannot see that. Pass extra_digest, a digest of all "
        f"that it reads (lockcache.headers.fingerprint makes one for headers){instead}"
    )


def side_effect(field: str) -> UncacheableError:
    """The refusal of a compilation that does more than return code."""
    return UncacheableError(
        f"cannot make a cache key with options.{field}: it makes the compiler write a file or a report, and a hit does "
        "not compile. Unset it, or compile without a cache"
    )


def refuse_ptxas_files(options: Any) -> None:
    """Refuse ptxas options that read a file. To be called where there is no extra_digest."""
    for option in as_strings(options.ptxas_options):
        if option.lstrip("-").partition("=")[0] in _PTXAS_FILE_OPTIONS:
            raise external(f"options.ptxas_options {option!r}", "ptxas reads a file for it")


def refuse_extra_sources(options: Any, code_type: str) -> None:
    """Refuse ``extra_sources`` on the paths whose ``Program`` refuses it."""
    if options.extra_sources is not None:
        raise UncacheableError(
            f"options.extra_sources is for code_type 'nvvm'; cuda.core.Program refuses it for {code_type!r}. Unset it"
        )
