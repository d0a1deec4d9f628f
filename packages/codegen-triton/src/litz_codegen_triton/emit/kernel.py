"""Emission of a kernel of a plan as the text of a Triton function."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from litz_codegen_triton.emit.bodies.body import TileEmitter
from litz_codegen_triton.emit.bodies.settings import EmitSettings
from litz_codegen_triton.emit.horizontal_fusion import dispatch
from litz_codegen_triton.emit.indexing.coordinates import TileIndices
from litz_codegen_triton.emit.indexing.grid import grid_size
from litz_codegen_triton.emit.indexing.rounding import contracts_multiplications
from litz_codegen_triton.emit.indexing.vector_accesses import vector_accesses
from litz_codegen_triton.emit.kernel_source import KernelSource
from litz_codegen_triton.emit.library.registry import called, library_source
from litz_codegen_triton.emit.loops.dot_kernels import DotKernel, scheduled_roles
from litz_codegen_triton.emit.loops.tiles import TileDim, Tiling, tiling
from litz_codegen_triton.emit.phases import PhaseEmitter, expanded
from litz_codegen_triton.emit.reductions.cluster_reduction import BARRIER_LIMIT
from litz_codegen_triton.emit.reductions.row_sums import RowSums
from litz_codegen_triton.emit.source.comments import kernel_comments, subkernel_comments
from litz_codegen_triton.emit.source.ops_table import Form, pointer_type
from litz_codegen_triton.emit.source.text import EmittedValue
from litz_ir.dtypes import b1, f64
from litz_ir.errors import CodegenError
from litz_ir.plan import Foreach, Kernel, KernelOrigin, origins_by_subkernel, workspace_of
from litz_ir.symbols import Term, mul

_GROUPED = ("group_first", "group_rows", "ztile", "ytile", "xtile")
"""Names of variables that the launch order of a matmul uses."""

_SYMBOL_TYPES = {"int": "i64", "float": "fp64", "bool": "i64"}


def emit_kernel(
    kernel: Kernel, *, form: Form = "compiled", origins: Sequence[KernelOrigin] = ()
) -> KernelSource:
    """Emit the Triton function of a kernel that is scheduled for a GPU.

    The interpreted form runs in Triton's interpreter, on the CPU. ``origins`` are the user's lines for the comments.
    Raises ``CodegenError`` for a kernel that is not scheduled, for scratch arrays and for dtypes without a Triton type.
    """
    if kernel.scratch:
        names = ", ".join(array.name for array in kernel.scratch)
        raise CodegenError(
            f"kernel {kernel.name} has scratch arrays ({names}), which a Triton kernel cannot have",
            hint="schedule it for a target with scratch_bytes = 0",
        )
    if kernel.subkernels:
        return _emit_foreach(kernel, form, origins)
    roles, tiles = scheduled_roles(kernel), tiling(kernel)
    writer = _KernelWriter(kernel, tiles, roles, form)
    text = _module(writer.functions(kernel_comments(kernel, origins)), form)
    return KernelSource(
        kernel.name,
        text,
        tuple(_signature(kernel, form)),
        tuple(_divisible(kernel)),
        tiles.warps,
        writer.body.asserts,
        tiles.grid_size,
        tuple(vector_accesses(writer.body.memory.accesses, writer.coordinates)),
        writer.phases.cluster.barriers,
        contracts_multiplications([kernel], has_scores=roles is not None),
        tuple((writer.body.descriptors or {}).values()),
    )


def _emit_foreach(kernel: Kernel, form: Form, origins: Sequence[KernelOrigin]) -> KernelSource:
    """Emit the Triton function of a foreach kernel, and the function that it calls for each subkernel."""
    if not isinstance(kernel.schedule, Foreach):
        raise CodegenError(
            f"the foreach kernel {kernel.name} is not scheduled for a GPU",
            hint="schedule its plan with the target first",
        )
    subkernels = kernel.subkernels
    tilings = tuple(tiling(each.kernel) for each in subkernels)
    writers = [
        _KernelWriter(
            replace(each.kernel, name=f"{kernel.name}_{each.kernel.name}"), tiles, None, form, "program"
        )
        for each, tiles in zip(subkernels, tilings, strict=True)
    ]
    comments = [
        subkernel_comments(each, own)
        for each, own in zip(subkernels, origins_by_subkernel(kernel, origins), strict=True)
    ]
    functions = [
        text for writer, own in zip(writers, comments, strict=True) for text in writer.functions(own)
    ]
    arguments, lines = dispatch(kernel, kernel.schedule, tilings, [writer.kernel.name for writer in writers])
    warps = kernel.schedule.warps
    functions.append(_function(kernel.name, arguments, [_warps_comment(warps), *lines]))
    accesses = (
        (direction, f"{each.kernel.name}.{buffer}", count)
        for each, writer in zip(subkernels, writers, strict=True)
        for direction, buffer, count in vector_accesses(writer.body.memory.accesses, writer.coordinates)
    )
    return KernelSource(
        kernel.name,
        _module(functions, form),
        tuple(_signature(kernel, form)),
        tuple(_divisible(kernel)),
        warps,
        any(writer.body.asserts for writer in writers),
        grid_size(kernel),
        tuple(accesses),
        contract=contracts_multiplications([each.kernel for each in subkernels]),
    )


def _module(functions: Sequence[str], form: Form) -> str:
    """Return the text of a module of functions, each after those that it calls, library functions included."""
    needed = {name for text in functions for name in called(text)}
    texts = [*library_source(needed, compiled=form == "compiled"), *dict.fromkeys(functions)]
    head = "import triton\nimport triton.language as tl\n"
    if any("libdevice." in text for text in texts):
        head += "from triton.language.extra import libdevice\n"
    return head + "\n\n" + "\n\n\n".join(texts) + "\n"


def _function(name: str, arguments: Sequence[str], lines: Iterable[str]) -> str:
    """Return the text of a jitted function."""
    body = "\n".join(f"    {line}" for line in lines)
    return f"@triton.jit\ndef {name}({', '.join(arguments)}):\n{body}"


def _warps_comment(warps: int) -> str:
    """Return the comment that gives the number of warps."""
    return f"# a program has {warps} warp{'s' if warps > 1 else ''}"


def _signature(kernel: Kernel, form: Form) -> Iterable[str]:
    """Yield the Triton type of each argument."""
    for parameter in kernel.parameters:
        yield f"*{pointer_type(parameter.dtype, form)}"
    for info in kernel.symbols:
        yield _SYMBOL_TYPES[info.kind]


def _divisible(kernel: Kernel) -> Iterable[int]:
    """Yield the positions of arguments that are multiples of 16."""
    for position, parameter in enumerate(kernel.parameters):
        if parameter.alignment % 16 == 0:
            yield position
    for position, info in enumerate(kernel.symbols, len(kernel.parameters)):
        if info.kind == "int" and info.divisor % 16 == 0:
            yield position


class _KernelWriter:
    """Writes one kernel: its prologue, then its phases in order.

    ``program`` names the first argument of a subkernel's function, the number of the CTA among those of its invocation;
    empty for a kernel of its own.
    """

    def __init__(
        self, kernel: Kernel, tiles: Tiling, roles: DotKernel | None, form: Form, program: str = ""
    ) -> None:
        self.program = program
        self.kernel = kernel
        self.tiles = tiles
        self.form = form
        self.coordinates = TileIndices(kernel, tiles, roles)
        dims = tuple((dim.letter, f"{dim.letter.upper()}BLOCK") for dim in tiles.outer if dim.block > 1)
        if self.coordinates.attention is not None and not self.coordinates.attention.columns:
            dims = (*dims, ("x", "1"))
        if not tiles.uses_dot and any(inner is not None for inner in tiles.inner):
            dims = (*dims, ("r", "RBLOCK"))
        self.pointers: dict[str, str] = {}
        setting = EmitSettings(
            form=form,
            parameters={parameter.name: parameter for parameter in kernel.parameters},
            pointers=self.pointers,
            read=frozenset().union(*map(self.coordinates.reads, range(len(tiles.inner)))),
            ranges=self.coordinates.ranges,
            narrow=self.tiles.narrow,
        )
        self.body = TileEmitter(setting, dims)
        if not program:
            self.body.descriptors = {}
        row = tiles.row
        if row is not None and (tiles.row_cluster == 1 or form == "compiled"):
            self.body.row = (row.letter, self.coordinates.indices[row.letter], row.size)
        if tiles.row_cluster > 1 and form == "compiled":
            self.body.row_sums = RowSums(self.body, kernel.name, tiles.row_cluster)
        self.phases = PhaseEmitter(self.body, self.coordinates)
        self.begin = 0
        self.arguments = self._arguments()

    def _arguments(self) -> dict[str, str]:
        """Return the argument's name of each symbol; fills ``pointers`` too."""
        names = self.body.writer.names
        if names.fresh(self.kernel.name) != self.kernel.name:
            raise CodegenError(
                f"a kernel cannot be called {self.kernel.name!r}", hint="use a Python identifier"
            )
        for name in ("XBLOCK", "YBLOCK", "RBLOCK", "program", "chunk", "tile_id", BARRIER_LIMIT, *_GROUPED):
            names.fresh(name)
        for parameter in self.kernel.parameters:
            self.pointers[parameter.name] = names.fresh(f"{parameter.name}_ptr")
        return {info.name: names.fresh(info.name) for info in self.kernel.symbols}

    def functions(self, comments: Sequence[str]) -> list[str]:
        """Return the texts of the functions that only this kernel calls, then that of the kernel."""
        if self.tiles.grid_size == 0:
            # Constants of operations at no point may be such that they do not compile.
            self.body.writer.line("pass")
        else:
            self._prologue()
            self.phases.write()
        arguments = [*([self.program] if self.program else [])]
        arguments += [*self.pointers.values(), *self.arguments.values()]
        if self.form == "compiled":
            arguments += self.body.descriptors or ()
        if self.form == "interpreted" and self.phases.cluster.barriers:
            arguments.append(BARRIER_LIMIT)
        blocks = [f"{name}: tl.constexpr = {size}" for name, size in self._block_sizes()]
        warps = [] if self.program else [_warps_comment(self.tiles.warps)]
        lines = [*comments, *warps, *blocks, *self._lines()]
        own = [text for _, texts in self.phases.functions.values() for text in texts]
        return [*own, *self.body.functions.values(), _function(self.kernel.name, arguments, lines)]

    def _lines(self) -> Iterable[str]:
        """Yield the lines of the function's body, in a loop over tiles for a persistent kernel."""
        lines = self.body.writer.scopes[0].lines
        yield from lines[: self.begin]
        yield from self.phases.prologue
        if self.tiles.max_grid_size:
            # Flattened with the loop over K, so that loads of the next tile are pipelined with the end of this one.
            span = f"{self._first()}, {self.tiles.tile_count}, tl.num_programs(0)"
            yield f"for tile_id in tl.range({span}, flatten=True):"
        step = "    " if self.tiles.max_grid_size else ""
        yield from (step + line for line in lines[self.begin :])

    def _block_sizes(self) -> Iterable[tuple[str, int]]:
        """Yield the name and the size of each block."""
        for dim in self.tiles.outer:
            if dim.block > 1:
                yield f"{dim.letter.upper()}BLOCK", dim.block
        sizes = [inner.block for inner in self.tiles.inner if inner is not None]
        if sizes:
            yield "RBLOCK", max(sizes)

    def _prologue(self) -> None:
        """Write the conversion of symbols, and the indices of the CTA's tile."""
        body, kind = self.body, self.body.index.type
        for info in self.kernel.symbols:
            name = self.arguments[info.name]
            if info.kind == "float":
                body.writer.line(f"{name} = tl.full([], {name}, tl.float64)")
                body.scalars[info.name] = (EmittedValue(name), f64)
                continue
            body.writer.line(f"{name} = {name}.to({kind})")
            body.index.symbols[info.name] = EmittedValue(name)
            if info.kind == "bool":
                body.scalars[info.name] = (body.writer.define("flag", f"{name} != 0", frozenset(), 0), b1)
        for mapping in self.coordinates.mapping:
            for axis, term in mapping.items():
                if isinstance(term, Term):
                    body.index.names.setdefault(term, axis)
        self._tile_indices()

    def _tile_indices(self) -> None:
        """Write the way from the program id to the indices of its tile."""
        self.begin = len(self.body.writer.scopes[0].lines)
        numbers = self._grouped() if self.coordinates.contraction is not None else self._row_major()
        for dim, number in zip(reversed(self.tiles.outer), reversed(numbers), strict=True):
            self._indices(dim, number)

    def _row_major(self) -> list[str]:
        """Return the number of the tile along each dimension, in row-major order or in that of an attention."""
        rest = self._program()
        numbers: dict[str, str] = {}
        if self.tiles.lookback:
            rest = self._numbered()
        if self.tiles.cluster_size > 1:
            self.body.writer.line(f"chunk = {rest} % {self.tiles.cluster_size}")
            self.body.index.symbols[self.coordinates.indices["partition"]] = EmittedValue("chunk")
            rest = f"{rest} // {self.tiles.cluster_size}"
        if len(self.tiles.outer) > 1:
            self.body.writer.line(f"program = {rest}")
            rest = "program"
        slowest_first = list(self.tiles.outer)
        if self.tiles.order != "batch":
            slowest_first.sort(key=lambda dim: dim.letter != "y")
        for dim in reversed(slowest_first):
            number = rest
            if dim.block_count == 1:
                number = "0"
            elif dim is not slowest_first[0]:
                count = self.body.index.unit(dim.block_count).text
                number, rest = f"({rest} % {count})", f"{rest} // {count}"
            if dim.letter == "y" and self.tiles.order == "last_rows":
                number = f"({self.body.index.unit(dim.block_count).text} - 1 - {number})"
            numbers[dim.letter] = number
        return [numbers[dim.letter] for dim in self.tiles.outer]

    def _numbered(self) -> str:
        """Return the row of a CTA of a look-back scan, and write its ``chunk`` of the row.

        CTAs take numbers from an atomic counter, in the order in which they start; all rows advance in parallel.
        """
        writer, index = self.body.writer, self.body.index
        scratch = workspace_of(self.kernel)
        assert scratch is not None, "the verifier requires a workspace"
        kind = "tl.int32" if index.narrow else "tl.int64"
        counter = self.pointers[scratch.name]
        writer.line(f'program = tl.atomic_add({counter}, 1, sem="relaxed").to({kind})')
        index.symbols[self.coordinates.indices["partition"]] = EmittedValue("chunk")
        if not self.tiles.outer:
            writer.line("chunk = program")
            return "0"
        rows = index.unit(self.tiles.outer[0].block_count).text
        writer.line(f"chunk = program // {rows}")
        return f"program % {rows}"

    def _grouped(self) -> list[str]:
        """Return the number of the tile along each dimension of a matmul, in groups of rows of tiles.

        CTAs that run at the same time then read few rows of A and few columns of B, which stay in the L2 cache.
        """
        writer, unit, group = self.body.writer, self.body.index.unit, self.tiles.group
        *batch, y, x = self.tiles.outer
        writer.line(f"program = {self._program()}")
        if batch:
            each = unit(mul(y.block_count, x.block_count)).text
            writer.line(f"ztile = program // {each}")
            writer.line(f"program = program % {each}")
        across = unit(mul(group, x.block_count)).text
        writer.line(f"group_first = program // {across} * {group}")
        writer.line(f"group_rows = tl.minimum({unit(y.block_count).text} - group_first, {group})")
        writer.line(f"ytile = group_first + program % {across} % group_rows")
        writer.line(f"xtile = program % {across} // group_rows")
        return [*(["ztile"] if batch else []), "ytile", "xtile"]

    def _program(self) -> str:
        """Return the number of the tile: the loop variable of a persistent kernel, else the program id."""
        return "tile_id" if self.tiles.max_grid_size else self._first()

    def _first(self) -> str:
        """Return the program id in the type of indices."""
        number = self.program or "tl.program_id(0)"
        return number if self.body.index.narrow else f"{number}.to(tl.int64)"

    def _attention_rows(self, tile: str, length: int) -> str:
        """Write the one-dimensional row index of an attention tile, and return it along the tile's first dimension.

        With row blocks of ``length`` also write the block that the tile lies in and the positions of its rows there.
        """
        body, names = self.body, self.coordinates.indices
        widen = "" if body.index.narrow else ".to(tl.int64)"
        span, rows = f"tl.arange(0, YBLOCK){widen}", frozenset("y")

        def define(name: str, text: str, dims: frozenset[str]) -> str:
            value = body.writer.define(names[name], text, dims, 0)
            body.index.symbols[names[name]] = value
            return value.text

        if length:
            define("qblock", f"{tile} * YBLOCK // {length}", frozenset())
            offsets = define("qrows", f"{tile} * YBLOCK % {length} + {span}", rows)
            define("qrow", f"{offsets}[:, None]", rows)
        return define("rows", f"{tile} * YBLOCK + {span}", rows) + "[:, None]"

    def _indices(self, dim: TileDim, tile: str) -> None:
        """Write the index along a dimension for its tile of that number, and the mask of the tail."""
        body, index = self.body, self.body.index
        letters = body.tile.letters
        name = self.coordinates.indices[dim.letter]
        if dim.block == 1:
            if dim.axes:
                index.symbols[name] = body.writer.define(name, tile, frozenset(), 0)
            return
        if isinstance(dim.size, int):
            index.block_positions[name] = (dim.block, tile)
        dims = frozenset(dim.letter)
        widen = "" if index.narrow else ".to(tl.int64)"
        span = f"tl.arange(0, {dim.letter.upper()}BLOCK){expanded(letters.index(dim.letter), len(letters))}{widen}"
        text = span if tile == "0" else f"{tile} * {dim.letter.upper()}BLOCK + {span}"
        if self.coordinates.attention is not None and dim.letter == "y":
            text = self._attention_rows(tile, self.coordinates.attention.row_block)
        index.symbols[name] = body.writer.define(name, text, dims, 0)
        if not (isinstance(dim.size, int) and dim.size % dim.block == 0):
            text = f"{name} < {index.unit(dim.size).text}"
            body.masks.tails[dim.letter] = body.writer.define(f"{dim.letter}mask", text, dims, 0)
