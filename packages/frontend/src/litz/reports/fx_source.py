"""Python source that rebuilds an FX graph without pickles: nodes by name, functions by import path."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import _get_qualified_name

LITERAL = 64
"""Most elements of a constant that are written out; larger constants are replaced by random ones."""


def graph_source(gm: GraphModule) -> str:
    """Return a module with ``graph()``, which rebuilds the graph, and ``INPUTS``, its example arguments.

    The readable form of the graph stands above both, as a comment. Raises ``TypeError`` for a value without a
    spelling.
    """
    readable = gm.print_readable(print_output=False, include_stride=True, include_device=True)
    writer = _Writer()
    body = writer.builder(gm)
    inputs = [writer.example(node) for node in gm.graph.nodes if node.op == "placeholder"]
    examples = textwrap.indent(",\n".join(inputs), "    ")
    parts = [
        textwrap.indent(readable.strip(), "# ", lambda line: True),
        "\n".join(f"import {each}" for each in sorted({"torch", *writer.modules})),
        _TENSOR,
        f"def graph():\n{textwrap.indent(body, '    ')}\n    return made",
        f"INPUTS = [\n{examples}\n]",
    ]
    return "\n\n\n".join(parts) + "\n"


_TENSOR = '''
def tensor(shape, stride, dtype, device, dynamic=(), grad=False):
    """Random elements in a layout: normal numbers, or zeros and ones; the sizes at ``dynamic`` are symbols."""
    reach = 1 + sum((size - 1) * step for size, step in zip(shape, stride)) if all(shape) else 0
    if dtype.is_floating_point or dtype.is_complex:
        memory = torch.randn(reach, dtype=torch.complex64 if dtype.is_complex else torch.float32).to(dtype)
    else:
        memory = torch.randint(0, 2, (reach,)).to(dtype)
    made = memory.to(device).as_strided(shape, stride).requires_grad_(grad)
    made.dynamic = dynamic
    return made
'''.strip()


class _Writer:
    """Writes nodes and values as source; ``modules`` are the modules to import for it."""

    def __init__(self) -> None:
        self.modules: set[str] = set()

    def builder(self, gm: GraphModule) -> str:
        """Return statements that leave the graph in the variable ``made``."""
        lines = ["root, g, n = torch.nn.Module(), torch.fx.Graph(), {}"]
        for name in dict.fromkeys(str(node.target) for node in gm.graph.nodes if node.op == "get_attr"):
            lines += self._attribute(gm, name)
        for node in gm.graph.nodes:
            target = self._function(node.target) if node.op == "call_function" else repr(str(node.target))
            arguments = (
                f"{node.op!r}, {target}, {self.spelled(tuple(node.args))}, {self.spelled(dict(node.kwargs))}"
            )
            lines.append(f"n[{node.name!r}] = g.create_node({arguments}, {node.name!r})")
        return "\n".join([*lines, "made = torch.fx.GraphModule(root, g)"])

    def _attribute(self, gm: GraphModule, path: str) -> Iterable[str]:
        """Yield statements that define an attribute of the module: a subgraph or a constant."""
        value: Any = gm
        for part in path.split("."):
            value = getattr(value, part)
        if isinstance(value, GraphModule):
            inner = textwrap.indent(self.builder(value), "    ")
            yield f"def {(own := path.replace('.', '_'))}():\n{inner}\n    return made"
            yield f"root.{path} = {own}()"
        elif isinstance(value, torch.Tensor) and value.numel() <= LITERAL and value.device.type != "meta":
            elements = self.spelled(value.detach().cpu().tolist())
            made = f"torch.tensor({elements}, dtype={value.dtype}, device={str(value.device)!r})"
            yield f"root.register_buffer({path!r}, {made})"
        else:
            yield f"root.register_buffer({path!r}, {self._value(value)})"

    def example(self, node: Node) -> str:
        """Return the source of a placeholder's example value."""
        return self._value(node.meta.get("val", node.meta.get("example_value")))

    def _value(self, value: Any) -> str:
        """Return the source of a tensor with the same layout, or of another value."""
        if not isinstance(value, torch.Tensor):
            return self.spelled(value)
        sizes = [_hint(size) for size in value.shape]
        steps = [_hint(step) for step in value.stride()]
        more = ""
        if dynamic := [k for k, size in enumerate(value.shape) if type(size) is not int]:
            more += f", dynamic={dynamic}"
        if value.requires_grad and value.is_leaf:
            more += ", grad=True"
        return f"tensor({sizes}, {steps}, {value.dtype}, {str(value.device)!r}{more})"

    def spelled(self, value: Any) -> str:
        """Return the source of an argument; raise ``TypeError`` for a value without a spelling."""
        match value:
            case Node():
                return f"n[{value.name!r}]"
            case tuple():
                return f"({''.join(f'{self.spelled(item)}, ' for item in value)})"
            case list():
                return f"[{', '.join(map(self.spelled, value))}]"
            case dict():
                return f"{{{', '.join(f'{key!r}: {self.spelled(item)}' for key, item in value.items())}}}"
            case slice():
                return f"slice{self.spelled((value.start, value.stop, value.step))}"
            case float():
                return f"float({str(value)!r})"
            case complex():
                return f"complex({str(value)!r})"
            case torch.SymInt() | torch.SymFloat() | torch.SymBool():
                return repr(_hint(value))
            case torch.device():
                return f"torch.device({str(value)!r})"
            case bool() | int() | str() | None | torch.dtype() | torch.layout() | torch.memory_format():
                return repr(value)
        if value is Ellipsis:
            return "..."
        if callable(value):
            return self._function(value)
        raise TypeError(f"{type(value).__name__} cannot be written out")

    def _function(self, target: Any) -> str:
        """Return the import path of a function, and note its module."""
        name = _get_qualified_name(target)
        self.modules.add(name.partition(".")[0])
        return name


def _hint(size: Any) -> Any:
    """Return a size's value in the traced call; 2 for an unbacked symbol.

    Raises ``TypeError`` for the sizes of a jagged nested tensor, which have no value.
    """
    if type(size) in (int, float, bool):
        return size
    hint = size.node.hint if size.node.has_hint() else None
    if isinstance(hint, torch.SymInt):
        raise TypeError("sizes of jagged nested tensors cannot be written out")
    return 2 if hint is None else int(hint)
