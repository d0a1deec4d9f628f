"""Identities of registered objects: digests that are equal in every process that registers the same.

The identity of a function covers its code, defaults, closure, and the module globals that it names, recursively down
to plain data, and the source files of the modules where these were found, since a helper may be found by other means
than its name. Objects of torch, litz and Python are identified by name, since their versions are in every key;
objects of other installed packages by name and the version of the package.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import hashlib
import importlib.metadata
import importlib.util
import itertools
import logging
import operator
import re
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import torch

_OWN = ("litz", "litz_ir", "litz_lowering", "litz_scheduler", "litz_codegen_cpp", "litz_codegen_triton")
"""Litz's own packages."""

_KNOWN = frozenset({*sys.stdlib_module_names, "torch", *_OWN})
"""Modules whose contents are identified by name."""

_LITERALS = (
    type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented), range,
    torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip
"""Types whose values are identified by their text."""

_TEXTUAL = (torch._ops.OperatorBase, torch._ops.OpOverloadPacket, types.GenericAlias, types.UnionType)
"""Types of objects whose text says everything."""

_BUILT_IN = (
    types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType,
    types.MethodWrapperType,
)  # fmt: skip
"""Types of functions implemented in C."""

_GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
"""Types of the callables of :mod:`operator` with arguments."""

_GENERATED = frozenset(
    "__init__ __repr__ __eq__ __lt__ __le__ __gt__ __ge__ __hash__ __setattr__ __delattr__".split()
)
"""Methods of a dataclass that follow from its fields."""

_SKIPPED = frozenset(
    "__dict__ __weakref__ __doc__ __module__ __annotations__ __dataclass_fields__ __dataclass_params__ __match_args__ "
    "__abstractmethods__ _abc_impl __orig_bases__ __parameters__ __firstlineno__ __static_attributes__ "
    "__annotate_func__ __annotations_cache__ __conditional_annotations__".split()
)
"""Attributes of a class that repeat others."""


class Unidentified(Exception):
    """Raised for an object that the next process could not tell from another one of its type."""


def identity(value: object, name: str) -> str:
    """Return the digest of a function, a class or data; raise :class:`Unidentified`, which says what in ``name`` has
    none."""
    reader = _Reader()
    reader.read(value, name)
    reader.sources()
    return reader.digest.hexdigest()


def identities(things: Mapping[str, object]) -> tuple[tuple[str, ...], str]:
    """Return each object's name with its digest, or the reason that one has none."""
    try:
        return tuple(f"{name} {identity(things[name], name)}" for name in sorted(things)), ""
    except Unidentified as problem:
        return (), f"the next process cannot tell that it has the same: {problem}"


def identity_of_class(cls: type) -> tuple[tuple[str, ...], str]:
    """Return the identity of a class, which covers all files of its package, since it may load any of them."""
    top = cls.__module__.partition(".")[0]
    folders = list(getattr(sys.modules.get(top), "__path__", ()))
    name = f"{cls.__module__}.{cls.__qualname__}"
    if not folders:
        return identities({name: cls})
    return (f"{name} {_version(top)} {' '.join(map(_files, folders))}",), ""


@functools.cache
def _files(folder: str) -> str:
    """Return the digest of all files of a folder."""
    digest = hashlib.sha256()
    paths = (each for each in Path(folder).rglob("*") if "__pycache__" not in each.parts)
    for path in sorted(each for each in paths if each.is_file()):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(data)}\n".encode())
        digest.update(data)
    return digest.hexdigest()


class _Reader:
    """A traversal of objects that feeds one digest. Each object is read once; later its number stands for it.

    ``package`` is the first package met that is not Python's, torch's or litz's: its contents are read.
    """

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.seen: dict[int, tuple[int, object]] = {}
        self.modules: set[str] = set()
        self.package = ""

    def feed(self, *parts: object) -> None:
        """Feed texts or bytes, each after its length."""
        for part in parts:
            data = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
            self.digest.update(len(data).to_bytes(8, "little"))
            self.digest.update(data)

    def read(self, value: object, path: str) -> None:
        """Feed one object, called ``path`` in error messages."""
        if type(value) in _LITERALS:
            self.feed(type(value).__name__, repr(value))
            return
        if id(value) in self.seen:
            self.feed("seen", self.seen[id(value)][0])
            return
        # Objects are referenced here, so that no other object gets the same id.
        self.seen[id(value)] = len(self.seen), value
        self.feed(type(value).__name__)
        if isinstance(value, types.FunctionType):
            self._function(value, path)
        elif isinstance(value, type):
            self._class(value, path)
        elif isinstance(value, types.ModuleType):
            self._is_identified_by_name(value.__name__, value.__name__)
        elif isinstance(value, dict | types.MappingProxyType | tuple | list | set | frozenset):
            self._collection(value, path)
        elif not self._object(value, path):
            raise Unidentified(f"{path} is a {type(value).__module__}.{type(value).__qualname__}")

    def _collection(self, value: Any, path: str) -> None:
        """Feed the items of a collection."""
        self.feed(len(value))
        if isinstance(value, set | frozenset):
            # The order of a set differs from process to process.
            self.feed(*sorted(identity(item, f"an item of {path}") for item in value))
        elif isinstance(value, Mapping):
            for key, item in value.items():
                self.read(key, f"a key of {path}")
                self.read(item, f"{path}[{key!r}]")
        else:
            for k, item in enumerate(value):
                self.read(item, f"{path}[{k}]")

    def _object(self, value: Any, path: str) -> bool:
        """Feed an object by the parts that its type defines; return False for other types."""
        parts: Iterable[Any] = ()
        if isinstance(value, Enum):
            parts = type(value), value.name
        elif isinstance(value, types.MethodType):
            parts = value.__func__, value.__self__
        elif isinstance(value, functools.partial):
            parts = value.func, value.args, value.keywords
        elif isinstance(value, functools._lru_cache_wrapper):
            parts = (value.__wrapped__,)
        elif isinstance(value, staticmethod | classmethod):
            parts = (value.__func__,)
        elif isinstance(value, property):
            parts = value.fget, value.fset, value.fdel
        elif isinstance(value, re.Pattern):
            parts = value.pattern, value.flags
        elif isinstance(value, _GETTERS):
            parts = value.__reduce__()[1:]
        elif dataclasses.is_dataclass(value):
            fields = ((each.name, getattr(value, each.name)) for each in dataclasses.fields(value))
            parts = type(value), *itertools.chain.from_iterable(fields)
        elif isinstance(value, _BUILT_IN):
            owner = getattr(value, "__self__", None)
            parts = value.__qualname__, None if isinstance(owner, types.ModuleType) else owner
            self._is_identified_by_name(getattr(value, "__module__", None) or "builtins", value.__qualname__)
        elif isinstance(value, logging.Logger):
            parts = (value.name,)
        elif isinstance(value, _TEXTUAL) or type(value).__module__ == "typing":
            parts = (str(value),)
        else:
            return self._is_published(value)
        for part in parts:
            self.read(part, path)
        return True

    def _is_published(self, value: object) -> bool:
        """Feed the name of an object that is a global of torch, litz or Python; return False for others."""
        for name, module in sorted(sys.modules.items()):
            if name.partition(".")[0] in _KNOWN and type(module) is types.ModuleType:
                for attribute, found in list(vars(module).items()):
                    if found is value:
                        self.feed(name, attribute)
                        return True
        return False

    def _is_identified_by_name(self, module: str, name: str) -> bool:
        """Feed the name of an object in a module; return True where the name identifies it.

        It does where the module has a version in every key, or belongs to another installed package, whose version
        is fed too. Otherwise the source of the module is read later.
        """
        self.feed(module, name)
        if module.partition(".")[0] in _KNOWN:
            return True
        top = module.partition(".")[0]
        self.package = self.package or top
        self.modules.add(module)
        if not _is_installed(module):
            return False
        self.feed(_version(top))
        return top != self.package

    def _function(self, function: types.FunctionType, path: str) -> None:
        """Feed a function: by name, or with defaults, closure and code."""
        named = self._is_identified_by_name(function.__module__ or "", function.__qualname__)
        if named and _resolved(function) is function:
            return
        self.read(function.__defaults__, f"a default of {path}")
        self.read(function.__kwdefaults__, f"a default of {path}")
        names = function.__code__.co_freevars
        for name, cell in zip(names, function.__closure__ or (), strict=True):
            try:
                content = cell.cell_contents
            except ValueError:  # not bound yet
                self.feed("empty")
                continue
            self.read(content, f"{name}, which {path} closes over,")
        self._code(function.__code__, function.__globals__, path)

    def _code(self, code: types.CodeType, scope: Mapping[str, Any], path: str) -> None:
        """Feed a code object, and the globals that it names."""
        counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
        self.feed(code.co_code, code.co_exceptiontable, counts)
        self.feed(code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._code(constant, scope, path)
            else:
                self.read(constant, f"a constant of {path}")
        steps = list(dis.get_instructions(code))
        attributes = {s.argval for s in steps if s.opname in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM")}
        named = {s.argval for s in steps if s.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
        for name in sorted(named & scope.keys()):
            self._named(name, scope[name], attributes, path)
        for name, module in _imported(steps, scope, path):
            self._named(name, module, attributes, path)

    def _named(self, name: str, value: object, attributes: set[str], path: str) -> None:
        """Feed the global ``name``; of a module that is read also the ``attributes`` that the code may read."""
        self.feed(name)
        self.read(value, f"{name}, which {path} names,")
        if not isinstance(value, types.ModuleType) or self._is_identified_by_name(value.__name__, name):
            return
        for attribute in sorted(attributes & vars(value).keys()):
            inner = vars(value)[attribute]
            if id(inner) not in self.seen:
                self._named(attribute, inner, attributes, f"{path} of {name}")

    def _class(self, cls: type, path: str) -> None:
        """Feed a class: by name, or with bases, fields and attributes."""
        if self._is_identified_by_name(cls.__module__, cls.__qualname__):
            return
        self.read(cls.__bases__, f"a base of {path}")
        fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
        for each in fields:
            self.feed(each.name, each.type, each.init, each.compare)
        for name, value in sorted(vars(cls).items()):
            derived = bool(fields) and name in _GENERATED
            if name not in _SKIPPED and not derived and not isinstance(value, _SLOTS):
                self.feed(name)
                self.read(value, f"{cls.__qualname__}.{name}")

    def sources(self) -> None:
        """Feed the source files of the modules that were met."""
        for name in sorted(self.modules):
            file = getattr(sys.modules.get(name), "__file__", None)
            if file is not None and Path(file).is_file():
                self.feed(name, hashlib.sha256(Path(file).read_bytes()).hexdigest())


_SLOTS = (types.MemberDescriptorType, types.GetSetDescriptorType)


def _resolved(function: types.FunctionType) -> object:
    """Return the object under a function's qualified name."""
    found: object = sys.modules.get(function.__module__)
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    return found


def _imported(
    steps: Sequence[dis.Instruction], scope: Mapping[str, Any], path: str
) -> Iterator[tuple[str, types.ModuleType]]:
    """Yield the modules that code imports when it runs, except those of Python, torch and litz."""
    for k, step in enumerate(steps):
        if step.opname != "IMPORT_NAME":
            continue
        # The level of a relative import is pushed on the stack before the imported names.
        dots = "." * int(steps[k - 2].argval)
        name = importlib.util.resolve_name(f"{dots}{step.argval}", scope.get("__package__"))
        if name.partition(".")[0] in _KNOWN:
            continue
        if name not in sys.modules:
            raise Unidentified(f"{name}, which {path} imports when it runs, is not loaded yet")
        yield name, sys.modules[name]


def _is_installed(module: str) -> bool:
    """Report whether a module was installed into site-packages."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and bool({"site-packages", "dist-packages"} & set(Path(file).parts))


@functools.cache
def _version(package: str) -> str:
    """Return the version of a package, empty where it has none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return str(getattr(sys.modules.get(package), "__version__", ""))
