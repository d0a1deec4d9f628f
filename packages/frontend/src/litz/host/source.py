"""The host program of a plan, as readable Python: allocations, runs of kernels, calls, results."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from litz.host.scalars import scalar_source
from litz.host.torch_types import COMPLEX_DTYPES, TORCH_DTYPES, keyword_source
from litz_ir.device import Device
from litz_ir.dtypes import DType
from litz_ir.errors import CodegenError
from litz_ir.loops.nodes import (
    Argument,
    ComplexRef,
    ComplexValue,
    Input,
    Keyword,
    OpaqueInput,
    Output,
    Ref,
    ScalarInput,
    ScalarRef,
    TensorType,
    Value,
    Window,
    references,
)
from litz_ir.plan.program import (
    Allocate,
    CallStep,
    Check,
    Define,
    Free,
    Launch,
    Placement,
    Plan,
    RegionStep,
    Step,
)  # fmt: skip
from litz_ir.scalar.expr import Expr
from litz_ir.symbols.term import Size, Term, add, floordiv, mul

_WORD = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\#.*|(\w+)""")
"""A word of a line of Python, as its group; what literals and comments hold is matched, and gives none."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of consecutive launches that is one native call: ``buffers`` are its distinct buffers in the order their
    addresses are passed, ``launches`` name the kernel, the positions of its buffers and its symbol terms."""

    name: str
    buffers: tuple[str, ...]
    symbols: tuple[Size, ...]
    launches: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class HostProgram:
    """``text`` defines the function ``name``, which takes the list of arguments; it expects ``segments``, ``externs``
    (target, name) and ``constants`` (the plan's name, the program's) as globals, and ``branches``, the programs of the
    subplans, as functions."""

    name: str
    text: str
    segments: tuple[Segment, ...]
    externs: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, str], ...] = ()
    branches: tuple[HostProgram, ...] = field(default=())

    @property
    def listing(self) -> str:
        """The texts of all functions, branches before what calls them."""
        return "\n\n".join((*(branch.listing for branch in self.branches), self.text))


WAITING_LIMIT = 32 << 20
"""Dead memory waits for the end of a run of kernels, unless more bytes than this wait while more are asked for."""


def host_program(plan: Plan, name: str = "call", *, inner: bool = False) -> HostProgram:
    """The host program of ``plan``; ``inner`` for the plan of a subgraph, which control flow calls.

    Raises :class:`CodegenError` for what the host cannot express.
    """
    return _Writer(plan, name, inner).write()


_GLOBALS = (
    "torch", "math", "args", "call", "empty", "empty_at", "strided", "view", "plain", "pairs", "settle", "view_as_real",
    "view_as_complex", "promised", "run_region",
)  # fmt: skip
"""What a host program's text takes for granted."""


class _Names:
    """Python identifiers for the plan's names: its own where possible, unique always."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], str] = {}
        self.taken: set[str] = set(_GLOBALS)

    def __call__(self, kind: str, name: str) -> str:
        found = self.known.get((kind, name))
        if found is None:
            base = re.sub(r"\W", "_", name) or "_"
            base = f"_{base}" if base[0].isdigit() or keyword.iskeyword(base) else base
            found, count = base, 2
            while found in self.taken:
                found, count = f"{base}_{count}", count + 1
            self.taken.add(found)
            self.known[kind, name] = found
        return found


class _Writer:
    def __init__(self, plan: Plan, name: str, inner: bool) -> None:
        self.plan = plan
        self.inner = inner
        self.name = name
        self.names = _Names()
        self.placements = dict(plan.buffers)
        self.storages = {storage.name: storage for storage in plan.storages}
        self.lines: list[str] = []
        self.pending: list[Launch] = []
        self.waiting = 0
        self.segments: list[Segment] = []
        self.externs: dict[str, str] = {}
        self.branches: dict[str, HostProgram] = {}
        self.made: set[str] = set()
        self.called: set[str] = set()
        self.defined = {i.symbol for i in plan.inputs if isinstance(i, ScalarInput) and i.symbol is not None}
        self.occupants: dict[str, list[str]] = {}
        self.returned = {output.name for output in plan.outputs if isinstance(output, ComplexRef)}
        self.wholes: dict[str, str] = {}
        for buffer, placement in plan.buffers:
            if placement.storage is not None:
                self.occupants.setdefault(placement.storage, []).append(buffer)
        for info in plan.symbols:
            self.names("symbol", info.name)
        self.made.update(value.name for value in plan.constants)
        for subplan in plan.subplans:
            function = self.names("function", subplan.name)
            self.branches[subplan.name] = host_program(subplan, function, inner=True)

    def write(self) -> HostProgram:
        self._arguments(self.plan.inputs)
        for step in self.plan.steps:
            self._step(step)
        self._flush()
        self._settle()
        results = ", ".join(self._output(output) for output in self.plan.outputs)
        comma = "," if len(self.plan.outputs) == 1 else ""
        self.lines.append(f"return ({results}{comma})")
        body = "\n".join(f"    {line}" for line in self._with_drops())
        text = f"def {self.name}(args):\n{body}\n"
        constants = tuple((v.name, self.names("value", v.name)) for v in self.plan.constants)
        externs = tuple(self.externs.items())
        return HostProgram(
            self.name, text, tuple(self.segments), externs, constants, (*self.branches.values(),)
        )

    def _with_drops(self) -> Iterable[str]:
        """The lines, each followed by a ``del`` of the variables that nothing after it mentions: memory goes back as
        soon as its last view does, the caller's arguments included."""
        kept = {("value", value.name) for value in self.plan.constants}
        variables = {
            name
            for (kind, known), name in self.names.known.items()
            if kind not in ("symbol", "function") and (kind, known) not in kept
        }
        last: dict[str, int] = {}
        for position, line in enumerate(self.lines):
            last.update((word, position) for word in _WORD.findall(line) if word in variables)
        dying: dict[int, list[str]] = {}
        for name, position in last.items():
            dying.setdefault(position, []).append(name)
        for position, line in enumerate(self.lines):
            yield line
            if position in dying and position < len(self.lines) - 1:
                yield f"del {', '.join(dying[position])}"

    # --- in and out -----------------------------------------------------------------------------------------

    def _arguments(self, inputs: Iterable[Input]) -> None:
        names: list[str] = []
        for item in inputs:
            match item:
                case ComplexValue():
                    names.append(self._whole(item.name))
                    self.made.add(item.name)
                case Value():
                    names.append(self.names("value", item.name))
                    self.made.add(item.name)
                case ScalarInput(symbol=str() as bound):
                    names.append(self.names("symbol", bound))
                case ScalarInput() | OpaqueInput():
                    names.append(self.names("value", item.name))
        if names:
            self.lines.append(f"{', '.join(names)}{',' if len(names) == 1 else ''} = args")
        # The caller's list must not keep inputs alive that the program is done with.
        self.lines.append("args.clear()")
        if self.inner:
            self._numbers(inputs)
        for name, whole in self.wholes.items():
            self.lines.append(f"{self.names('value', name)} = pairs({whole})")

    def _numbers(self, inputs: Iterable[Input]) -> None:
        """Control flow carries numbers as tensors of one element."""
        for item in inputs:
            if isinstance(item, ScalarInput) and item.symbol is not None:
                name = self.names("symbol", item.symbol)
                self.lines.append(f"{name} = {item.kind}({name})")

    def _whole(self, name: str) -> str:
        """The variable of a complex tensor whose memory is the value ``name``."""
        found = self.wholes[name] = self.names("complex", name)
        return found

    def _settle(self) -> None:
        """Complex inputs that a step may have written: where their pairs are a copy, the caller's tensor is told."""
        written = {self._root(name) for step in self.plan.steps for name in self._written(step)}
        for item in self.plan.inputs:
            if isinstance(item, ComplexValue) and item.name in written:
                self.lines.append(f"settle({self.wholes[item.name]}, {self.names('value', item.name)})")

    def _written(self, step: Step) -> Iterable[str]:
        """The buffers that a step writes; all that a call is given, since its plan does not say which."""
        match step:
            case Launch():
                parameters = self.plan.kernel(step.kernel).parameters
                return [name for p, name in zip(parameters, step.buffers, strict=True) if p.access != "in"]
            case CallStep():
                return references((*step.arguments, *(value for _, value in step.attributes)))
            case RegionStep():
                return references(step.arguments)
        return ()

    def _root(self, name: str) -> str:
        """The buffer whose memory a buffer shares in the end."""
        base = self.placements[name].base if name in self.placements else None
        return name if base is None else self._root(base)

    def _complex(self, name: str) -> str:
        """A value as a complex tensor: the one that its memory is known by, or a view."""
        found = self._tensor(name)
        for value, whole in self.wholes.items():
            if found == self.names("value", value):
                return whole
        return f"view_as_complex({found})"

    def _output(self, output: Output) -> str:
        match output:
            case ComplexRef():
                return self._complex(output.name)
            case Ref():
                return (
                    self._tensor(output.name)
                    if output.name in self.placements
                    else self.names("value", output.name)
                )
            case ScalarRef():
                return self.names("symbol", output.name)
            case Term():
                return self._term(output)
        return _literal(output)

    # --- steps ----------------------------------------------------------------------------------------------

    def _step(self, step: Step) -> None:
        match step:
            case Launch():
                self.pending.append(step)
            case Allocate():
                self._allocate(step.storage)
            case Free() if self.pending and step.name in self.storages:
                size = self.storages[step.name].nbytes
                self.waiting += size if isinstance(size, int) else 0
            case CallStep():
                self._flush()
                self._call(step)
            case Define():
                self._define(step)
            case Check():
                self._flush()
                condition = scalar_source(step.condition, self._tensor, self._any_term)
                self.lines.append(f"if not {condition}:\n        raise {step.error}({step.message!r})")
            case RegionStep():
                self._flush()
                self._region(step)

    def _allocate(self, storage: str) -> None:
        if self.waiting > WAITING_LIMIT:
            self._flush()
        owned = self.occupants.get(storage, [])
        if len(owned) == 1:
            type_ = self.placements[owned[0]].type
            name = self.names("value", owned[0])
            self.made.add(owned[0])
            device = self._device(type_.device)
            if owned[0] in self.returned:
                strides = self._terms(_complex_strides(type_.layout.strides))
                shape, dtype = self._terms(type_.shape[:-1]), COMPLEX_DTYPES[type_.dtype]
                whole = self._whole(owned[0])
                self.lines.append(f"{whole} = empty({shape}, {strides}, {dtype}{device})")
                self.lines.append(f"{name} = view_as_real({whole})")
                return
            shape, strides = self._terms(type_.shape), self._terms(type_.layout.strides)
            dtype, offset = self._dtype(type_.dtype), type_.layout.offset
            if offset == 0:
                self.lines.append(f"{name} = empty({shape}, {strides}, {dtype}{device})")
            else:
                where = f"{shape}, {strides}, {self._term(offset)}"
                self.lines.append(f"{name} = empty_at({where}, {dtype}{device})")
            return
        item = self.storages[storage]
        name, size = self.names("storage", storage), self._term(item.nbytes)
        self.lines.append(f"{name} = empty(({size},), (1,), torch.uint8{self._device(item.device)})")

    def _call(self, step: CallStep) -> None:
        function = self.externs.setdefault(step.target, re.sub(r"\W", "_", step.target))
        arguments = [self._argument(argument) for argument in step.arguments]
        arguments += [f"{key}={self._argument(value)}" for key, value in step.attributes]
        call = f"{function}({', '.join(arguments)})"
        names = [self._result(name, step) for name in step.results]
        self.made.update(name for name in step.results if name is not None)
        self.called.update(name for name in step.results if name is not None)
        if not names:
            self.lines.append(call)
        elif step.unpack:
            self.lines.append(f"{', '.join(names)}{',' if len(names) == 1 else ''} = {call}")
        else:
            self.lines.append(f"{names[0]} = {call}")
        for name in step.pairs:
            self.lines.append(f"{self.wholes[name]} = plain({self.wholes[name]})")
        if step.reason:
            self._promise(step)
        for name in step.pairs:
            self.lines.append(f"{self.names('value', name)} = view_as_real({self.wholes[name]})")

    def _promise(self, step: CallStep) -> None:
        """Hold what an operator returned to what its meta kernel said: everything after was compiled for that."""
        for name in step.results:
            type_ = None if name is None or self.placements[name].base else self.placements[name].type
            if name is None or type_ is None:
                continue
            value, shape, strides = self.names("value", name), type_.shape, type_.layout.strides
            if name in step.pairs:
                value, shape, strides = self.wholes[name], type_.shape[:-1], _complex_strides(strides)
            if all(isinstance(term, int) or term.free_symbols <= self.defined for term in (*shape, *strides)):
                expected = f"{self._terms(shape)}, {self._terms(strides)}"
                self.lines.append(f"{value} = promised({value}, {expected}, {step.target!r})")

    def _result(self, name: str | None, step: CallStep) -> str:
        """The variable that a call's result is assigned to."""
        if name is None:
            return "_"
        return self._whole(name) if name in step.pairs else self.names("value", name)

    def _define(self, step: Define) -> None:
        name = self.names("symbol", step.symbol)
        self.defined.add(step.symbol)
        if isinstance(step.source, Expr):
            self._flush()
            self.lines.append(f"{name} = {scalar_source(step.source, self._tensor, self._any_term)}")
            return
        kind, value, dim = step.source
        buffer = self.names("value", value)
        match kind:
            case "size":
                self.lines.append(f"{name} = {buffer}.size({dim})")
            case "stride":
                self.lines.append(f"{name} = {buffer}.stride({dim})")
            case "argument":
                self.lines.append(f"{name} = {buffer}")

    def _region(self, step: RegionStep) -> None:
        functions = [self.branches[name].name for name in step.plans]
        names = [self.names("value", name) for name in step.results]
        results = f"{', '.join(names)}{',' if len(names) == 1 else ''} = " if names else ""
        self.made.update(step.results)
        self.called.update(step.results)
        if step.kind in ("cond", "invoke"):
            # Called directly, so that nothing but the list holds the arguments.
            arguments = [self._argument(argument) for argument in step.arguments]
            chosen = functions[0]
            if step.kind == "cond":
                chosen = f"({functions[0]} if {arguments.pop(0)} else {functions[1]})"
            self.lines.append(f"{results}{chosen}([{', '.join(arguments)}])")
            return
        parts = ", ".join(self._part(argument) for argument in step.arguments)
        chosen = f"{', '.join(functions)}{',' if len(functions) == 1 else ''}"
        self.lines.append(f"{results}run_region({step.kind!r}, ({chosen}), ({parts},))")

    def _part(self, argument: Argument) -> str:
        """The carried values of a loop, what it goes along, or the others."""
        assert isinstance(argument, tuple)
        items = [self._argument(item) for item in argument]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"

    # --- kernels --------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Emit the pending launches as one native call."""
        if self.pending:
            name = f"segment_{len(self.segments)}"
            buffers: dict[str, int] = {}
            symbols: dict[Size, int] = {}
            launches = []
            for launch in self.pending:
                where = tuple(buffers.setdefault(self._memory(b), len(buffers)) for b in launch.buffers)
                which = tuple(symbols.setdefault(s, len(symbols)) for s in launch.symbols)
                launches.append((launch.kernel, where, which))
            self.segments.append(Segment(name, tuple(buffers), tuple(symbols), tuple(launches)))
            self.lines.append(f"# {', '.join(launch.kernel for launch in self.pending)}")
            addresses = ", ".join(self._address(buffer) for buffer in buffers)
            values = ", ".join(self._term(s) for s in symbols)
            call = f"{name}(({addresses}{',' if len(buffers) == 1 else ''})"
            self.lines.append(call + (f", ({values}{',' if len(symbols) == 1 else ''}))" if symbols else ")"))
            self.pending = []
        self.waiting = 0

    def _memory(self, name: str) -> str:
        """The buffer whose address stands for ``name``: a storage, or what it is a view of when the offset is none."""
        placement = self.placements[name]
        if placement.storage is not None and len(self.occupants[placement.storage]) > 1:
            return placement.storage
        if placement.base is not None and name not in self.called:
            # A view's offset is part of the kernel's own index, counted from the base's first element.
            return self._memory(placement.base)
        return name

    def _address(self, name: str) -> str:
        if name in self.storages:
            return f"{self.names('storage', name)}.data_ptr()"
        first = f"{self.names('value', name)}.data_ptr()"
        type_ = self.placements[name].type
        if name in self.called or type_.layout.offset == 0:
            return first
        return f"{first} - ({self._term(mul(type_.layout.offset, type_.dtype.itemsize))})"

    # --- tensors --------------------------------------------------------------------------------------------

    def _tensor(self, name: str) -> str:
        """The variable that holds a value as a tensor, made from its placement when first needed."""
        found = self.names("value", name)
        if name in self.made:
            return found
        placement = self.placements[name]
        if placement.base is not None:
            under = self.placements[placement.base]
            if placement.type == under.type:
                return self._tensor(placement.base)
            if (
                under.storage is not None
                and placement.base not in self.made
                and placement.type.layout.offset == 0
            ):
                self.lines.append(f"{found} = {self._over(under.storage, placement.type)}")
            else:
                self.lines.append(f"{found} = {self._strided(placement)}")
        elif placement.storage is not None:
            self.lines.append(f"{found} = {self._over(placement.storage, placement.type)}")
        else:
            raise CodegenError("a value is read before a step defines it", node=name)
        self.made.add(name)
        return found

    def _over(self, storage: str, type_: TensorType) -> str:
        """A tensor over the start of a storage that several values share."""
        shape, strides = self._terms(type_.shape), self._terms(type_.layout.strides)
        return f"view({self.names('storage', storage)}, {self._dtype(type_.dtype)}, {shape}, {strides})"

    def _strided(self, placement: Placement) -> str:
        """A view of the base's memory. Offsets are counted from the root of both, so the base's own is taken off."""
        assert placement.base is not None
        base, layout = self._tensor(placement.base), placement.type.layout
        under = self.placements[placement.base].type
        if under.dtype != placement.type.dtype:
            base = f"{base}.view({self._dtype(placement.type.dtype)})"
        offset = add(layout.offset, mul(under.layout.offset, -1))
        shape, strides = self._terms(placement.type.shape), self._terms(layout.strides)
        return f"strided({base}, {shape}, {strides}, {self._term(offset)})"

    # --- arguments ------------------------------------------------------------------------------------------

    def _argument(self, argument: Argument) -> str:
        match argument:
            case ComplexRef():
                return f"view_as_complex({self._tensor(argument.name)})"
            case Ref():
                return (
                    self._tensor(argument.name)
                    if argument.name in self.placements
                    else self.names("value", argument.name)
                )
            case Window():
                shape, layout = argument.shape, argument.layout
                where = f"{self._terms(shape)}, {self._terms(layout.strides)}, {self._term(layout.offset)}"
                return f"strided({self._tensor(argument.name)}, {where})"
            case ScalarRef():
                return self.names("symbol", argument.name)
            case Keyword():
                return keyword_source(argument)
            case DType():
                return self._dtype(argument)
            case Device():
                return (
                    f"torch.device({argument.kind!r}, {argument.index})"
                    if argument.kind != "cpu"
                    else "torch.device('cpu')"
                )
            case Term():
                return self._term(argument)
            case tuple():
                return f"[{', '.join(self._argument(item) for item in argument)}]"
        return _literal(argument)

    def _dtype(self, dtype: DType) -> str:
        return TORCH_DTYPES[dtype]

    def _device(self, device: Device) -> str:
        return "" if device.kind == "cpu" else f", device={device.kind!r}"

    def _term(self, term: Size) -> str:
        if isinstance(term, int):
            return str(term)
        text = str(term)
        for name in term.free_symbols:
            spelled = self.names("symbol", name)
            if spelled != name:
                text = re.sub(rf"\b{re.escape(name)}\b", spelled, text)
        return text

    def _any_term(self, term: object) -> str:
        assert isinstance(term, int | Term)
        return self._term(term)

    def _terms(self, terms: Iterable[Size]) -> str:
        written = [self._term(term) for term in terms]
        return f"({', '.join(written)}{',' if len(written) == 1 else ''})"


def _complex_strides(strides: Sequence[Size]) -> tuple[Size, ...]:
    """The strides of the complex tensor over pairs of these strides."""
    return tuple(floordiv(stride, 2) for stride in strides[:-1])


def _literal(value: object) -> str:
    """A Python literal; floats that have none are spelled as calls."""
    if isinstance(value, float):
        return repr(value) if value - value == 0 else f"float({str(value)!r})"
    if isinstance(value, complex):
        return f"complex({_literal(value.real)}, {_literal(value.imag)})"
    if value is None or isinstance(value, bool | int | str):
        return repr(value)
    raise CodegenError(f"a call's argument has no literal form: {type(value).__name__}")
