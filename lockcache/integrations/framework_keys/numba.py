# SPDX-License-Identifier: Apache-2.0
"""The program of a numba kernel: all of a user's program that compiling it reads, in a text that is the same anywhere.

numba's own key has the bytecode of the kernel and the path and time of its file. In a directory that others share that
is too little and too much: constants and device functions of other modules are compiled into the kernel, and the same
file is elsewhere in another checkout. So a kernel is described by its code, and by the values and functions that its
code names, those of other modules too. What cannot be described, because compiling it may read more than is seen here,
has no key and stays in numba's own cache.
"""

from __future__ import annotations

import dis
import enum
import functools
import hashlib
import sys
import types
from typing import Any, Final, NamedTuple

from lockcache.integrations.framework_keys.known_modules import is_known

__all__ = ["NotDescribedError", "describe_program", "describe_types"]

# Of types in types, and of functions in functions.
_DEEPEST: Final = 32
_MOST_BYTES: Final = 1 << 26
_LARGE_BYTES: Final = 1 << 16
# Known by their version, which is in the key.
_KNOWN_PACKAGES: Final = frozenset({"numba", "numba_cuda", "numba_cuda_mlir", "numpy"})
#: Options of ``cuda.jit`` that are values. Others are files, or objects that compile in their own way.
_VALUES: Final = (type(None), bool, int, float, complex, str, bytes)
# Of these, those whose equal values are written alike: 0.0 is equal to -0.0.
_WRITTEN_ALIKE: Final = frozenset({type(None), bool, int, str, bytes, types.FunctionType})
_CONTAINERS: Final = frozenset({list, tuple, dict, set})
# Options with which a compiler runs parts of the program.
_EVALUATING: Final = frozenset({"experimental_ast_transforms"})


class NotDescribedError(ValueError):
    """What compiling a kernel reads is not known here."""


def describe_program(function: types.FunctionType, options: dict[str, Any], *, has_annotations: bool = False) -> str:
    """Returns a digest of a kernel and of all that its code names.

    ``has_annotations``: the compiler reads the annotations of functions.

    Raises :class:`NotDescribedError` with what cannot be described.
    """
    walk = _Walk(has_annotations)
    walk.options(options)
    walk.function(function)
    return walk.digest()


def describe_types(part: Any, depth: int = _DEEPEST) -> str:
    """Returns the details of types that numba prints alike: a named tuple's fields, an enumeration's members.

    Types that numba compares are equal if their classes and their ``key`` are, whatever they print. A type that is not
    numba's own is compiled by code that is not known here: :class:`NotDescribedError`.
    """
    if type(part) in _VALUES:
        return repr(part)
    if depth == 0:
        raise NotDescribedError("types in types without an end")
    if isinstance(part, type):
        members = [(each.name, each.value) for each in part] if issubclass(part, enum.Enum) else None
        return f"<{part.__module__}.{part.__qualname__} {getattr(part, '_fields', None)} {members}>"
    if isinstance(part, (tuple, list, frozenset)):
        details = [describe_types(each, depth - 1) for each in part]
        return f"({','.join(sorted(details) if isinstance(part, frozenset) else details)})"
    if hasattr(part, "key") and hasattr(part, "name"):
        if not _is_known(type(part).__module__):
            raise NotDescribedError(f"the type {part} is not numba's own")
        own = "" if part.key is part.name else describe_types(part.key, depth - 1)
        return f"{type(part).__module__}.{type(part).__qualname__}:{part!r}{own}"
    if " at 0x" in repr(part):
        raise NotDescribedError("a type has an address in it")
    return repr(part)


def _is_known(module: str | None) -> bool:
    return is_known(module, _KNOWN_PACKAGES)


class _Walk:
    """Goes from a function to all that it names, each once."""

    def __init__(self, has_annotations: bool) -> None:
        self._digest = hashlib.sha256(usedforsecurity=False)
        # Parts for the digest, which takes many at a time: each update costs as much as making the part.
        self._parts: list[bytes] = []
        self._seen: dict[tuple[int, tuple[str, ...]], int] = {}
        # Kept, so that no other object gets the identity of one that was seen.
        self._kept: list[Any] = []
        # Whether the places of the code in its file are in the output.
        self._has_lines = False
        self._has_annotations = has_annotations

    def add(self, *parts: object) -> None:
        """Add parts, each with its length, so that no two lists of parts are one text."""
        for part in parts:
            text = part if isinstance(part, bytes) else str(part).encode(errors="surrogatepass")
            self._parts += b"%d:" % len(text), text
            if len(text) > _LARGE_BYTES:
                self._digest_parts()

    def digest(self) -> str:
        """Returns the digest of all parts."""
        self._digest.update(b"".join(self._parts))
        return self._digest.hexdigest()

    def _digest_parts(self) -> None:
        self._digest.update(b"".join(self._parts))
        self._parts.clear()

    def options(self, options: dict[str, Any]) -> None:
        """Add the options of a kernel or a device function."""
        self._has_lines = self._has_lines or bool(options.get("debug") or options.get("lineinfo"))
        # Without files and without extensions, there is nothing to hold.
        values = tuple([None if type(each) in _CONTAINERS and not each else each for each in options.values()])
        names, kinds = tuple(options), tuple(map(type, values))
        if _WRITTEN_ALIKE.issuperset(kinds):
            self._parts.append(_options_alone(names, kinds, values))
            return
        for name, value in sorted(zip(names, values, strict=True)):
            if isinstance(value, tuple) and name not in _EVALUATING:
                self.value(value, name)
                self.add("option", name, repr(value))
            else:
                self._parts.append(_option_alone(name, value))

    def function(self, function: types.FunctionType) -> None:
        """Add a function's code, what it names, what it encloses, and its defaults."""
        if self._is_seen(function):
            return
        self.add("function", function.__qualname__)
        closed = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        code = _read(function.__code__)
        attributes = code.attributes
        for name, cell in closed.items():
            try:
                self.value(cell.cell_contents, name, attributes)
            except ValueError as error:
                if isinstance(error, NotDescribedError):
                    raise
                raise NotDescribedError(f"{name} has no value yet") from None
        for name, value in zip(function.__code__.co_varnames, function.__defaults__ or (), strict=False):
            self.value(value, name, attributes)
        for name, value in (function.__kwdefaults__ or {}).items():
            self.value(value, name, attributes)
        for name, value in function.__annotations__.items() if self._has_annotations else ():
            self.value(value, f"{name}: annotation")
        self._code(code, function.__code__, function.__globals__)

    def _code(self, found: _Code, code: types.CodeType, names: dict[str, Any]) -> None:
        self._parts.append(found.text)
        if self._has_lines:
            self.add("lines", code.co_filename, code.co_firstlineno, [line for _, _, line in code.co_lines()])
        for inner in found.inner:
            self._code(_read(inner), inner, names)
        for name in found.globals:
            if name in names:
                self.value(names[name], name, code.co_names)
            else:
                self.add("built in", name)

    def value(self, value: Any, name: str, attributes: tuple[str, ...] = ()) -> None:
        """Add a value that code names. ``attributes``: all names by which the same code may ask for a part of it."""
        if type(value) in _VALUES:
            self.add(f"name {name} {type(value).__name__} {value!r}")  # no name has a space in it
            return
        self.add("name", name)
        if isinstance(value, (types.ModuleType, type)):
            self._space(value, name, attributes)
        elif isinstance(getattr(value, "py_func", None), types.FunctionType) and _is_known(type(value).__module__):
            if _is_known(value.py_func.__module__):
                self.add("known", value.py_func.__module__, value.py_func.__qualname__)
            else:
                self.options(value.targetoptions)
                self.function(value.py_func)
        elif isinstance(value, (tuple, list, frozenset)):
            self._several(value, name, attributes)
        else:
            self._other(value, name)

    def _several(self, values: Any, name: str, attributes: tuple[str, ...]) -> None:
        if self._is_seen(values, attributes):
            return
        self.add(describe_types(type(values)), len(values))
        items = sorted(values, key=repr) if isinstance(values, frozenset) else values
        for item in items:
            self.value(item, name, attributes)

    def _space(self, value: Any, name: str, attributes: tuple[str, ...]) -> None:
        """Add a module or class: by its name if its version is known, else by what the code may ask of it."""
        is_module = isinstance(value, types.ModuleType)
        module = value.__name__ if is_module else value.__module__
        self.add("module" if is_module else "class", module, value.__name__ if is_module else value.__qualname__)
        if _is_known(module) or self._is_seen(value, attributes):
            return
        if not is_module:
            self.add(describe_types(value))
        if is_module and "__getattr__" in vars(value):
            raise NotDescribedError(f"the module {module} makes its attributes when it is asked for them")
        for attribute in sorted(set(attributes)):
            found = getattr(value, attribute, self)
            if found is not self:
                self.value(found, f"{name}.{attribute}", attributes)

    def _other(self, value: Any, name: str) -> None:
        import numpy as np

        if isinstance(value, enum.Enum):
            self.add(describe_types(type(value)), value.name, repr(value.value))
        elif isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
            if value.nbytes > _MOST_BYTES:
                raise NotDescribedError(f"{name} has {value.nbytes} bytes")
            array = np.ascontiguousarray(value)
            self.add(type(value).__name__, value.dtype.descr, value.dtype.isalignedstruct, value.shape)
            self.add(value.flags.c_contiguous, value.flags.f_contiguous, array.tobytes())
        elif isinstance(value, np.dtype):
            self.add("dtype", value.descr, value.isalignedstruct)
        elif isinstance(value, np.ufunc) and getattr(np, getattr(value, "__name__", ""), None) is value:
            self.add("known", "numpy", repr(value))
        elif _is_numba_type(value):
            self.add(repr(value), describe_types(value))
        elif _is_known(getattr(value, "__module__", None)) and hasattr(value, "__qualname__"):
            self.add("known", value.__module__, value.__qualname__)
        else:
            self._refuse(name, value)

    def _refuse(self, name: str, value: Any) -> None:
        raise NotDescribedError(f"what compiling {name}, a {type(value).__name__}, reads is not known")

    def _is_seen(self, value: Any, attributes: tuple[str, ...] = ()) -> bool:
        """Note an object, and add its number if it was seen."""
        identity = id(value), attributes
        if identity in self._seen:
            self.add("seen", self._seen[identity])
            return True
        self._seen[identity] = len(self._seen)
        self._kept.append(value)
        return False


def _is_numba_type(value: Any) -> bool:
    return any(each.__name__ == "Type" and _is_known(each.__module__) for each in type(value).__mro__)


def _texts_of(*parts: object) -> bytes:
    """Returns the parts as one text, each behind its length."""
    texts = [part if isinstance(part, bytes) else str(part).encode(errors="surrogatepass") for part in parts]
    return b"".join([b"%d:%b" % (len(text), text) for text in texts])


@functools.lru_cache(maxsize=256)
def _options_alone(names: tuple[str, ...], kinds: tuple[type, ...], values: tuple[Any, ...]) -> bytes:
    """Returns options as a text, whatever their order. ``kinds``: since 1 is equal to True."""
    options = sorted(zip(names, values, strict=True))
    return b"".join([_option_alone(name, value) for name, value in options])


def _option_alone(name: str, value: Any) -> bytes:
    """Returns an option as a text. Raises :class:`NotDescribedError` for one that is not a value."""
    if name in _EVALUATING and value:
        raise NotDescribedError(f"the option {name} evaluates code while it compiles")
    if isinstance(value, types.FunctionType) and _is_known(value.__module__):
        value = f"{value.__module__}.{value.__qualname__}"
    if not isinstance(value, _VALUES):
        raise NotDescribedError(f"the option {name} is not a value")
    return _texts_of("option", name, repr(value))


class _Code(NamedTuple):
    """What there is to know of code alone, whatever its names stand for."""

    #: Without what it names, where it stands, and the code within it.
    text: bytes
    #: The code within it.
    inner: list[types.CodeType]
    #: The names of globals that this code loads.
    globals: list[str]
    #: All names by which this code, or code within it, may ask for a part of what it encloses.
    attributes: tuple[str, ...]


@functools.lru_cache(maxsize=4096)
def _read(code: types.CodeType) -> _Code:
    parts = ["code", code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_argcount]
    parts += [code.co_flags, code.co_posonlyargcount, code.co_kwonlyargcount]
    for constant in code.co_consts:
        if isinstance(constant, frozenset):  # whose order is another one in each process
            parts += ["frozenset", *sorted(map(repr, constant))]
        elif not isinstance(constant, types.CodeType):
            parts += [type(constant).__name__, repr(constant)]
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    attributes = {*code.co_names}.union(*[_read(each).attributes for each in inner])
    return _Code(_texts_of(*parts), inner, _globals_of(code), tuple(sorted(attributes)))


_LOAD_GLOBAL: Final = dis.opmap["LOAD_GLOBAL"]
# From Python 3.11 on, the lowest bit of the argument says something else.
_INDEX_SHIFT: Final = int(sys.version_info >= (3, 11))


def _globals_of(code: types.CodeType) -> list[str]:
    """Returns the names of globals that this code loads.

    Read from its bytes, two for each instruction: :mod:`dis` takes longer for them than all else of a hit.
    """
    operations, arguments = code.co_code[::2], code.co_code[1::2]
    found = set()
    for place, operation in enumerate(operations):
        if operation == _LOAD_GLOBAL:
            index, above = arguments[place], place - 1
            while above >= 0 and operations[above] == dis.EXTENDED_ARG:
                index += arguments[above] << 8 * (place - above)
                above -= 1
            found.add(code.co_names[index >> _INDEX_SHIFT])
    return sorted(found)
