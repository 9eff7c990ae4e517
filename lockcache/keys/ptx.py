"""PTX, linked by nvJitLink, or by the driver where nvJitLink is missing or too old.

Keeps the contract's rule for code_type "ptx". cuda.core has no public rendering of ProgramOptions for a linker, so this
module takes the fields themselves, in the meaning that the linker gives them. Not in the key, tried field by field: the
options of C++ (cuda.core does not pass them on, ``device_code_optimize`` among them), name expressions, and the working
directory (line information names the files that the PTX names). For the same reason headers and PCH are not external
content here, and ``time`` no side effect: the linker only writes it to its log.
"""

from __future__ import annotations

from typing import Any

from lockcache.keys import environment, versions
from lockcache.keys.options import as_strings, unknown_fields
from lockcache.keys.refusals import extra_sources, ptxas_files, refuse, unusable
from lockcache.keys.request import Request

# Off and unset are the same.
_FLAGS = ("debug", "lineinfo", "link_time_optimization", "no_cache")
# Off and unset differ: unset leaves the choice to the linker.
_SWITCHES = ("ftz", "prec_div", "prec_sqrt", "fma")
_VALUES = ("max_register_count", "split_compile")

#: The fields that this path reads.
FIELDS = frozenset({"name", "arch", "ptxas_options", "time", "extra_sources", *_FLAGS, *_SWITCHES, *_VALUES})


def describe(request: Request) -> dict[str, object]:
    """Returns all that decides the output of the linker, by the names of the key's parts."""
    options = request.options
    external = ptxas_files(options) if request.extra_digest is None else []
    refuse(extra_sources(options, "ptx") + unusable(options) + external)
    return {
        "code": request.code,
        "options": _linker_options(options),
        "target": request.target_type,
        "name": options.name,
        "newer options": unknown_fields(options),
        "compiler": versions.linker(),
        "variables": environment.variables(request.target_type),
        "extra digest": request.extra_digest,
    }


def _linker_options(options: Any) -> dict[str, object]:
    """Returns the options by their names; a group of them is one value of the key."""
    switches = {name: getattr(options, name) for name in _SWITCHES}
    return {
        "arch": options.arch,
        "flags": {name: bool(getattr(options, name)) for name in _FLAGS},
        "switches": {name: None if value is None else bool(value) for name, value in switches.items()},
        "values": {name: _number(options, name) for name in _VALUES},
        "ptxas_options": as_strings(options.ptxas_options),
        "time": options.time is not None,
    }


def _number(options: Any, name: str) -> object:
    value = getattr(options, name)
    if value is not None and not isinstance(value, (int, float, str)):
        raise TypeError(f"options.{name} must be an int; got {type(value).__name__} {value!r:.80}")
    return value
