# SPDX-License-Identifier: Apache-2.0
"""Places: lays a program down below a directory, and spells the directories of its headers in one of several ways."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from lockcache_stress.experiments.keys.programs import Moving, Names

#: How the directory of a header is spelled, of one that lies at a path.
SPELLINGS: Final[dict[str, Callable[[str], str]]] = {
    "absolute": lambda path: path,
    "relative": os.path.relpath,
    "final slash": lambda path: path + "/",
    "two slashes": lambda path: path + "//",
    "dots": lambda path: f"{path}/../{os.path.basename(path)}",
    "relative dots": lambda path: f"./{os.path.relpath(path)}/.",
    "link": lambda path: path,
}
_HOMES: Final = 2
_CCCL: Final = ("cccl", "cudart")


class Place(NamedTuple):
    """A place that a program is put at."""

    root: str
    spelling: str
    #: Which of the homes, into which NVRTC unpacks its own headers, and of the copies of CCCL.
    home: int


def draw_places(rng: random.Random, root: str, number: int) -> list[Place]:
    """Returns two places that differ in their prefix, of other lengths, and often in all else."""
    homes = rng.sample(range(_HOMES), 2)
    return [
        Place(f"{root}/{number}{letter * rng.randint(1, 30)}", rng.choice([*SPELLINGS]), home)
        for letter, home in zip("ab", homes, strict=True)
    ]


@contextmanager
def located_at(place: Place, moving: Moving, root: str) -> Iterator[dict[str, Any]]:
    """Put the program there and go there. Yields the options that say where its headers lie."""
    below = place.root + "-link" if place.spelling == "link" else place.root
    if not os.path.isdir(place.root):
        _write(place.root, moving)
        os.symlink(place.root, place.root + "-link")
    here, home = os.getcwd(), os.environ.get("XDG_CACHE_HOME")
    os.chdir(f"{place.root}/work")
    os.environ["XDG_CACHE_HOME"] = f"{root}/home{'-other' * place.home}"
    try:
        yield _options(place, below, moving, root)
    finally:
        os.chdir(here)
        if home is None:
            del os.environ["XDG_CACHE_HOME"]
        else:
            os.environ["XDG_CACHE_HOME"] = home


def _write(root: str, moving: Moving) -> None:
    for folder in ("work", *moving.folders):
        os.makedirs(f"{root}/{folder}")
    for path, text in moving.files.items():
        with open(f"{root}/{path}", "w") as file:
            file.write(text)
    for path, target in moving.links.items():
        os.symlink(target, f"{root}/{path}")


def _options(place: Place, below: str, moving: Moving, root: str) -> dict[str, Any]:
    spell = SPELLINGS[place.spelling]
    include_path = [spell(f"{below}/{folder}") for folder in moving.folders]
    if moving.names is Names.CCCL:
        include_path += [spell(path) for path in _cccl(f"{root}/cccl{'-moved' * place.home}")]
    forced = [spell(below + os.path.dirname(name)) + "/" + os.path.basename(name) if name[0] == "/" else name
              for name in moving.forced]  # fmt: skip
    return {"include_path": include_path, **({"pre_include": forced} if forced else {})}


def has_cccl() -> bool:
    """Returns whether CCCL and the toolkit's headers, on which it stands, are installed."""
    return all(_found(name) for name in _CCCL)


def _cccl(root: str) -> list[str]:
    """Returns the directories of a copy of CCCL and of the headers on which it stands, made if there is none."""
    copies = [f"{root}/{name}" for name in _CCCL]
    for name, copy in zip(_CCCL, copies, strict=True):
        found = _found(name)
        if found and not os.path.isdir(copy):
            shutil.copytree(found, copy)
    return copies


def _found(name: str) -> str | None:
    try:
        from cuda.pathfinder import find_nvidia_header_directory
    except ImportError:
        return None
    found: str | None = find_nvidia_header_directory(name)
    return found
