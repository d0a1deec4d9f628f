"""A kernel of a plan as the text of a Triton function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from litz_codegen_triton.emit.blocks import Inner, Tiling, flat, targets_of, tiling, values_of
from litz_codegen_triton.emit.body import Body, Setting, Write
from litz_codegen_triton.emit.index import fits_narrow
from litz_codegen_triton.emit.library import called, library_source
from litz_codegen_triton.emit.ops_table import Form, pointer_type
from litz_codegen_triton.emit.reduction import Reduction, combine_functions
from litz_codegen_triton.emit.scan import Scan
from litz_codegen_triton.emit.text import Value
from litz_ir.dtypes import b1, f64
from litz_ir.errors import CodegenError
from litz_ir.loops.nodes import Axis, Combine
from litz_ir.plan.kernel import Accumulate, Kernel, KernelOrigin, ScanStore, Statement, Store
from litz_ir.scalar.expr import Expr, Index, indirects_in, loads, transform, walk
from litz_ir.symbols.ranges import Range, bounds, extent
from litz_ir.symbols.simplify import Simplifier
from litz_ir.symbols.term import Size, Term, add, floordiv, mod, product, substitute, symbol

_SYMBOL_TYPES = {"int": "i64", "float": "fp64", "bool": "i64"}


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A Triton function: a module's text, the types of its arguments in Triton's spelling, the positions of those that
    are promised to be multiples of 16, warps per program, whether it checks indices, and the number of programs as a
    term of the kernel's symbols (0 programs: nothing to launch)."""

    name: str
    text: str
    signature: tuple[str, ...]
    divisible: tuple[int, ...]
    warps: int
    asserts: bool
    programs: Size


def emit_kernel(
    kernel: Kernel, *, form: Form = "compiled", origins: Sequence[KernelOrigin] = (), processors: int = 132
) -> KernelSource:
    """The Triton function of a kernel. Raises ``CodegenError`` for local arrays, for atomics that the device lacks and
    for dtypes without a Triton type."""
    if kernel.locals:
        names = ", ".join(local.name for local in kernel.locals)
        raise CodegenError(
            f"kernel {kernel.name} wants local arrays ({names}), which a Triton kernel cannot have",
            hint="schedule for a target with local_bytes = 0",
        )
    tiles = tiling(kernel, processors)
    writer = _KernelWriter(kernel, tiles, form)
    return KernelSource(
        kernel.name,
        writer.module(_comments(kernel, origins)),
        tuple(_signature(kernel, form)),
        tuple(_divisible(kernel)),
        tiles.warps,
        writer.body.asserts,
        tiles.programs,
    )


def _signature(kernel: Kernel, form: Form) -> Iterable[str]:
    for parameter in kernel.parameters:
        yield f"*{pointer_type(parameter.dtype, form)}"
    for info in kernel.symbols:
        yield _SYMBOL_TYPES[info.kind]


def _divisible(kernel: Kernel) -> Iterable[int]:
    for position, parameter in enumerate(kernel.parameters):
        if parameter.alignment % 16 == 0:
            yield position
    for position, info in enumerate(kernel.symbols, len(kernel.parameters)):
        if info.kind == "int" and info.divisor % 16 == 0:
            yield position


def _comments(kernel: Kernel, origins: Sequence[KernelOrigin]) -> list[str]:
    """What the kernel fuses: the user's lines where they are known, else its results."""
    known = [f"# {each.operation}: {each.origin.describe()}" for each in origins if each.origin]
    others = [each.operation for each in origins if not each.origin]
    if not origins:
        others = [parameter.name for parameter in kernel.parameters if parameter.access != "in"]
    lines = [*known, f"# computes {', '.join(others)}"] if others else known
    return list(dict.fromkeys(line.replace("\n", " ") for line in lines))


class _KernelWriter:
    """Writes one kernel: its prologue, then its phases in order."""

    def __init__(self, kernel: Kernel, tiles: Tiling, form: Form) -> None:
        self.kernel = kernel
        self.tiles = tiles
        self.form = form
        self.functions: dict[Combine, tuple[str, tuple[str, ...]]] = {}
        self.indices: dict[str, str] = {}
        ranges, self.mapping = self._coordinates()
        self.phases = self._rewritten(Simplifier(ranges))
        dims = tuple((dim.letter, f"{dim.letter.upper()}BLOCK") for dim in tiles.outer if dim.block > 1)
        self.inner = any(inner is not None for inner in tiles.inner)
        if self.inner:
            dims = (*dims, ("r", "RBLOCK"))
        self.pointers: dict[str, str] = {}
        parameters = {p.name: p for p in kernel.parameters}
        read = {
            load.buffer
            for statements in self.phases
            for statement in statements
            for load in loads(*_expressions(statement))
        }
        setting = Setting(
            form, parameters, self.pointers, frozenset(read), ranges, self._narrow(ranges), dims
        )
        self.body = Body(setting)
        self.arguments = self._arguments()

    # --- coordinates ---

    def _coordinates(self) -> tuple[dict[str, Range], list[dict[str, Size]]]:
        """Ranges of all symbols, and per phase each axis as a term of the tile's indices."""
        taken = {info.name for info in self.kernel.symbols}
        ranges = {info.name: info.range for info in self.kernel.symbols if info.kind != "float"}

        def index(letter: str, size: Size) -> Term:
            name = f"{letter}index"
            while name in taken:
                name += "_"
            self.indices[letter] = name
            ranges[name] = extent(size)
            return symbol(name)

        # An axis of one point needs no index, and a tile may leave it out.
        outer: dict[str, Size] = {axis.name: 0 for axis in self.kernel.outer if axis.size == 1}
        if flat(self.kernel):
            outer.update((axis.name, 0) for axis in self.kernel.phases[0].axes if axis.size == 1)
        for dim in self.tiles.outer:
            outer.update(_unflattened(index(dim.letter, dim.size), dim.axes))
        mapping = []
        for number, inner in enumerate(self.tiles.inner):
            own = dict(outer)
            if inner is not None:
                own.update(
                    _unflattened(index(f"s{number}", product(a.size for a in inner.serial)), inner.serial)
                )
                own.update(_unflattened(index(f"r{self._space(number)}", inner.size), inner.axes))
            mapping.append(own)
        return ranges, mapping

    def _space(self, number: int) -> int:
        """The first phase whose tile is that of this one: values computed there are still in registers."""
        inner = self.tiles.inner[number]
        assert inner is not None
        for earlier, other in enumerate(self.tiles.inner[:number]):
            same = other is not None and (other.size, other.block) == (inner.size, inner.block)
            if same and other is not None and other.persistent and inner.persistent:
                return earlier
        return number

    def _rewritten(self, simplifier: Simplifier) -> tuple[tuple[Statement, ...], ...]:
        """The statements of each phase over the tile's indices."""
        return tuple(
            tuple(_over(statement, mapping, simplifier) for statement in phase.statements)
            for phase, mapping in zip(self.kernel.phases, self.mapping)
        )

    def _narrow(self, ranges: Mapping[str, Range]) -> bool:
        terms: dict[Size, None] = {}
        for statements in self.phases:
            for statement in statements:
                for term in _terms(statement):
                    terms[term] = None
        # A tile may stick out past the last point.
        for dim in self.tiles.outer:
            terms[add(dim.size, dim.block)] = None
        for inner in self.tiles.inner:
            if inner is not None:
                terms[add(inner.size, inner.block)] = None
                terms[product(axis.size for axis in inner.serial)] = None
        return fits_narrow(terms, ranges)

    # --- prologue ---

    def _arguments(self) -> dict[str, str]:
        """What each symbol is called as an argument; fills ``pointers`` too."""
        names = self.body.writer.names
        if names.fresh(self.kernel.name) != self.kernel.name:
            raise CodegenError(
                f"a kernel cannot be called {self.kernel.name!r}", hint="use an identifier of Python"
            )
        for name in ("XBLOCK", "YBLOCK", "RBLOCK", "program"):
            names.fresh(name)
        for parameter in self.kernel.parameters:
            self.pointers[parameter.name] = names.fresh(f"{parameter.name}_ptr")
        return {info.name: names.fresh(info.name) for info in self.kernel.symbols}

    def module(self, comments: Sequence[str]) -> str:
        """The text of the module that defines the kernel."""
        self._prologue()
        for number, statements in enumerate(self.phases):
            self._phase(number, statements)
        arguments = [*self.pointers.values(), *self.arguments.values()]
        blocks = [f"{name}: tl.constexpr = {size}" for name, size in self._block_sizes()]
        lines = [*comments, *blocks, *self.body.writer.scopes[0].lines]
        function = f"@triton.jit\ndef {self.kernel.name}({', '.join(arguments)}):\n"
        function += "\n".join(f"    {line}" for line in lines)
        own = [text for _, texts in self.functions.values() for text in texts]
        needed = {name for text in (*own, function) for name in called(text)}
        library = library_source(needed, compiled=self.form == "compiled")
        parts = [*library, *own, function]
        head = "import triton\nimport triton.language as tl\n"
        if any("libdevice." in part for part in parts):
            head += "from triton.language.extra import libdevice\n"
        return head + "\n\n" + "\n\n\n".join(parts) + "\n"

    def _block_sizes(self) -> Iterable[tuple[str, int]]:
        for dim in self.tiles.outer:
            if dim.block > 1:
                yield f"{dim.letter.upper()}BLOCK", dim.block
        sizes = [inner.block for inner in self.tiles.inner if inner is not None]
        if sizes:
            yield "RBLOCK", max(sizes)

    def _prologue(self) -> None:
        body, kind = self.body, self.body.index.type
        for info in self.kernel.symbols:
            name = self.arguments[info.name]
            if info.kind == "float":
                body.writer.line(f"{name} = tl.full([], {name}, tl.float64)")
                body.scalars[info.name] = (Value(name), f64)
                continue
            body.writer.line(f"{name} = {name}.to({kind})")
            body.index.symbols[info.name] = Value(name)
            if info.kind == "bool":
                body.scalars[info.name] = (body.writer.define("flag", f"{name} != 0", frozenset(), 0), b1)
        for mapping in self.mapping:
            for axis, term in mapping.items():
                if isinstance(term, Term):
                    body.index.names.setdefault(term, axis)
        self._programs()

    def _programs(self) -> None:
        """From the program's number to the indices of its tile."""
        body, index = self.body, self.body.index
        wide = "" if index.narrow else ".to(tl.int64)"
        letters = [letter for letter, _ in body.setting.dims]
        rest = f"tl.program_id(0){wide}"
        if len(self.tiles.outer) > 1:
            body.writer.line(f"program = {rest}")
            rest = "program"
        for dim in reversed(self.tiles.outer):
            programs = _programs_along(dim.size, dim.block)
            place = rest
            if programs == 1:
                place = "0"
            elif dim is not self.tiles.outer[0]:
                count = index.unit(programs).text
                place, rest = f"({rest} % {count})", f"{rest} // {count}"
            name = self.indices[dim.letter]
            if dim.block == 1:
                index.symbols[name] = body.writer.define(name, place, frozenset(), 0)
                continue
            dims = frozenset(dim.letter)
            block = f"{dim.letter.upper()}BLOCK"
            span = f"tl.arange(0, {block}){_expanded(letters.index(dim.letter), len(letters))}{wide}"
            text = span if place == "0" else f"{place} * {block} + {span}"
            index.symbols[name] = body.writer.define(name, text, dims, 0)
            if not (isinstance(dim.size, int) and dim.size % dim.block == 0):
                text = f"{name} < {index.unit(dim.size).text}"
                body.masks.tails[dim.letter] = body.writer.define(f"{dim.letter}mask", text, dims, 0)

    # --- phases ---

    def _phase(self, number: int, statements: Sequence[Statement]) -> None:
        body, inner = self.body, self.tiles.inner[number]
        if len(self.phases) > 1:
            over = ", ".join(f"{axis.name}: {axis.size}" for axis in self.kernel.phases[number].axes)
            body.writer.line(
                f"# phase {number + 1} of {len(self.phases)}" + (f", over {over}" if over else "")
            )
        self._settle(statements)
        body.masks.tails.pop("r", None)
        if inner is None:
            self._single(statements)
            return
        if inner.size == 0 or any(axis.size == 0 for axis in inner.serial):
            for statement in statements:
                if isinstance(statement, Accumulate):
                    self._reduction(statement).empty()
            return
        if inner.serial:
            self._serial(number, inner, statements)
        else:
            self._tiled(number, inner, statements)

    def _settle(self, statements: Sequence[Statement]) -> None:
        """Let earlier phases finish where this one reads what they stored, or overwrites what they read."""
        body = self.body
        reads = {
            load.buffer
            for statement in statements
            for load in loads(*_expressions(statement))
            if body.writer.known(load) is None
        }
        writes = {buffer for statement in statements for buffer, _ in targets_of(statement)}
        if reads & body.stored or writes & (body.loaded | body.stored):
            body.barrier()

    def _single(self, statements: Sequence[Statement]) -> None:
        writes = []
        for statement in statements:
            match statement:
                case Store():
                    writes.append(self.body.prepare(statement))
                case Accumulate():
                    self._reduction(statement).single()
                case ScanStore():
                    raise CodegenError("a scan needs an axis to run along", node=self.kernel.name)
        for write in writes:
            self.body.store(write, self._every() - {"r"})

    def _serial(self, number: int, inner: Inner, statements: Sequence[Statement]) -> None:
        """One scan after the other, along the last axis of the phase."""
        if any(isinstance(statement, Accumulate) for statement in statements):
            raise CodegenError(
                "a phase of several axes both scans and reduces",
                node=self.kernel.name,
                hint="put them into two phases",
            )
        body = self.body
        size = body.index.unit(product(axis.size for axis in inner.serial)).text
        name = body.writer.names.fresh(self.indices[f"s{number}"])
        body.writer.open(f"for {name} in range(0, {size}):")
        body.index.symbols[self.indices[f"s{number}"]] = Value(name, frozenset(), body.writer.depth)
        self._tiled(number, inner, statements)
        body.writer.close()

    def _tiled(self, number: int, inner: Inner, statements: Sequence[Statement]) -> None:
        if inner.persistent:
            self._persistent(number, inner, statements)
        else:
            self._looped(number, inner, statements)

    def _block(self, inner: Inner) -> str:
        largest = max(other.block for other in self.tiles.inner if other is not None)
        return "RBLOCK" if inner.block == largest else str(inner.block)

    def _span(self, inner: Inner) -> Value:
        """The points of a tile along ``r``, from 0."""
        body = self.body
        key = ("span", inner.block)
        found = body.writer.known(key)
        if found is None:
            letters = body.setting.dims
            wide = "" if body.index.narrow else ".to(tl.int64)"
            text = f"tl.arange(0, {self._block(inner)}){_expanded(len(letters) - 1, len(letters))}{wide}"
            found = body.writer.remember(key, body.writer.define("rspan", text, frozenset("r"), 0))
        return found

    def _persistent(self, number: int, inner: Inner, statements: Sequence[Statement]) -> None:
        body = self.body
        span = self._span(inner)
        body.index.symbols[self.indices[f"r{self._space(number)}"]] = span
        if inner.size != inner.block:
            key = ("tail", inner.block, inner.size)
            tail = body.writer.known(key)
            if tail is None:
                text = f"{span.text} < {body.index.unit(inner.size).text}"
                tail = body.writer.remember(key, body.writer.define("rmask", text, span.dims, 0))
            body.masks.tails["r"] = tail
        body.masks.last = f"({span.text} == {self._block(inner)} - 1)"
        writes: list[Write] = []
        assert isinstance(inner.size, int), "a tile of known size covers it"
        for statement in statements:
            match statement:
                case Store():
                    writes.append(body.prepare(statement))
                case Accumulate():
                    self._reduction(statement).at_once(inner.size)
                case ScanStore():
                    writes.extend(self._scan(statement).tile())
        for write in writes:
            body.store(write, self._every())

    def _looped(self, number: int, inner: Inner, statements: Sequence[Statement]) -> None:
        body = self.body
        span, block = self._span(inner), self._block(inner)
        runs = [self._run(statement) for statement in statements]
        size = body.index.unit(inner.size).text
        offset = body.writer.names.fresh("roffset")
        least = bounds(inner.size, body.setting.ranges).low
        body.writer.open(f"for {offset} in range(0, {size}, {block}):")
        depth = body.writer.depth
        body.load_depth = 0 if least is not None and least > 0 else depth
        index = body.writer.define("rindex", f"{offset} + {span.text}", span.dims, depth)
        body.index.symbols[self.indices[f"r{number}"]] = index
        if not (isinstance(inner.size, int) and inner.size % inner.block == 0):
            body.masks.tails["r"] = body.writer.define("rmask", f"{index.text} < {size}", span.dims, depth)
        body.masks.last = f"({span.text} == {block} - 1)"
        body.eviction = self._eviction(number)
        writes = [write for step, _ in runs for write in step()]
        for write in writes:
            body.store(write, self._every())
        body.load_depth = 0
        body.eviction = {}
        body.writer.close()
        body.masks.tails.pop("r", None)
        for _, end in runs:
            end()

    def _eviction(self, number: int) -> dict[str, str]:
        """What caches should do with the rows that a loop reads: keep what a later loop reads again, drop what was read
        for the last time."""
        read = [
            {load.buffer for statement in statements for load in loads(*_expressions(statement))}
            for statements in self.phases
        ]
        later = frozenset().union(*read[number + 1 :])
        earlier = frozenset().union(*read[:number])
        kept = dict.fromkeys(sorted(read[number] & later), "evict_last")
        return kept | dict.fromkeys(sorted((read[number] & earlier) - later), "evict_first")

    def _run(self, statement: Statement) -> tuple[Callable[[], list[Write]], Callable[[], None]]:
        """(what a statement does inside the loop and wants stored, what it does after the loop); accumulators are
        written at once."""
        match statement:
            case Store():
                return lambda: [self.body.prepare(statement)], lambda: None
            case Accumulate():
                reduction = self._reduction(statement)
                reduction.begin()
                return reduction.step, reduction.end
            case ScanStore():
                scan = self._scan(statement)
                scan.begin()
                return scan.tile, lambda: None

    def _every(self) -> frozenset[str]:
        return frozenset(letter for letter, _ in self.body.setting.dims)

    def _reduction(self, statement: Accumulate) -> Reduction:
        return Reduction(self.body, statement, self._every(), self._function(statement.combiner))

    def _scan(self, statement: ScanStore) -> Scan:
        return Scan(self.body, statement, self._every(), self._function(statement.combiner))

    def _function(self, combiner: object) -> str:
        """The name of a user-given combination's merging function."""
        if not isinstance(combiner, Combine):
            return ""
        if combiner not in self.functions:
            name = self.body.writer.names.fresh(f"{self.kernel.name}_combine")
            self.functions[combiner] = (name, combine_functions(name, combiner, self.form))
        return self.functions[combiner][0]


# --- coordinates ---------------------------------------------------------------------------------------------------


def _unflattened(index: Size, axes: Sequence[Axis]) -> dict[str, Size]:
    """Each axis as a term of the flattened index."""
    terms: dict[str, Size] = {}
    for place, axis in enumerate(axes):
        step = product(later.size for later in axes[place + 1 :])
        quotient = index if step in (0, 1) else floordiv(index, step)
        if axis.size in (0, 1):
            terms[axis.name] = 0
        else:
            terms[axis.name] = quotient if place == 0 else mod(quotient, axis.size)
    return terms


def _over(statement: Statement, mapping: Mapping[str, Size], simplifier: Simplifier) -> Statement:
    """A statement with its axes replaced, its terms simplified."""
    memo: dict[object, object] = {}

    def term(size: Size) -> Size:
        return simplifier.simplify(substitute(size, mapping))

    def expression(expr: Expr) -> Expr:
        return transform(expr, lambda node: node, term, memo)

    def offset(size: Size) -> Size:
        return expression(Index(size)).terms[0]

    match statement:
        case Store():
            return replace(statement, offset=offset(statement.offset), value=expression(statement.value))
        case Accumulate():
            return replace(statement, values=tuple(map(expression, statement.values)))
        case ScanStore():
            targets = tuple((buffer, offset(target)) for buffer, target in statement.targets)
            return replace(statement, values=tuple(map(expression, statement.values)), targets=targets)


def _programs_along(size: Size, block: int) -> Size:
    return size if block == 1 else floordiv(add(size, block - 1), block)


def _expanded(position: int, rank: int) -> str:
    if rank == 1:
        return ""
    return f"[{', '.join(':' if place == position else 'None' for place in range(rank))}]"


def _expressions(statement: Statement) -> tuple[Expr, ...]:
    """All that a statement evaluates: its values and what its offsets' indirect indices hold."""
    held = (atom.value for _, target in targets_of(statement) for atom in indirects_in(target))
    return (*values_of(statement), *held)


def _terms(statement: Statement) -> Iterable[Size]:
    for _, target in targets_of(statement):
        yield target
    for node in walk(*_expressions(statement)):
        yield from node.terms
