"""Exported programs: the flat graph that is compiled, the weights that its inputs are bound to, and the form of calls.

``torch.export`` lifts parameters, buffers and constants to inputs of a graph, before the inputs of the user. Here tied
weights become one input, constants of the call become part of its form, and what a decomposed program returns as new
contents is written back, so that the graph overwrites what eager does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind, OutputSpec
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from litz.deployment.manifest import CallTree, Leaf, Weight, WeightKind
from litz_ir.errors import ArtifactError

_HOOKS = "litz.passes.hooks"
"""Module that copies graphs."""

_LIFTED: Mapping[InputKind, WeightKind] = {
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
}
"""Roles of inputs that are tensors of the program."""

_WRITTEN = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION, OutputKind.PARAMETER_MUTATION)
"""Results of decomposed programs that are the new contents of inputs."""

_METADATA = torch.ops.aten._assert_tensor_metadata.default
"""Operator by which an exported program asserts the dtype, device and layout of a tensor."""

_CONSTANTS = (int, float, bool, str, type(None))
"""Types of constants in calls."""


class Function(torch.nn.Module):
    """A function as a module, with the function's signature, for ``torch.export``."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = function


@dataclass(slots=True)
class FlatProgram:
    """An exported program as a graph of flat inputs and results, with weights before the inputs of the user."""

    gm: GraphModule
    """The graph, a copy."""

    weights: dict[str, tuple[Weight, torch.Tensor]]
    """Weights by name, in the order of the graph's first inputs."""

    argument_leaves: tuple[Leaf, ...]
    """Input or constant of each leaf of the arguments."""

    result_leaves: tuple[Leaf, ...]
    """Result or constant of each leaf of the results."""

    specs: tuple[pytree.TreeSpec, pytree.TreeSpec]
    """Specs of arguments and of results."""

    names: tuple[str, ...]
    """Names of the arguments in the signature."""

    labels: tuple[str, ...] = field(init=False)
    """Name of each leaf of the arguments."""

    def __post_init__(self) -> None:
        self.labels = _labels(self.specs[0], self.names)

    def tree(self, returned_inputs: tuple[tuple[int, int], ...], written: tuple[int, ...]) -> CallTree:
        """Return the form of calls; raise :class:`ArtifactError` for containers that cannot be written down."""
        try:
            arguments, results = map(pytree.treespec_dumps, self.specs)
        except (NotImplementedError, ValueError, TypeError) as error:
            hint = (
                "register the container by torch.utils._pytree.register_pytree_node with serialized_type_name"
            )
            raise ArtifactError(
                f"a container in the calls has no form as JSON: {error}", hint=hint
            ) from error
        return CallTree(
            arguments, results, self.names, self.labels, self.argument_leaves, self.result_leaves,
            returned_inputs, written,
        )  # fmt: skip


def exported(
    program: ExportedProgram | Callable[..., Any],
    args: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
) -> ExportedProgram:
    """Return a program as ``torch.export`` exports it; one that is exported already is taken as it is.

    Raises :class:`ArtifactError` where arguments are missing, or given for a program that is exported.
    """
    if isinstance(program, ExportedProgram):
        if args is not None or kwargs or dynamic_shapes is not None:
            raise ArtifactError(
                "an exported program has its arguments and dynamic shapes",
                hint="give args, kwargs and dynamic_shapes to torch.export.export",
            )
        return program
    if args is None and not kwargs:
        raise ArtifactError("a function is exported with example arguments", hint="give args or kwargs")
    module = program if isinstance(program, torch.nn.Module) else Function(program)
    with torch.no_grad():
        return torch.export.export(
            module, tuple(args or ()), dict(kwargs or {}), dynamic_shapes=dynamic_shapes
        )


def flat_program(program: ExportedProgram) -> FlatProgram:
    """Return the flat graph of an exported program; raise :class:`ArtifactError` for one that cannot be saved."""
    gm: GraphModule = import_module(_HOOKS).own_copy(program.graph_module)
    nodes = [node for node in gm.graph.nodes if node.op == "placeholder"]
    specs, signature = program.graph_signature.input_specs, program.module_call_graph[0].signature
    weights, known, user = _Weights(program), dict[str, Node](), []
    for node, spec in zip(nodes, specs, strict=True):
        if spec.kind in _LIFTED:
            known[str(spec.target)] = weights.add(node, spec)
        elif spec.kind is InputKind.USER_INPUT:
            known[node.name] = node
            user.append((node, spec.arg))
        else:
            raise ArtifactError(
                f"the program has an input of the kind {spec.kind.name}, which cannot be saved"
            )
    argument_leaves = [_argument_leaf(gm, node, arg) for node, arg in user]
    results = _write_back(gm, program.graph_signature.output_specs, known)
    for node in gm.graph.find_nodes(op="call_function", target=_METADATA):
        gm.graph.erase_node(node)  # what it asserts follows from the inputs, which each call checks
    gm.graph.lint()
    gm.recompile()
    assert signature is not None
    return FlatProgram(
        gm,
        weights.found,
        _numbered(argument_leaves),
        _numbered(results),
        (signature.in_spec, signature.out_spec),
        tuple(signature.forward_arg_names or ()),
    )


class _Weights:
    """The weights of a program, of which tied ones are one."""

    def __init__(self, program: ExportedProgram) -> None:
        self._program = program
        self._nodes: dict[tuple[object, ...], tuple[Node, str]] = {}
        self.found: dict[str, tuple[Weight, torch.Tensor]] = {}

    def add(self, node: Node, spec: InputSpec) -> Node:
        """Add the tensor behind an input, and return the input; that of a tensor that has one is replaced by it."""
        name = str(spec.target)
        stored = self._program.state_dict.get(name, self._program.constants.get(name))
        if not isinstance(stored, torch.Tensor):
            raise ArtifactError(f"the program has no tensor {name}")
        if type(stored) not in (torch.Tensor, torch.nn.Parameter) or stored.layout is not torch.strided:
            raise ArtifactError(f"{name} is a {type(stored).__name__}, which cannot be saved as a weight")
        tensor = stored.detach()
        first = self._nodes.setdefault(_identity(tensor), (node, name)) if tensor.numel() else (node, name)
        if first[0] is not node:
            node.replace_all_uses_with(first[0])
            node.graph.erase_node(node)
            weight, kept = self.found[first[1]]
            aliases = (*weight.aliases, name)
            self.found[first[1]] = (
                Weight(weight.name, weight.kind, weight.dtype, weight.shape, weight.strides, aliases), kept
            )  # fmt: skip
            return first[0]
        value = node.meta["val"]
        if not _is_dense(tensor):
            assert isinstance(value, FakeTensor)
            with value.fake_mode:
                value = node.meta["val"] = value.contiguous()
        kind = _LIFTED[spec.kind]
        kind = "constant" if kind == "buffer" and spec.persistent is False else kind
        dtype, strides = str(tensor.dtype).removeprefix("torch."), tuple(map(int, value.stride()))
        self.found[name] = (Weight(name, kind, dtype, tuple(tensor.shape), strides), tensor)
        return node


def _identity(tensor: torch.Tensor) -> tuple[object, ...]:
    """Return the memory and geometry of a tensor."""
    memory = (tensor.device, tensor.untyped_storage()._cdata, tensor.storage_offset())
    return (*memory, tensor.dtype, tuple(tensor.shape), tensor.stride())


def _is_dense(tensor: torch.Tensor) -> bool:
    """Report whether the elements of a tensor fill its memory, in any order of axes."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _argument_leaf(gm: GraphModule, node: Node, argument: object) -> Leaf | None:
    """Return the leaf of a constant, whose input is removed; ``None`` for a tensor or number."""
    if not isinstance(argument, ConstantArgument):
        return None
    if node.users:
        raise ArtifactError(f"the graph reads the constant argument {argument.name}")
    gm.graph.erase_node(node)
    return _constant(argument.value)


def _constant(value: object) -> Leaf:
    """Return the leaf of a constant; raise :class:`ArtifactError` for one that JSON does not have."""
    if type(value) not in _CONSTANTS:
        raise ArtifactError(f"the calls have a constant of the type {type(value).__name__}")
    return {"value": value}


def _numbered(leaves: Sequence[Leaf | None]) -> tuple[Leaf, ...]:
    """Return leaves, with positions for those that are no constants."""
    count, found = 0, []
    for leaf in leaves:
        found.append({"position": count} if leaf is None else leaf)
        count += leaf is None
    return tuple(found)


def _write_back(gm: GraphModule, specs: Sequence[OutputSpec], known: Mapping[str, Node]) -> list[Leaf | None]:
    """Have a graph write new contents of inputs itself, and return the user's results alone; return their leaves."""
    output = gm.graph.output_node()
    given: list[Any] = list(output.args[0])  # type: ignore[arg-type]  # a tuple, in exported graphs
    leaves: list[Leaf | None] = []
    returned: list[Any] = []
    for value, spec in zip(given, specs, strict=True):
        if spec.kind in _WRITTEN:
            with gm.graph.inserting_before(output):
                written = gm.graph.call_function(
                    torch.ops.aten.copy_.default, (known[str(spec.target)], value)
                )
                written.meta.update(known[str(spec.target)].meta)
        elif spec.kind is not OutputKind.USER_OUTPUT:
            raise ArtifactError(f"the program returns a {spec.kind.name}, which cannot be saved")
        elif isinstance(spec.arg, ConstantArgument):
            leaves.append(_constant(spec.arg.value))
        else:
            leaves.append(None)
            returned.append(value)
    output.args = (tuple(returned),)
    return leaves


def _labels(spec: pytree.TreeSpec, names: Sequence[str]) -> tuple[str, ...]:
    """Return a name for each leaf of the arguments: ``x``, ``states['k'][0]``."""
    leaves = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    labels = []
    for path, _ in pytree.tree_flatten_with_path(leaves)[0]:
        group, first, *rest = path
        assert isinstance(group, pytree.SequenceKey)
        inside = pytree.keystr(tuple(rest))
        if isinstance(first, pytree.MappingKey):
            labels.append(f"{first.key}{inside}")
        else:
            assert isinstance(first, pytree.SequenceKey)
            named = names[first.idx] if first.idx < len(names) else f"args[{first.idx}]"
            labels.append(named + inside)
    return tuple(labels)
