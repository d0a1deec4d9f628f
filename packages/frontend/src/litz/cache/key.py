"""Keys of compiled graphs and sources, as digests of everything that they depend on.

In the key: the FX graph by structure (node names do not matter), shapes, dtypes, strides and devices of its inputs,
facts about symbols, constants by content, options, versions, capabilities and compiler, and the identity of
registered rules, decompositions and targets. Not in the key: paths, ranks, device ordinals, source lines.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

import sympy
import torch
from torch.fx import GraphModule, Node

from litz.settings import Config
from litz_ir.target import Target
from litz_lowering import Devices, gpus_of, registered

_FORMAT = 8
"""Version of the stored data; raised when its meaning changes."""

_PACKAGES = ("litz", "litz-ir", "litz-lowering", "litz-scheduler", "litz-codegen-cpp", "litz-codegen-triton")
"""Packages whose versions are in every key."""

_MODULES = frozenset(name.replace("-", "_") for name in _PACKAGES)
_NAMESPACES = ("aten", "prims", "prim")

_IDENTITY = "litz.cache.identity"
"""Module that computes identities of registered objects; imported where something is registered."""

_KERNELS, LAUNCH = "litz.cache.triton_kernels", "triton_kernel_wrapper"
"""Module of Triton kernels of the program, imported where a graph launches some, and part of the name of a launch."""

_INDICES = ("kernel_idx", "constant_args_idx")
"""Arguments of a launch that are indices in a table of the process."""

_NUMBERS = MappingProxyType({sympy.false: sympy.S.Zero, sympy.true: sympy.S.One})
"""Numbers of the booleans that torch 2.11 adds to symbols, which sympy does not print."""

_PROCESS = secrets.token_hex(16)
"""Part of the key of graphs that launch kernels without identity, by their index in a table of this process."""


def graph_key(gm: GraphModule, config: Config, facts: Iterable[str]) -> str:
    """Return the digest of a graph under ``config``; ``facts`` are versions and capabilities that code depends on."""
    digest = hashlib.sha256()
    repeats = f"deterministic {torch.are_deterministic_algorithms_enabled()}"
    for part in (f"litz {_FORMAT}", torch.__version__, repeats, *facts, *option_facts(config)):
        _feed(digest, part)
    _graph(digest, gm, Devices(gpus_of(gm)), {})
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Registered:
    """Objects that a program registered with litz, as facts for keys."""

    facts: tuple[str, ...] = ()
    """Names of the objects, each with its digest."""

    uncacheable: str = ""
    """Reason that nothing compiled with them can be cached: one has no identity. Else empty."""


NOTHING = Registered()
"""The value for programs that registered nothing."""


def registered_with(targets: Iterable[Target]) -> Registered:
    """Return the rules and decompositions registered so far, and the ``targets`` that are not litz's own."""
    things = registered()
    found = [Registered(*import_module(_IDENTITY).identities(things))] if things else []
    found += filter(NOTHING.__ne__, map(target_identity, targets))
    if not found:
        return NOTHING
    facts = tuple(fact for each in found for fact in each.facts)
    return Registered(facts, next((each.uncacheable for each in found if each.uncacheable), ""))


def target_identity(target: Target) -> Registered:
    """Return the identity of a target; :data:`NOTHING` for litz's own."""
    if type(target).__module__.partition(".")[0] in _MODULES:
        return NOTHING
    return Registered(*import_module(_IDENTITY).identity_of_class(type(target)))


@functools.cache
def versions() -> tuple[str, ...]:
    """Return litz's packages with their versions; for a checkout also a digest of its files' modification times."""
    return tuple(f"{name} {_version(name)}" for name in _PACKAGES)


def _version(package: str) -> str:
    """Return the version of a package, with digests of the checkouts that it is imported from."""
    module = package.replace("-", "_")
    try:
        found = importlib.metadata.distribution(package)
        version, installed = found.version, str(found.locate_file(module))
    except importlib.metadata.PackageNotFoundError:
        version, installed = "none", ""
    spec = find_spec(module)
    locations = [] if spec is None else list(spec.submodule_search_locations or ())
    return " ".join([version, *(_changed(location) for location in locations if location != installed)])


def _changed(folder: str) -> str:
    """Return a digest of a package's file names and modification times, which is faster than one of contents."""
    return text_key(*sorted(f"{path.removeprefix(folder)} {time}" for path, time in _times(folder)))


def _times(folder: str) -> Iterator[tuple[str, int]]:
    """Yield the files of a folder with their modification times, in nanoseconds."""
    for directory, _, names in os.walk(folder):
        if not directory.endswith("__pycache__"):
            paths = (os.path.join(directory, name) for name in names)
            yield from ((path, os.stat(path).st_mtime_ns) for path in paths)


def text_key(*parts: str) -> str:
    """Return the digest of texts, such as a source and its flags."""
    digest = hashlib.sha256()
    for part in (f"litz {_FORMAT}", *parts):
        _feed(digest, part)
    return digest.hexdigest()


def _feed(digest: Any, part: str) -> None:
    """Feed a text to a digest, after its length."""
    data = part.encode()
    digest.update(len(data).to_bytes(8, "little"))
    digest.update(data)


OPTIONS = (
    "rng",
    "numerics",
    "fuse",
    "prepack_weights",
    "attention",
    "sort_rows",
    "deterministic",
    "fallback",
)
"""Options that change compiled code."""


def option_facts(config: Config) -> tuple[str, ...]:
    """Return the values of the options that change compiled code."""
    return tuple(str(getattr(config, name)) for name in OPTIONS)


def operations_of(gm: GraphModule) -> Iterator[str]:
    """Yield the operations of a graph with their arguments as text, without metadata; constants by their name."""
    devices, numbers = Devices(gpus_of(gm)), {node: number for number, node in enumerate(gm.graph.nodes)}
    for node in gm.graph.nodes:
        if node.op != "placeholder":
            target = str(node.target) if node.op == "get_attr" else _called(node.target)
            arguments = (
                _spelled(each, numbers, devices) for each in (node.args, *filter(None, [keywords_of(node)]))
            )
            yield f"{target}{''.join(arguments)}".replace(" ", "")


def inputs_of(gm: GraphModule) -> Iterator[str]:
    """Yield the metadata of a graph's inputs as text."""
    devices = Devices(gpus_of(gm))
    for number, node in enumerate(each for each in gm.graph.nodes if each.op == "placeholder"):
        yield f"{number}:{_value(node.meta.get('val'), devices)}".replace(" ", "/")


def _graph(digest: Any, gm: GraphModule, devices: Devices, known: dict[int, str]) -> None:
    """Feed a graph over ``devices``; ``known`` holds digests of its subgraphs, so that each is read once."""
    numbers: dict[Node, int] = {}
    for node in gm.graph.nodes:
        numbers[node] = len(numbers)
        _feed(digest, node.op)
        _feed(digest, _called(node.target) if node.op == "call_function" else "")
        if node.op == "get_attr":
            _attribute(digest, gm, str(node.target), devices, known)
        _feed(digest, _spelled(node.args, numbers, devices))
        _feed(digest, _spelled(keywords_of(node), numbers, devices))
        if node.op == "placeholder" or "val" in node.meta:
            _feed(digest, _value(node.meta.get("val"), devices))


def keywords_of(node: Node) -> Mapping[str, Any]:
    """Return a node's keyword arguments; for a launch of a program's Triton kernel with a digest in place of indices in
    a table of the process, or, where the kernel has no identity, with that of the process."""
    if LAUNCH not in str(node.target):
        return node.kwargs
    digest: str | None = import_module(_KERNELS).launch_digest(node)
    if digest is None:
        return {**node.kwargs, "process": _PROCESS}
    others = {name: value for name, value in node.kwargs.items() if name not in _INDICES}
    return {**others, "kernel": digest}


def _called(target: object) -> str:
    """Return the name of a node's target; for a user's operator also its schema and tags."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace in _NAMESPACES:
        return str(target)
    return f"{target} {target._schema} {sorted(map(str, target.tags))}"


def _attribute(digest: Any, gm: GraphModule, target: str, devices: Devices, known: dict[int, str]) -> None:
    """Feed an attribute of the graph module: a subgraph, a tensor by content, or another object by type."""
    found: Any = gm
    for part in target.split("."):
        found = getattr(found, part)
    if isinstance(found, GraphModule):
        if id(found) not in known:
            inner = hashlib.sha256()
            _graph(inner, found, devices, known)
            known[id(found)] = inner.hexdigest()
        _feed(digest, known[id(found)])
    elif isinstance(found, torch.Tensor):
        _feed(digest, _value(found, devices))
        data = found.detach().cpu().contiguous().view(-1).view(torch.uint8)
        digest.update(data.numpy().tobytes())
    else:
        _feed(digest, type(found).__qualname__)


def _spelled(value: Any, numbers: Mapping[Node, int], devices: Devices) -> str:
    """Return arguments as text, with nodes by number and the keys of mappings sorted."""
    if isinstance(value, Node):
        return f"%{numbers[value]}"
    if isinstance(value, tuple | list):
        return f"[{','.join(_spelled(item, numbers, devices) for item in value)}]"
    if isinstance(value, Mapping):
        items = ((key, _spelled(value[key], numbers, devices)) for key in sorted(value, key=str))
        return f"{{{','.join(f'{key}:{item}' for key, item in items)}}}"
    if isinstance(value, torch.device):
        return f"device:{devices.of(value)}"
    return f"{type(value).__name__}:{value!r}"


def _value(value: Any, devices: Devices) -> str:
    """Return the metadata of an example value as text."""
    if isinstance(value, torch.Tensor):
        parts = [value.dtype, devices.of(value.device), _sizes(value.shape)]
        if value.layout == torch.strided:
            parts += [_sizes(value.stride()), _sizes([value.storage_offset()])]
        return f"tensor {' '.join(map(str, parts))} {value.requires_grad}"
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return _sizes([value])
    if isinstance(value, tuple | list):
        return f"[{','.join(_value(item, devices) for item in value)}]"
    if value is None or isinstance(value, bool | int | float | str):
        return f"{type(value).__name__}:{value!r}"
    return type(value).__qualname__


def _sizes(sizes: Iterable[Any]) -> str:
    """Return sizes as text."""
    return f"({','.join(_size(size) for size in sizes)})"


def _size(size: Any) -> str:
    """Return a size as text; a symbol with its range and the size class of its hint."""
    node = getattr(size, "node", None)
    if node is None:
        return repr(size)
    env = node.shape_env
    expression = node.expr.xreplace(_NUMBERS)
    ranges = sorted(f"{s}:{env.var_to_range.get(s)}" for s in node.expr.free_symbols)
    hint = node.hint
    size_class = hint.bit_length() if isinstance(hint, int) else hint
    return f"{expression} {ranges} ~{size_class}"
