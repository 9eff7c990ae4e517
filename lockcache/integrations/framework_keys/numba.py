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
import types
from collections.abc import Iterable
from typing import Any, Final

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
        texts = _texts_of(parts)
        self._parts += texts
        if any(len(text) > _LARGE_BYTES for text in texts):
            self._digest_parts()

    def digest(self) -> str:
        """Returns the digest of all parts."""
        self._digest_parts()
        return self._digest.hexdigest()

    def _digest_parts(self) -> None:
        self._digest.update(b"".join(self._parts))
        self._parts.clear()

    def options(self, options: dict[str, Any]) -> None:
        """Add the options of a kernel or a device function."""
        self._has_lines = self._has_lines or bool(options.get("debug") or options.get("lineinfo"))
        plain = []
        for name in sorted(options):
            value = options[name]
            if name in _EVALUATING and value:
                raise NotDescribedError(f"the option {name} evaluates code while it compiles")
            if type(value) in _VALUES:
                plain.append(f"{name}={value!r}")
                continue
            if isinstance(value, (list, tuple, dict, set)) and not value:
                value = None  # no files, no extensions
            if isinstance(value, types.FunctionType) and _is_known(value.__module__):
                value = f"{value.__module__}.{value.__qualname__}"
            if isinstance(value, tuple):
                self.value(value, name)
            elif not isinstance(value, _VALUES):
                raise NotDescribedError(f"the option {name} is not a value")
            self.add("option", name, repr(value))
        self.add("options", "\0".join(plain))

    def function(self, function: types.FunctionType) -> None:
        """Add a function's code, what it names, what it encloses, and its defaults."""
        if self._is_seen(function):
            return
        self.add("function", function.__qualname__)
        closed = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        attributes = _attributes_of(function.__code__)
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
        self._code(function.__code__, function.__globals__)

    def _code(self, code: types.CodeType, names: dict[str, Any]) -> None:
        self._parts.append(_code_alone(code))
        if self._has_lines:
            self.add("lines", code.co_filename, code.co_firstlineno, [line for _, _, line in code.co_lines()])
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._code(constant, names)
        for name in _globals_of(code):
            self._named(name, names, code.co_names)

    def _named(self, name: str, names: dict[str, Any], attributes: tuple[str, ...]) -> None:
        if name in names:
            self.value(names[name], name, attributes)
        else:
            self.add("built in", name)

    def value(self, value: Any, name: str, attributes: tuple[str, ...] = ()) -> None:
        """Add a value that code names. ``attributes``: all names by which the same code may ask for a part of it."""
        self.add("name", name)
        if type(value) in _VALUES:
            self.add(type(value).__name__, repr(value))
        elif isinstance(value, (types.ModuleType, type)):
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


def _texts_of(parts: Iterable[object]) -> list[bytes]:
    """Returns the parts as texts, each behind its length."""
    texts: list[bytes] = []
    for part in parts:
        text = part if isinstance(part, bytes) else str(part).encode(errors="surrogatepass")
        texts += b"%d:" % len(text), text
    return texts


@functools.lru_cache(maxsize=4096)
def _code_alone(code: types.CodeType) -> bytes:
    """Returns the parts of code without what it names, where it stands, and the code within it."""
    parts = ["code", code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_argcount]
    parts += [code.co_flags, code.co_posonlyargcount, code.co_kwonlyargcount]
    for constant in code.co_consts:
        if isinstance(constant, frozenset):  # whose order is another one in each process
            parts += ["frozenset", *sorted(map(repr, constant))]
        elif not isinstance(constant, types.CodeType):
            parts += [type(constant).__name__, repr(constant)]
    return b"".join(_texts_of(parts))


@functools.lru_cache(maxsize=4096)
def _globals_of(code: types.CodeType) -> list[str]:
    """Returns the names of globals that this code loads."""
    return sorted({each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"})


@functools.lru_cache(maxsize=4096)
def _attributes_of(code: types.CodeType) -> tuple[str, ...]:
    """Returns all names by which this code, or code within it, may ask for a part of what it encloses."""
    found = {*code.co_names}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found.update(_attributes_of(constant))
    return tuple(sorted(found))
