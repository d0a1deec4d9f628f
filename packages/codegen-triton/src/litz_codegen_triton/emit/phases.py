"""Emission of a kernel's phases: at one point, over a persistent tile, or in a loop of tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from litz_codegen_triton.emit.attention.loop import AttentionEmitter
from litz_codegen_triton.emit.bodies.body import TileEmitter
from litz_codegen_triton.emit.bodies.store import PendingStore, prepare, store
from litz_codegen_triton.emit.indexing.coordinates import TileIndices
from litz_codegen_triton.emit.indexing.prefetch import early_loads
from litz_codegen_triton.emit.indexing.statements import (
    can_prefetch,
    expressions,
    independent_runs,
    targets_of,
    values_of,
)
from litz_codegen_triton.emit.loops.tiles import InnerLoop
from litz_codegen_triton.emit.matmul.dot import Dot
from litz_codegen_triton.emit.reductions.cluster_reduction import ClusterReduction
from litz_codegen_triton.emit.reductions.combiners import combine_functions, written_out
from litz_codegen_triton.emit.reductions.element_groups import ElementGroups, element_groups
from litz_codegen_triton.emit.reductions.emitters import reduction_emitter
from litz_codegen_triton.emit.reductions.first_loads import FirstLoads
from litz_codegen_triton.emit.reductions.lookback_scan import LookbackScanEmitter
from litz_codegen_triton.emit.reductions.next_tile import NextTile
from litz_codegen_triton.emit.reductions.reduction import ReductionEmitter
from litz_codegen_triton.emit.reductions.relative_sums import relative_sums
from litz_codegen_triton.emit.reductions.scan import ScanEmitter
from litz_codegen_triton.emit.source.comments import comment
from litz_codegen_triton.emit.source.text import EmittedValue
from litz_ir.errors import CodegenError
from litz_ir.loops import UserCombiner
from litz_ir.plan import Accumulate, ScanStore, Statement, Store
from litz_ir.scalar import loads, nested_reductions
from litz_ir.symbols import bounds, product


class PhaseEmitter:
    """Writer of a kernel's phases, in order, into its body.

    ``functions`` collects the merge functions of combiners without a spelling, each with its name and source.
    ``prologue`` collects the lines that come first: those before the loop over tiles of a persistent matmul, and those
    that set a cluster up.
    """

    def __init__(self, body: TileEmitter, coordinates: TileIndices) -> None:
        self.body = body
        self.coordinates = coordinates
        self.kernel = coordinates.kernel
        self.tiles = coordinates.tiles
        self.functions: dict[UserCombiner, tuple[str, tuple[str, ...]]] = {}
        self.prologue: list[str] = []
        self.relative_sums = relative_sums(self.kernel)
        self.cluster = ClusterReduction(body, coordinates)
        self.first_loads = FirstLoads(body, coordinates)

    def write(self) -> None:
        """Write all phases. Raises ``CodegenError`` for a phase of an unsupported form."""
        for number, statements in enumerate(self.coordinates.phases):
            self._phase(number, statements)
        self.prologue += self.cluster.begin()
        if self.body.row_sums is not None:
            self.prologue += self.body.row_sums.begin()

    def _phase(self, number: int, statements: Sequence[Statement]) -> None:
        """Write one phase, with a comment that gives its number and axes."""
        body, inner = self.body, self.tiles.inner[number]
        nested = nested_reductions(*(value for each in statements for value in values_of(each)))
        inside = nested_reductions(*(each.body for each in nested))
        body.nested = tuple(each for each in nested if each not in inside)
        if len(self.coordinates.phases) > 1:
            over = ", ".join(f"{axis.name}: {axis.size}" for axis in self.kernel.phases[number].axes)
            text = f"phase {number + 1} of {len(self.coordinates.phases)}"
            body.writer.line(comment(f"{text}, over {over}" if over else text))
        self._barrier_between_phases(statements)
        body.masks.tails.pop("r", None)
        if inner is None:
            self._pointwise(number, statements)
            return
        if inner.size == 0 or any(axis.size == 0 for axis in inner.serial):
            for statement in statements:
                if isinstance(statement, Accumulate):
                    self._reduction(statement).empty()
            return
        if self.tiles.uses_dot:
            self._dot(inner, [each for each in statements if isinstance(each, Accumulate | Store)])
        elif inner.serial:
            self._serial(number, inner, statements)
        else:
            self._tiled(number, inner, statements)

    def _dot(self, inner: InnerLoop, statements: Sequence[Accumulate | Store]) -> None:
        """Write the phase of a matmul or attention that uses ``tl.dot``."""
        if self.coordinates.contraction is not None:
            (statement,) = statements
            assert isinstance(statement, Accumulate), "a contraction is a sum"
            dot = Dot(self.body, self.coordinates, self.coordinates.contraction, inner)
            dot.write(statement, self.tiles.stages)
            self.prologue += dot.prologue
        elif self.coordinates.attention is not None:
            attention = AttentionEmitter(self.body, self.coordinates, self.coordinates.attention, inner)
            attention.write(statements, self.tiles.stages)

    def _barrier_between_phases(self, statements: Sequence[Statement]) -> None:
        """Write a barrier where a phase accesses a buffer that earlier phases stored to, or stores to one that they
        loaded."""
        body = self.body
        reads = {
            load.buffer
            for statement in statements
            for load in loads(*expressions(statement))
            if body.writer.known(load) is None
        }
        writes = {buffer for statement in statements for buffer, _ in targets_of(statement)}
        if reads & body.memory.stored or writes & (body.memory.loaded.keys() | body.memory.stored):
            body.memory.barrier()

    def _barrier_before_stores(self, statements: Sequence[Statement]) -> None:
        """Write a barrier where statements overwrite a buffer that other statements load.

        Triton chooses the threads that load and that store an element by the layouts of all accesses. The thread that
        stores waits for the value that it stores alone, not for other loads of the element.
        """
        loaded = self.body.memory.loaded
        for statement in statements:
            own = {load.buffer for load in loads(*expressions(statement))}
            if any(loaded[buffer] > (buffer in own) for buffer, _ in targets_of(statement)):
                self.body.memory.barrier()
                return

    def _pointwise(self, number: int, statements: Sequence[Statement]) -> None:
        """Write a phase without axes of its own, after the loads that it prefetches."""
        if number in self.tiles.prefetch:
            for load in early_loads(value for each in statements for value in values_of(each)):
                self.body.value(load)
        for run in independent_runs(statements):
            self._at_one_point(run)

    def _at_one_point(self, statements: Sequence[Statement]) -> None:
        writes = []
        for statement in statements:
            match statement:
                case Store():
                    writes.append(prepare(self.body, statement))
                case Accumulate():
                    self._reduction(statement).single()
                case ScanStore():
                    raise CodegenError("a scan needs an axis to scan along", node=self.kernel.name)
        self._barrier_before_stores(statements)
        with self.cluster.by_one():
            for write in writes:
                store(self.body, write, self._all_dims() - {"r"})

    def _serial(self, number: int, inner: InnerLoop, statements: Sequence[Statement]) -> None:
        """Write a loop over the serial axes of a phase, with a scan along its last axis in each iteration."""
        if any(isinstance(statement, Accumulate) for statement in statements):
            raise CodegenError(
                "a phase of several axes cannot both scan and reduce",
                node=self.kernel.name,
                hint="put them into two phases",
            )
        body = self.body
        size = body.index.unit(product(axis.size for axis in inner.serial)).text
        name = body.writer.names.fresh(self.coordinates.indices[f"s{number}"])
        body.writer.open(f"for {name} in range(0, {size}):")
        body.index.symbols[self.coordinates.indices[f"s{number}"]] = EmittedValue(
            name, frozenset(), body.writer.depth
        )
        self._tiled(number, inner, statements)
        body.writer.close()

    def _tiled(self, number: int, inner: InnerLoop, statements: Sequence[Statement]) -> None:
        if self.tiles.lookback:
            self._lookback(number, inner, statements)
        elif inner.persistent:
            self._persistent(number, inner, statements)
        elif inner.unrolled and self._reduces_alone(statements):
            self._unrolled(number, inner, [each for each in statements if isinstance(each, Accumulate)])
        else:
            self._looped(number, inner, statements)

    def _reduces_alone(self, statements: Sequence[Statement]) -> bool:
        """True for statements that accumulate, none of them relative to another's result."""
        return all(
            isinstance(each, Accumulate) and each.results[0][0] not in self.relative_sums
            for each in statements
        )

    def _unrolled(self, number: int, inner: InnerLoop, statements: Sequence[Accumulate]) -> None:
        """Write a phase whose few points each thread visits, so that its reductions need no other thread."""
        body = self.body
        reductions = [self._reduction(each) for each in statements]
        for reduction in reductions:
            reduction.begin_points()
        point = body.writer.names.fresh("point")
        body.writer.open(f"for {point} in tl.static_range({inner.unrolled}):")
        body.iteration = (point, body.writer.depth)
        depth, dtype = body.writer.depth, "tl.int32" if body.index.narrow else "tl.int64"
        index = body.writer.define("rindex", f"tl.full([], {point}, {dtype})", frozenset(), depth)
        body.index.symbols[self.coordinates.indices[f"r{number}"]] = index
        body.memory.eviction = inner.eviction
        for reduction in reductions:
            reduction.step_point()
        body.memory.eviction = {}
        body.iteration = ("0", 0)
        body.writer.close()
        for reduction in reductions:
            reduction.finish(reduction.accumulators)

    def _lookback(self, number: int, inner: InnerLoop, statements: Sequence[Statement]) -> None:
        """Write the scan of one segment of a row, by decoupled look-back."""
        body, span, lookback = self.body, self._span(inner), LookbackScanEmitter(self.body, self.coordinates)
        index = lookback.index(inner, span)
        body.index.symbols[self.coordinates.indices[f"r{number}"]] = index
        if not (isinstance(inner.size, int) and inner.size % inner.block == 0):
            text = f"{index.text} < {body.index.unit(inner.size).text}"
            body.masks.tails["r"] = body.writer.define("rmask", text, index.dims, 0)
        body.masks.last = f"({span.text} == {inner.block - 1})"
        for statement in statements:
            assert isinstance(statement, ScanStore), "a look-back kernel has scans alone"
            for write in self._scan(statement).chunk(lookback):
                store(body, write, self._all_dims())

    def _block(self, inner: InnerLoop) -> str:
        """Return the block size as text: the constant ``RBLOCK`` for the kernel's largest one."""
        largest = max(other.block for other in self.tiles.inner if other is not None)
        return "RBLOCK" if inner.block == largest else str(inner.block)

    def _span(self, inner: InnerLoop) -> EmittedValue:
        """Return the indices of a tile along ``r``, from 0."""
        body = self.body
        key = ("span", inner.block)
        found = body.writer.known(key)
        if found is None:
            letters = body.tile.dims
            cast = "" if body.index.narrow else ".to(tl.int64)"
            text = f"tl.arange(0, {self._block(inner)}){expanded(len(letters) - 1, len(letters))}{cast}"
            found = body.writer.remember(key, body.writer.define("rspan", text, frozenset("r"), 0))
        return found

    def _persistent(self, number: int, inner: InnerLoop, statements: Sequence[Statement]) -> None:
        """Write a phase whose tile holds all points."""
        body = self.body
        span = self._span(inner)
        index = self.cluster.index(inner, span)
        body.index.symbols[self.coordinates.indices[f"r{self.coordinates.space(number)}"]] = index
        if inner.size != inner.block * inner.cluster_size:
            body.masks.tails["r"] = self._tail(inner, span, index)
        body.masks.last = f"({span.text} == {inner.points_per_cta} - 1)"
        self.first_loads.write(number)
        writes: list[PendingStore] = []
        for statement in statements:
            match statement:
                case Store():
                    writes.append(prepare(body, statement))
                case Accumulate():
                    reduction = self._reduction(statement)
                    self.cluster.add(reduction, reduction.reduce_row(self.cluster.points(inner)))
                case ScanStore():
                    writes.extend(self._scan(statement).tile())
        self._barrier_before_stores(statements)
        for write in writes:
            store(body, write, self._all_dims())
        self.cluster.finish()

    def _tail(self, inner: InnerLoop, span: EmittedValue, index: EmittedValue) -> EmittedValue:
        """Return the mask of the points of a row, or of the thread block's chunk of it, that exist."""
        writer = self.body.writer
        key = ("tail", inner.block, inner.size)
        found = writer.known(key)
        if found is None:
            tests = [] if inner.even and inner.cluster_size > 1 else [f"{index.text} < {inner.size}"]
            tests += (
                []
                if inner.points_per_cta in (inner.block, inner.size)
                else [f"{span.text} < {inner.points_per_cta}"]
            )
            text = " & ".join(f"({test})" if tests[1:] else test for test in tests)
            found = writer.remember(key, writer.define("rmask", text, span.dims, 0))
        return found

    def _looped(self, number: int, inner: InnerLoop, statements: Sequence[Statement]) -> None:
        """Write a phase as a loop over tiles."""
        body = self.body
        span, block = self._span(inner), self._block(inner)
        exact = isinstance(inner.size, int) and inner.size % (inner.block * inner.cluster_size) == 0
        self.first_loads.write()
        groups = element_groups(self.coordinates, number, inner)
        runs = [self._run(statement, exact, groups) for statement in statements]
        start, size = self.cluster.limits(inner)
        offset = body.writer.names.fresh("roffset")
        least = bounds(inner.size, body.setting.ranges).low
        steps = f"range({start}, {size}, {block})"
        if self.tiles.stages > 1 and can_prefetch(statements):
            steps = f"tl.range({start}, {size}, {block}, num_stages={self.tiles.stages})"
        following = NextTile(body, self.coordinates, number, inner, statements)
        if number in self.tiles.prefetch:
            following.begin(start, span)
        body.writer.open(f"for {offset} in {steps}:")
        depth = body.writer.depth
        body.iteration = (offset, depth)
        body.memory.load_depth = 0 if least is not None and least > 0 else depth
        index = body.writer.define("rindex", f"{offset} + {span.text}", span.dims, depth)
        body.index.symbols[self.coordinates.indices[f"r{number}"]] = index
        if not exact:
            body.masks.tails["r"] = body.writer.define("rmask", f"{index.text} < {size}", span.dims, depth)
        stop = f"{offset} + {block}" if exact else f"tl.minimum({offset} + {block}, {size})"
        body.masks.last = f"({index.text} == {stop} - 1)"
        if number in self.tiles.prefetch:
            following.step(offset, size, block, span)
        body.memory.eviction = inner.eviction
        writes = [write for step, _ in runs for write in step()]
        self._barrier_before_stores(statements)
        for write in writes:
            store(body, write, self._all_dims())
        body.memory.load_depth = 0
        body.memory.eviction = {}
        body.iteration = ("0", 0)
        body.writer.close()
        body.masks.tails.pop("r", None)
        for _, end in runs:
            end()
        self.cluster.finish()

    def _run(
        self, statement: Statement, exact: bool, groups: ElementGroups
    ) -> tuple[Callable[[], list[PendingStore]], Callable[[], None]]:
        """Write the accumulators of a statement before a loop.

        Returns two functions: one writes the statement inside the loop and returns its stores, one writes its results
        after the loop.
        """
        match statement:
            case Store():
                return lambda: [prepare(self.body, statement)], lambda: None
            case Accumulate():
                reduction = self._reduction(statement)
                reduction.groups = groups
                reduction.begin(exact)
                return reduction.step, lambda: self.cluster.add(reduction, reduction.end())
            case ScanStore():
                scan = self._scan(statement)
                scan.begin()
                return scan.tile, lambda: None

    def _all_dims(self) -> frozenset[str]:
        return frozenset(self.body.tile.letters)

    def _reduction(self, statement: Accumulate) -> ReductionEmitter:
        relative = statement.results[0][0] in self.relative_sums
        function = self._function(statement)
        return reduction_emitter(self.body, statement, self._all_dims(), function, relative=relative)

    def _scan(self, statement: ScanStore) -> ScanEmitter:
        return ScanEmitter(self.body, statement, self._all_dims(), self._function(statement))

    def _function(self, statement: Accumulate | ScanStore) -> str:
        """Return the name of the merge function of a combiner without a spelling, which is written at its first use.

        It is empty for others.
        """
        found = written_out(statement.combiner, statement.values)
        if found is None:
            return ""
        combiner, _ = found
        if combiner not in self.functions:
            name = self.body.writer.names.fresh(f"{self.kernel.name}_combine")
            self.functions[combiner] = (name, combine_functions(name, combiner, self.body.form))
        return self.functions[combiner][0]


def expanded(position: int, rank: int) -> str:
    """Return the subscript that makes a one-dimensional tensor vary along dimension ``position`` of ``rank``."""
    if rank == 1:
        return ""
    return f"[{', '.join(':' if dim == position else 'None' for dim in range(rank))}]"
