"""A kernel of a plan as the text of a Triton function."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from litz_codegen_triton.emit.body import EmitSettings, TileEmitter
from litz_codegen_triton.emit.cluster_reduction import BARRIER_LIMIT
from litz_codegen_triton.emit.coordinates import TileIndices
from litz_codegen_triton.emit.grid import grid_size
from litz_codegen_triton.emit.horizontal_fusion import dispatch
from litz_codegen_triton.emit.library.registry import called, library_source
from litz_codegen_triton.emit.ops_table import Form, pointer_type
from litz_codegen_triton.emit.phases import PhaseEmitter, expanded
from litz_codegen_triton.emit.text import EmittedValue
from litz_codegen_triton.emit.tiles import TileDim, Tiling, tiling
from litz_codegen_triton.emit.vector_accesses import VectorAccess, vector_accesses
from litz_ir.dtypes import b1, f64
from litz_ir.errors import CodegenError
from litz_ir.origin import abbreviated_list, describe_locations
from litz_ir.plan import Foreach, Kernel, KernelOrigin, Subkernel, origins_by_subkernel, workspace_of
from litz_ir.symbols import Size, Term, mul

GROUP_M = 8
"""How many rows of tiles of a contraction run side by side."""

_GROUPED = ("band", "height", "zplace", "yplace", "xplace")
_SYMBOL_TYPES = {"int": "i64", "float": "fp64", "bool": "i64"}


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A Triton function: a module's text, the types of its arguments in Triton's spelling, the positions of those
    that are promised to be multiples of 16, warps per program, whether it checks indices, the number of programs as a
    term of the kernel's symbols (0 programs: nothing to launch), and the accesses that have to be of 16 bytes a
    thread where buffers are aligned (see ``emit.wide``). Programs that share outer points wait for one another
    ``cluster_barriers`` times; the interpreted form is told by a last argument at which of them to stop."""

    name: str
    text: str
    signature: tuple[str, ...]
    divisible: tuple[int, ...]
    warps: int
    asserts: bool
    grid_size: Size
    vector_accesses: tuple[VectorAccess, ...] = ()
    cluster_barriers: int = 0


def emit_kernel(
    kernel: Kernel, *, form: Form = "compiled", origins: Sequence[KernelOrigin] = ()
) -> KernelSource:
    """The Triton function of a kernel that is scheduled for a GPU. Raises ``CodegenError`` for other kernels, for local
    arrays and for dtypes without a Triton type."""
    if kernel.scratch:
        names = ", ".join(local.name for local in kernel.scratch)
        raise CodegenError(
            f"kernel {kernel.name} wants local arrays ({names}), which a Triton kernel cannot have",
            hint="schedule for a target with local_bytes = 0",
        )
    if kernel.subkernels:
        return _emit_pack(kernel, form, origins)
    tiles = tiling(kernel)
    writer = _KernelWriter(kernel, tiles, form)
    text = _module(writer.functions(_comments(kernel, origins)), form)
    return KernelSource(
        kernel.name,
        text,
        tuple(_signature(kernel, form)),
        tuple(_divisible(kernel)),
        tiles.warps,
        writer.body.asserts,
        tiles.grid_size,
        tuple(vector_accesses(writer.body.accesses, writer.coordinates)),
        writer.phases.cluster.barriers,
    )


def _emit_pack(kernel: Kernel, form: Form, origins: Sequence[KernelOrigin]) -> KernelSource:
    """The Triton function of a pack, with one that it calls for each of its parts."""
    if not isinstance(kernel.schedule, Foreach):
        raise CodegenError(
            f"pack {kernel.name} is not scheduled for a GPU", hint="schedule its plan with the target first"
        )
    tilings = tuple(tiling(part.kernel) for part in kernel.subkernels)
    writers = [
        _KernelWriter(replace(part.kernel, name=f"{kernel.name}_{part.kernel.name}"), tiles, form, "program")
        for part, tiles in zip(kernel.subkernels, tilings, strict=True)
    ]
    comments = [
        _part_comments(part, own)
        for part, own in zip(kernel.subkernels, origins_by_subkernel(kernel, origins), strict=True)
    ]
    functions = [
        text for writer, own in zip(writers, comments, strict=True) for text in writer.functions(own)
    ]
    arguments, lines = dispatch(kernel, tilings, [writer.kernel.name for writer in writers])
    warps = kernel.schedule.warps
    functions.append(_function(kernel.name, arguments, [_warps_comment(warps), *lines]))
    wide = (
        (direction, f"{part.kernel.name}.{buffer}", count)
        for part, each in zip(kernel.subkernels, writers, strict=True)
        for direction, buffer, count in vector_accesses(each.body.accesses, each.coordinates)
    )
    return KernelSource(
        kernel.name,
        _module(functions, form),
        tuple(_signature(kernel, form)),
        tuple(_divisible(kernel)),
        warps,
        any(writer.body.asserts for writer in writers),
        grid_size(kernel),
        tuple(wide),
    )


def _module(functions: Sequence[str], form: Form) -> str:
    """The text of a module of functions, each after those that it calls."""
    needed = {name for text in functions for name in called(text)}
    parts = [*library_source(needed, compiled=form == "compiled"), *dict.fromkeys(functions)]
    head = "import triton\nimport triton.language as tl\n"
    if any("libdevice." in part for part in parts):
        head += "from triton.language.extra import libdevice\n"
    return head + "\n\n" + "\n\n\n".join(parts) + "\n"


def _function(name: str, arguments: Sequence[str], lines: Iterable[str]) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f"@triton.jit\ndef {name}({', '.join(arguments)}):\n{body}"


def _warps_comment(warps: int) -> str:
    return f"# a program has {warps} warp{'s' if warps > 1 else ''}"


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
        others = [parameter.name for parameter in kernel.parameters if parameter.access in ("out", "inout")]
    lines = [*known, f"# computes {', '.join(others)}"] if others else known
    return list(dict.fromkeys(line.replace("\n", " ") for line in lines))


def _part_comments(part: Subkernel, origins: Sequence[KernelOrigin]) -> list[str]:
    """How many loops of a pack are alike, and the user's lines that they came from, else their results."""
    count = len(part.invocations)
    lines = describe_locations(each.origin for each in origins)
    others = [each.operation for each in origins if not each.origin]
    if others:
        lines = (*lines, f"computes {abbreviated_list(others)}")
    found = [f"{count} loop{'s' if count > 1 else ''}", *lines]
    return [f"# {line}".replace("\n", " ") for line in found]


class _KernelWriter:
    """Writes one kernel: its prologue, then its phases in order. The first argument of a pack's part, its ``place``,
    is the program's number among those of its loop."""

    def __init__(self, kernel: Kernel, tiles: Tiling, form: Form, place: str = "") -> None:
        self.place = place
        self.kernel = kernel
        self.tiles = tiles
        self.form = form
        self.coordinates = TileIndices(kernel, tiles)
        dims = tuple((dim.letter, f"{dim.letter.upper()}BLOCK") for dim in tiles.outer if dim.block > 1)
        if tiles.attention is not None and not tiles.attention.columns:
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
            narrow=self.coordinates.narrow(),
            dims=dims,
        )
        self.body = TileEmitter(setting)
        self.phases = PhaseEmitter(self.body, self.coordinates)
        self.begin = 0
        self.arguments = self._arguments()

    def _arguments(self) -> dict[str, str]:
        """What each symbol is called as an argument; fills ``pointers`` too."""
        names = self.body.writer.names
        if names.fresh(self.kernel.name) != self.kernel.name:
            raise CodegenError(
                f"a kernel cannot be called {self.kernel.name!r}", hint="use an identifier of Python"
            )
        for name in ("XBLOCK", "YBLOCK", "RBLOCK", "program", "piece", "turn", BARRIER_LIMIT, *_GROUPED):
            names.fresh(name)
        for parameter in self.kernel.parameters:
            self.pointers[parameter.name] = names.fresh(f"{parameter.name}_ptr")
        return {info.name: names.fresh(info.name) for info in self.kernel.symbols}

    def functions(self, comments: Sequence[str]) -> list[str]:
        """The texts of the functions that it calls and are its own, then that of the kernel."""
        self._prologue()
        self.phases.write()
        arguments = [*([self.place] if self.place else []), *self.pointers.values(), *self.arguments.values()]
        if self.form == "interpreted" and self.phases.cluster.barriers:
            arguments.append(BARRIER_LIMIT)
        blocks = [f"{name}: tl.constexpr = {size}" for name, size in self._block_sizes()]
        warps = [] if self.place else [_warps_comment(self.tiles.warps)]
        lines = [*comments, *warps, *blocks, *self._lines()]
        own = [text for _, texts in self.phases.functions.values() for text in texts]
        return [*own, *self.body.functions.values(), _function(self.kernel.name, arguments, lines)]

    def _lines(self) -> Iterable[str]:
        """What the function does: for one tile, or for all that its program takes in turn."""
        lines = self.body.writer.scopes[0].lines
        yield from lines[: self.begin]
        yield from self.phases.prologue
        if self.tiles.max_grid_size:
            # Made one loop with that over summed points, so that what the next tile reads is on its way early.
            turns = f"{self._first()}, {self.tiles.tile_count}, tl.num_programs(0)"
            yield f"for turn in tl.range({turns}, flatten=True):"
        step = "    " if self.tiles.max_grid_size else ""
        yield from (step + line for line in lines[self.begin :])

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
        self._programs()

    def _programs(self) -> None:
        """From the program's number to the indices of its tile."""
        self.begin = len(self.body.writer.scopes[0].lines)
        places = self._grouped() if self.tiles.contraction is not None else self._in_order()
        for dim, place in zip(reversed(self.tiles.outer), reversed(places), strict=True):
            self._indices(dim, place)

    def _in_order(self) -> list[str]:
        """The place of the program's tile along each dimension, the last one running fastest."""
        rest, places = self._program(), []
        if self.tiles.lookback:
            rest = self._numbered()
        if self.tiles.cluster_size > 1:
            self.body.writer.line(f"piece = {rest} % {self.tiles.cluster_size}")
            self.body.index.symbols[self.coordinates.indices["piece"]] = EmittedValue("piece")
            rest = f"{rest} // {self.tiles.cluster_size}"
        if len(self.tiles.outer) > 1:
            self.body.writer.line(f"program = {rest}")
            rest = "program"
        for dim in reversed(self.tiles.outer):
            place = rest
            if dim.block_count == 1:
                place = "0"
            elif dim is not self.tiles.outer[0]:
                count = self.body.index.unit(dim.block_count).text
                place, rest = f"({rest} % {count})", f"{rest} // {count}"
            places.append(place)
        return places[::-1]

    def _numbered(self) -> str:
        """The row of a program whose number comes from a counter, in the order in which programs begin; ``piece`` is
        its part of the row. Rows go on side by side."""
        writer, index = self.body.writer, self.body.index
        scratch = workspace_of(self.kernel)
        assert scratch is not None, "the verifier asks for it"
        wide = "tl.int32" if index.narrow else "tl.int64"
        counter = self.pointers[scratch.name]
        writer.line(f'program = tl.atomic_add({counter}, 1, sem="relaxed").to({wide})')
        index.symbols[self.coordinates.indices["piece"]] = EmittedValue("piece")
        if not self.tiles.outer:
            writer.line("piece = program")
            return "0"
        rows = index.unit(self.tiles.outer[0].block_count).text
        writer.line(f"piece = program // {rows}")
        return f"program % {rows}"

    def _grouped(self) -> list[str]:
        """The same for a contraction, whose tiles run down bands of ``GROUP_M`` rows of tiles: what programs that run
        at
        the same time read of both factors then stays in the cache."""
        writer, unit = self.body.writer, self.body.index.unit
        *batch, y, x = self.tiles.outer
        writer.line(f"program = {self._program()}")
        if batch:
            each = unit(mul(y.block_count, x.block_count)).text
            writer.line(f"zplace = program // {each}")
            writer.line(f"program = program % {each}")
        across = unit(mul(GROUP_M, x.block_count)).text
        writer.line(f"band = program // {across} * {GROUP_M}")
        writer.line(f"height = tl.minimum({unit(y.block_count).text} - band, {GROUP_M})")
        writer.line(f"yplace = band + program % {across} % height")
        writer.line(f"xplace = program % {across} // height")
        return [*(["zplace"] if batch else []), "yplace", "xplace"]

    def _program(self) -> str:
        return "turn" if self.tiles.max_grid_size else self._first()

    def _first(self) -> str:
        number = self.place or "tl.program_id(0)"
        return number if self.body.index.narrow else f"{number}.to(tl.int64)"

    def _line(self, place: str, length: int) -> str:
        """The rows of a chain's tile along one dimension, and in the tile; where they are cut into pieces of a length,
        also the piece that they lie in and their places there."""
        body, names = self.body, self.coordinates.indices
        wide = "" if body.index.narrow else ".to(tl.int64)"
        span, rows = f"tl.arange(0, YBLOCK){wide}", frozenset("y")

        def define(name: str, text: str, dims: frozenset[str]) -> str:
            value = body.writer.define(names[name], text, dims, 0)
            body.index.symbols[names[name]] = value
            return value.text

        if length:
            define("piece", f"{place} * YBLOCK // {length}", frozenset())
            places = define("places", f"{place} * YBLOCK % {length} + {span}", rows)
            define("place", f"{places}[:, None]", rows)
        return define("rows", f"{place} * YBLOCK + {span}", rows) + "[:, None]"

    def _indices(self, dim: TileDim, place: str) -> None:
        """The indices of the program's tile along a dimension, and the mask of those that exist."""
        body, index = self.body, self.body.index
        letters = [letter for letter, _ in body.setting.dims]
        name = self.coordinates.indices[dim.letter]
        if dim.block == 1:
            if dim.axes:
                index.symbols[name] = body.writer.define(name, place, frozenset(), 0)
            return
        if isinstance(dim.size, int):
            index.block_positions[name] = (dim.block, place)
        dims = frozenset(dim.letter)
        wide = "" if index.narrow else ".to(tl.int64)"
        span = f"tl.arange(0, {dim.letter.upper()}BLOCK){expanded(letters.index(dim.letter), len(letters))}{wide}"
        text = span if place == "0" else f"{place} * {dim.letter.upper()}BLOCK + {span}"
        if self.tiles.attention is not None and dim.letter == "y":
            text = self._line(place, self.tiles.attention.row_block)
        index.symbols[name] = body.writer.define(name, text, dims, 0)
        if not (isinstance(dim.size, int) and dim.size % dim.block == 0):
            text = f"{name} < {index.unit(dim.size).text}"
            body.masks.tails[dim.letter] = body.writer.define(f"{dim.letter}mask", text, dims, 0)
