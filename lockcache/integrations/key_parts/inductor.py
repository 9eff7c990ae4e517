# SPDX-License-Identifier: Apache-2.0
"""Parts of the key of an FX graph, from the lines by which torch tells what it hashed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from lockcache.explain import Hashed
from lockcache.integrations.key_parts.words import without_paths

__all__ = ["parts_of_graph"]

# "[hash] name: value", or "[hash] name[index]: value".
_LINE: Final = re.compile(r"\[(\w+)\] (\w+)(?:\[([^\]]*)\])?: (.*)", re.DOTALL)
_TENSOR: Final = re.compile(r"dtype=torch\.(\w+), shape=torch\.Size\(\[([^\]]*)\]\).*?device\(type='(\w+)'", re.DOTALL)
_GRAPH, _INPUTS, _CONFIG, _CALL, _SYSTEM = "gm", "example_inputs", "inductor_config", "fx_kwargs", "system_info"
# In the names of other settings of torch's.
_OF_CONFIGS: Final = "_config"
#: Values that most programs have.
_UNSET: Final = ("None", "False", "", "()", "[]", "{}", "0")


class _Line(NamedTuple):
    digest: str
    name: str
    at: str
    value: str


def parts_of_graph(lines: Iterable[str], is_default: Callable[[str, str], bool]) -> dict[str, object]:
    """Returns the parts of a graph's key. ``is_default``: whether this is the default of one of Inductor's options."""
    said = [_Line(*(text or "" for text in match.groups())) for line in lines if (match := _LINE.match(line))]
    inputs = [each for each in said if each.name == _INPUTS]
    configs = [each for each in said if _OF_CONFIGS in each.name]
    found: dict[str, object] = {
        "code": Hashed([each.digest for each in said if each.name == _GRAPH]),
        "inputs": Hashed([each.digest for each in inputs], ", ".join(_tensor(each.value) for each in inputs)),
    }
    found |= {
        f"option {each.at}": _shown(each)
        for each in configs
        if each.name == _CONFIG and not is_default(each.at, each.value) and each.value not in _UNSET
    }
    found |= {
        f"option {each.at}": _shown(each) for each in said if each.name == _CALL and each.value in ("True", "False")
    }
    found |= {f"system {each.at}": _shown(each) for each in said if each.name == _SYSTEM}
    for each in said:
        is_known = each.name in (_GRAPH, _INPUTS, _CALL, _SYSTEM) or _OF_CONFIGS in each.name
        if not is_known and each.value not in _UNSET:
            found[f"{each.name} {each.at}".replace("_", " ").strip()] = _shown(each)
    options = [*configs, *(each for each in said if each.name == _CALL)]
    return {**found, "other options": Hashed([each.digest for each in options])}


def _shown(line: _Line) -> Hashed:
    return Hashed(line.digest, str(without_paths(line.value.removeprefix("torch."))))


def _tensor(value: str) -> str:
    """Returns a tensor's metadata in few words, ``float32 4x8 cpu``."""
    found = _TENSOR.search(value)
    return value if found is None else f"{found[1]} {found[2].replace(', ', 'x') or 'scalar'} {found[3]}"
