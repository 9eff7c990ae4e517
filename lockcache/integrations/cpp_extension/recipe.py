# SPDX-License-Identifier: Apache-2.0
"""The ``build.ninja`` that torch or FlashInfer writes for one library: the commands in it, as a shell is given them.

Reads what these two write, and no more of ninja's language: for another text there is no recipe, and they build it
without lockcache.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Final, NamedTuple

from lockcache.integrations.framework_keys import UnkeyableError

__all__ = ["Recipe", "Step", "read_recipe"]

_OF_NVCC: Final = ("cuda_compile", "cuda_devlink", "nvcc_link")
#: What C++ and CUDA compilers do. Torch has other rules for HIP and SYCL, which were not tried; FlashInfer has one that
#: runs a program of Python.
_RULES: Final = ("compile", "link", *_OF_NVCC)

# A dollar at the end of a line, unless another one escapes it.
_CONTINUED: Final = re.compile(r"(?<!\$)((?:\$\$)*)\$\n *")

_ESCAPE: Final = re.compile(r"\$(?:([$ :])|\{([\w.-]+)\}|([\w-]+))")
_QUOTED: Final = re.compile(r"\\.|'[^']*'|\"[^\"$`\\]*\"", re.DOTALL)
_QUOTES: Final = re.compile(r"[\"'\\]|[^\t\r\n -~]")
# Outside of quotes a shell does more with these than to pass them on.
_SHELL: Final = re.compile(r"[$`;|&<>*?\[~#\n]")


class Step(NamedTuple):
    """One command: what it makes, of what, and its words."""

    rule: str
    output: str
    inputs: tuple[str, ...]
    words: tuple[str, ...]

    @property
    def is_cuda(self) -> bool:
        """Whether nvcc does it."""
        return self.rule in _OF_NVCC


class Recipe(NamedTuple):
    """The steps of a library, and the file that they make of the sources: ``NAME.so``, or a program."""

    target: str
    steps: tuple[Step, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources, as absolute paths."""
        made = {step.output for step in self.steps}
        return tuple(path for step in self.steps for path in step.inputs if path not in made)


def read_recipe(text: str) -> Recipe:
    """Returns the recipe. Raises :class:`UnkeyableError` for a text that makes another thing than one library."""
    variables: dict[str, str] = {}
    commands: dict[str, str] = {}
    builds: list[tuple[tuple[str, str, tuple[str, ...]], dict[str, str]]] = []
    target = rule = ""
    for line in _CONTINUED.sub(r"\1", text).splitlines():
        if line.startswith("  "):
            name, _, value = line.strip().partition(" = ")
            if not rule:  # a variable of this build alone
                builds[-1][-1][name] = _expand(value, variables)
            elif name == "command":
                commands[rule] = value
        elif line.startswith("rule "):
            rule = line.removeprefix("rule ").strip()
        elif line.startswith("build "):
            rule = ""
            builds.append((_read_build(line.removeprefix("build "), variables), {}))
        elif line.startswith("default "):
            target = _expand(line.removeprefix("default ").strip(), variables)
        elif " =" in line:
            name, _, value = line.partition(" =")
            variables[name] = _expand(value.strip(), variables)
    if not target or "/" in target or target not in [called[0] for called, _ in builds]:
        raise UnkeyableError("no library is built here")
    return Recipe(target, tuple(_step(*called, commands, {**variables, **own}) for called, own in builds))


def _read_build(line: str, variables: Mapping[str, str]) -> tuple[str, str, tuple[str, ...]]:
    """Returns the output, the rule and the inputs of a line ``OUTPUT: RULE INPUT INPUT``."""
    # Spaces and colons that are part of a name have a dollar in front.
    words = [_expand(word, variables) for word in re.split(r"(?<!\$) +", line.strip())]
    if len(words) < 3 or not words[0].endswith(":"):
        raise UnkeyableError(f"the build file has an unknown line: {line:.80}")
    return words[0].removesuffix(":"), words[1], tuple(words[2:])


def _step(
    output: str, rule: str, inputs: tuple[str, ...], commands: Mapping[str, str], variables: Mapping[str, str]
) -> Step:
    if rule not in _RULES or rule not in commands:
        raise UnkeyableError(f"the build file has an unknown rule: {rule:.80}")
    files = {"in": " ".join(map(shlex.quote, inputs)), "out": shlex.quote(output)}
    command = _expand(commands[rule], {**variables, **files})
    if _SHELL.search(_QUOTED.sub("", command)):
        raise UnkeyableError("a shell changes the flags")
    try:
        # A hit waits for this, and shlex looks at each letter.
        words = shlex.split(command) if _QUOTES.search(command) else command.split()
        return Step(rule, output, inputs, tuple(words))
    except ValueError as error:
        raise UnkeyableError(f"the flags cannot be parted: {error}") from error


def _expand(value: str, variables: Mapping[str, str]) -> str:
    return _ESCAPE.sub(lambda match: match[1] or variables.get(match[2] or match[3], ""), value)
