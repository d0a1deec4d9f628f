"""Functions of tensors and numbers, traced to the operators that lowering sees, as data to match and to insert."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._functorch._aot_autograd.functional_utils import from_fun, has_data_mutation, to_fun
from torch._guards import tracing
from torch._subclasses import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.fx.node import map_aggregate
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from litz.passes.metadata import size_of
from litz_ir.errors import ConfigError
from litz_lowering import decompositions, remove_no_ops


@dataclass(frozen=True, slots=True, eq=False)
class TensorInput:
    """A tensor that the function takes."""

    name: str
    """Name of the parameter."""

    dtype: torch.dtype
    """Dtype of the example."""

    sizes: tuple[Any, ...]
    """Sizes as expressions: a symbol of its own for each dimension, a number where it is 0 or 1 in the example or the
    function needs it."""


@dataclass(frozen=True, slots=True)
class NumberInput:
    """A number that the function takes, which stands for any number."""

    name: str
    """Name of the parameter."""

    kind: type
    """``int`` or ``float``; a float stands for integers too."""


@dataclass(frozen=True, slots=True)
class GivenDevice:
    """The device of the tensors, where the function names it."""


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call of an operator."""

    target: Any
    """The operator."""

    args: tuple[Any, ...]
    """Arguments: calls and inputs of this function, constants, and nested sequences and mappings of these."""

    kwargs: Mapping[str, Any]
    """Keyword arguments."""

    size: Any = None
    """The result as an expression over sizes of inputs, where it is a size; else ``None``."""


Operand = TensorInput | NumberInput | Call


@dataclass(frozen=True, slots=True)
class TracedFunction:
    """A function as calls of operators."""

    inputs: tuple[TensorInput | NumberInput, ...]
    """Tensors and numbers that it takes, in order."""

    calls: tuple[Call, ...]
    """Its calls, in order."""

    results: tuple[Operand, ...]
    """Values that it returns."""

    def text(self) -> str:
        """Return the function as text, equal in every process for equal calls."""
        numbers: dict[int, str] = {id(each): f"%{each.name}" for each in self.inputs}
        lines = [_input_text(each) for each in self.inputs]
        for position, call in enumerate(self.calls):
            numbers[id(call)] = f"%{position}"
            schema = getattr(call.target, "_schema", call.target)
            lines.append(f"{schema} {_text(call.args, numbers)} {_text(dict(call.kwargs), numbers)}")
        return "\n".join([*lines, f"return {_text(self.results, numbers)}"])


def traced(function: Callable[..., Any], inputs: Sequence[Any], what: str) -> TracedFunction:
    """Trace a function of the ``inputs``, with the decompositions of :mod:`litz_lowering`, for tensors of any size.

    The function is traced twice where it takes numbers, to find the constants that follow from them. Raises
    :class:`~litz_ir.errors.ConfigError`, which calls the function ``what``, where it cannot be traced, writes to its
    inputs, holds tensors of its own, or computes with its numbers.
    """
    names = parameter_names(function, len(inputs))
    given = list(inputs)
    numbers = [k for k, each in enumerate(given) if _is_number(each)]
    first = _graph(function, given, what)
    if not numbers:
        return _as_data(first, first, given, given, names, what)
    others = [_another(each, k) if k in numbers else each for k, each in enumerate(given)]
    return _as_data(first, _graph(function, others, what), given, others, names, what)


def parameter_names(function: Callable[..., Any], count: int) -> tuple[str, ...]:
    """Return the names of a function's first ``count`` parameters, made up where it has no signature."""
    try:
        known = list(inspect.signature(function).parameters)[:count]
    except (TypeError, ValueError):
        known = []
    return tuple(known) if len(known) == count else tuple(f"input_{k}" for k in range(count))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _another(number: float, position: int) -> float:
    """Return another number of the same type, a different one for each parameter."""
    return number + 1 + position if isinstance(number, int) else number * 1.5 + 0.0625 * (position + 1)


def _graph(function: Callable[..., Any], inputs: Sequence[Any], what: str) -> GraphModule:
    """Trace a function to a functional graph of ATen operations over symbolic sizes."""
    written: list[int] = []
    tensors = [k for k, each in enumerate(inputs) if isinstance(each, torch.Tensor)]

    def functional(*given: torch.Tensor) -> list[Any]:
        with FunctionalTensorMode():
            wrapped = [to_fun(each) for each in given]
            args = list(inputs)
            for position, each in zip(tensors, wrapped, strict=True):
                args[position] = each
            results = tree_leaves(function(*args))
            written.extend(k for k, each in zip(tensors, wrapped) if has_data_mutation(each))
            return [from_fun(each) for each in results]

    try:
        # A pass may run while AOTAutograd traces, whose modes and contexts are not those of this function.
        with tracing(None), _disable_current_modes(), torch.no_grad(), torch._C._DisableAutocast():
            mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
            fakes = [_fake(mode, inputs[k]) for k in tensors]
            table: dict[Any, Callable[..., Any]] = {**decompositions()}
            with mode:
                gm = make_fx(functional, table, "real", _allow_non_fake_inputs=True)(*fakes)
    except Exception as error:
        raise ConfigError(
            f"{what} cannot be traced: {type(error).__name__}: {error}",
            hint="numbers among the example inputs are varied to find their uses: write those that must be as they "
            "are into the function",
        ) from error
    if written:
        raise ConfigError(f"{what} writes to its input {written[0]}", hint="let it return a new tensor")
    gm.graph.eliminate_dead_code()
    remove_no_ops(gm)
    return gm


def _fake(mode: FakeTensorMode, tensor: torch.Tensor) -> torch.Tensor:
    """Return a fake tensor with a symbol for each size other than 0 and 1."""
    sizes = [DimDynamic.DYNAMIC if size > 1 else DimDynamic.STATIC for size in tensor.shape]
    return mode.from_tensor(tensor.detach(), symbolic_context=StatelessSymbolicContext(sizes))


# --- graphs as data -----------------------------------------------------------------------------------------


def _as_data(
    gm: GraphModule,
    other: GraphModule,
    inputs: Sequence[Any],
    others: Sequence[Any],
    names: Sequence[str],
    what: str,
) -> TracedFunction:
    """Return a graph as data, with the constants that differ in the ``other`` graph as number inputs."""
    nodes, twins = list(gm.graph.nodes), list(other.graph.nodes)
    if [(n.op, n.target) for n in nodes] != [(n.op, n.target) for n in twins]:
        raise ConfigError(
            f"the operators of {what} depend on its numbers", hint="write these numbers into the function"
        )
    placeholders = iter(gm.graph.find_nodes(op="placeholder"))
    made: list[TensorInput | NumberInput] = []
    known: dict[Node, Operand] = {}
    for name, value in zip(names, inputs, strict=True):
        if isinstance(value, torch.Tensor):
            node = next(placeholders)
            fake = node.meta["val"]
            known[node] = tensor = TensorInput(name, fake.dtype, tuple(map(size_of, fake.shape)))
            made.append(tensor)
        elif _is_number(value):
            made.append(NumberInput(name, type(value)))
        else:
            raise ConfigError(
                f"the example input {name} of {what} is {value!r:.60}",
                hint="example inputs are tensors, integers and floats",
            )
    device = next((each.device for each in inputs if isinstance(each, torch.Tensor)), None)
    pairs = [(a, b, each) for a, b, each in zip(inputs, others, made) if isinstance(each, NumberInput)]

    def operand(value: Any, twin: Any) -> Any:
        if isinstance(value, Node):
            return known[value]
        if isinstance(value, tuple | list):
            return type(value)(operand(a, b) for a, b in zip(value, twin, strict=True))
        if isinstance(value, Mapping):
            return {key: operand(item, twin[key]) for key, item in value.items()}
        if isinstance(value, torch.device) and value == device:
            return GivenDevice()
        if type(value) is type(twin) and value == twin:
            return value
        for first, second, number in pairs:
            if value == first and twin == second:
                return number
        raise ConfigError(
            f"{what} computes {value!r} from its numbers, which a match cannot turn around",
            hint="pass the computed number as an input, or write it into the function",
        )

    calls: list[Call] = []
    for node, twin in zip(nodes, twins, strict=True):
        if node.op == "get_attr":
            raise ConfigError(f"{what} holds a tensor of its own", hint="pass it as an input")
        if node.op == "call_function":
            args, kwargs = operand(_plain(node.args), _plain(twin.args)), operand(node.kwargs, twin.kwargs)
            value = node.meta.get("val")
            size = size_of(value) if isinstance(value, torch.SymInt | torch.SymFloat) else None
            calls.append(Call(node.target, args, kwargs, size))
            known[node] = calls[-1]
    (results,), (twin_results,) = gm.graph.output_node().args, other.graph.output_node().args
    return TracedFunction(tuple(made), tuple(calls), tuple(operand(_plain(results), _plain(twin_results))))


def _plain(arguments: Any) -> Any:
    """Return arguments with plain tuples and lists in place of those of FX."""
    return map_aggregate(arguments, lambda each: each)


def arguments_by_name(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments by name, defaults included, so that equal calls are spelled equally."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return {**{f"{k}": each for k, each in enumerate(args)}, **kwargs}
    found: dict[str, Any] = {}
    for position, argument in enumerate(schema.arguments):
        if position < len(args):
            found[argument.name] = args[position]
        elif argument.name in kwargs:
            found[argument.name] = kwargs[argument.name]
        else:
            found[argument.name] = argument.default_value
    return found


# --- text ---------------------------------------------------------------------------------------------------


def _input_text(each: TensorInput | NumberInput) -> str:
    if isinstance(each, NumberInput):
        return f"%{each.name} {each.kind.__name__}"
    fixed = [size if isinstance(size, int) else int(size) if size.is_number else "any" for size in each.sizes]
    return f"%{each.name} {each.dtype} {fixed}"


def _text(value: Any, numbers: Mapping[int, str]) -> str:
    """Return an operand as text, with calls and inputs by number."""
    if id(value) in numbers:
        return numbers[id(value)]
    if isinstance(value, tuple | list):
        return f"[{', '.join(_text(each, numbers) for each in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_text(value[key], numbers)}' for key in sorted(value))}}}"
    return f"{type(value).__name__}:{value}"
