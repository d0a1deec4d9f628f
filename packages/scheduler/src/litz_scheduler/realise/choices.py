"""The choice, for every view and pointwise value, between inlining and materialisation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from litz_ir.device import CPU
from litz_ir.fused import Decision, Reason
from litz_ir.loops import LoopGraph, NamedCombiner, Operation, Pointwise, Reduction, Value, View
from litz_ir.passes import PassContext
from litz_scheduler import reasons
from litz_scheduler.analysis.cost import body_cost, body_size, estimate, load_count, points, type_bytes
from litz_scheduler.analysis.cost_model import CostModel
from litz_scheduler.analysis.few_rows import MOST_ROWS, few_rows
from litz_scheduler.analysis.graph_facts import (
    Materialization,
    VersionDeadlines,
    axes_of,
    output_names,
    reads_columns,
)
from litz_scheduler.legality.matmul import gpu_kinds, has_nested_reductions, is_matmul
from litz_scheduler.realise.uses import (
    MAX_READERS,
    Deadline,
    Use,
    Uses,
    deadlines,
    direct_uses,
    inner_load_count,
    loop_bodies,
    may_raise,
)

_BODY_SHARE = 4
"""An inlined body may have 1/4 of the statements that a kernel may have, so that several fit into one."""


_LARGE_MATRIX = 1 << 15
"""The fewest elements of a matrix for which storing the rows that it is multiplied with costs next to nothing."""

_ROW_READS = 8 * MOST_ROWS
"""The most reads of an element of a matrix that is multiplied with few rows, as of an integer that holds eight
elements. Elements of the rows are read more often."""

_OPERAND_COST = 8
"""The most expensive body, in additions, that a matmul computes for each tile of an operand: a low-precision value
unpacked and scaled."""

_PADDED_SHARE = 8
"""A reader may compute a value at 1/8 more points than it has, as copies with padded rows do."""

_FEW_SHARE = 64
"""Readers that compute at most 1/64 of a value's elements cost next to nothing, as the logits of labels do."""

_TILE_BYTES = 4096
"""Bytes of a result in the largest tile of a pointwise kernel on a GPU. Where ``Use.run`` is a multiple of a tile's
points, all points of each tile need the same elements."""

_EXTRA_READ_SHARE = 4
"""Reads besides the elements of a matmul operand, such as its scales, may be 1/4 of the operand's bytes."""


def _fallible(graph: LoopGraph) -> set[str]:
    """Return the values whose computation may report a fault, where they are inlined with what they read."""
    found: set[str] = set()
    for each in graph.operations:
        if isinstance(each, Pointwise | View) and (
            any(map(may_raise, loop_bodies(each))) or not found.isdisjoint(each.reads)
        ):
            found.update(value.name for value in each.results)
    return found


class InlineDecisions:
    """Decide from the end of the graph to its start, so that readers are decided before the values they read."""

    def __init__(self, graph: LoopGraph, costs: CostModel, context: PassContext) -> None:
        self.graph = graph
        self.costs = costs
        self.context = context
        self.returned = output_names(graph)
        self.materialization = Materialization(graph)
        self.memory = self.materialization.memory
        self.types = {name: value.type for name, value in graph.values().items()}
        self.shapes = {name: self.types[name].shape for name in _fallible(graph)}
        self.inlined: set[str] = set()
        self.copied: set[str] = set()
        self.deadlines: dict[str, Deadline] = {}
        self.uses: dict[str, Uses] = {name: Uses(last=len(graph.operations)) for name in self.returned}
        self.weight: dict[int, int] = {}
        kinds = gpu_kinds(context)
        matmuls = {k for k, each in enumerate(graph.operations) if is_matmul(each, kinds)}
        self.sums = {value.name for k in matmuls for value in graph.operations[k].results}
        self.matmuls = matmuls | {k for k, each in enumerate(graph.operations) if has_nested_reductions(each)}
        self.few_rows = {k for k, each in enumerate(graph.operations) if self._has_few_rows(each)} - matmuls
        for view in (each for each in graph.operations if isinstance(each, View)):
            if view.base in self.sums:
                self.sums.add(view.name)
        self.producers = {o.name: o for o in graph.operations if isinstance(o, Pointwise | View)}
        self.readers = Counter(name for each in graph.operations for name in each.reads)
        self.given = {each.name for each in (*graph.inputs, *graph.constants)}
        limit = min((c.max_statements for c in context.capabilities.values()), default=512)
        self.limit = limit // _BODY_SHARE

    def decide(self) -> None:
        """Fill ``inlined``, the values to inline, and ``copied``, the views that become copies."""
        operations = self.graph.operations
        materialised = {
            o.name for o in operations if isinstance(o, Pointwise | View) and self._is_materialised(o)
        }
        self.deadlines = deadlines(operations, VersionDeadlines(self.graph, materialised), materialised)
        for position in range(len(operations) - 1, -1, -1):
            operation = operations[position]
            chosen = False
            if isinstance(operation, View):
                chosen = self._view(operation)
            elif isinstance(operation, Pointwise):
                chosen = self._pointwise(operation)
            if chosen:
                self.inlined.add(operation.name)
            else:
                self.weight[position] = body_size(*loop_bodies(operation))
            through = isinstance(operation, View) and operation.name not in self.copied
            readers = list(self._readers(operation.name, position, chosen, chosen or through))
            for name, use in direct_uses(operation, self.shapes).items():
                for reader, further in readers:
                    self.uses.setdefault(name, Uses()).add(reader, further.through(use))

    def _readers(self, name: str, position: int, chosen: bool, through: bool) -> Iterator[tuple[int, Use]]:
        """Yield the readers of an operation's arguments: itself unless inlined, and its readers where they read
        through it."""
        if not chosen:
            yield position, Use(1, True, whole=True)
        if through and name in self.uses:
            yield from self.uses[name].readers.items()

    def _is_materialised(self, operation: Pointwise | View) -> bool:
        """Return True when the results are materialised whoever reads them."""
        value = operation.results[0]
        if isinstance(operation, View):
            return value.name in self.memory and not self.materialization.shares(operation)
        return len(operation.results) != 1 or value.replaces is not None or value.name in self.memory

    def _view(self, view: View) -> bool:
        """Return True where a view is inlined."""
        if view.name not in self.memory:
            if self._in_time(view.name):
                self._note(view.results[0], "inline", reasons.INLINE_VIEW)
                return True
        elif self.materialization.shares(view) and self._in_time(view.name):
            # The view shares its base's memory for calls, and loops read the base through it.
            return False
        self.copied.add(view.name)
        self._note(
            view.results[0],
            "copy",
            reasons.COPY_LAYOUT if self._in_time(view.name) else reasons.REFUSE_VERSION,
        )
        return False

    def _pointwise(self, operation: Pointwise) -> bool:
        """Return True where a pointwise value is inlined."""
        value = operation.results[0]
        if self._is_materialised(operation):
            reason = reasons.REALISE_OUTPUT if value.name in self.returned else reasons.REALISE_CALLED
            if value.replaces is not None:
                reason = reasons.REALISE_VERSION
            if len(operation.results) == 1:
                self._note(value, "realise", reason)
            return False
        if not self._in_time(value.name):
            self._note(value, "realise", reasons.REFUSE_VERSION)
            return False
        if self.sums.intersection(operation.reads):
            # If its readers run in other kernels, its result is stored, and not the sum in full precision.
            self._note(value, "realise", reasons.REALISE_MATMUL)
            return False
        verdict, reason = self._verdict(operation)
        self._note(value, verdict, reason)
        return verdict == "inline"

    def _verdict(self, operation: Pointwise) -> tuple[str, Reason]:
        """Return the verdict and the reason by the cost of recomputation."""
        body = operation.bodies[0]
        size, cheap = body_size(body), self.costs.is_cheap(body)
        uses = self.uses.get(operation.name, Uses())
        if cheap and load_count(body) == 0:
            return "inline", reasons.INLINE_CHEAP
        if may_raise(body) and not any(use.whole for use in uses.readers.values()):
            return "realise", reasons.REALISE_RAISES
        if uses.truncated or has_nested_reductions(operation):
            return "realise", reasons.REALISE_EXPENSIVE
        heavier = {p: self.weight[p] + size * use.count for p, use in uses.readers.items()}
        if max(heavier.values(), default=size) > self.limit:
            return "realise", reasons.REALISE_SIZE
        if self.matmuls.intersection(uses.readers):
            if not self._is_light(operation, uses):
                return "realise", reasons.REALISE_OPERAND
            self.weight.update(heavier)
            return "inline", reasons.INLINE_OPERAND
        if self.few_rows.intersection(uses.readers):
            if self._expands(operation, uses, _ROW_READS):
                return "realise", reasons.REALISE_OPERAND
            if self._is_light(operation, uses):
                self.weight.update(heavier)
                return "inline", reasons.INLINE_OPERAND
        hoisted = cheap or not self._is_computed_by_lanes(operation, uses)
        if uses.loop_invariant and len(uses.readers) == 1 and hoisted:
            self.weight.update(heavier)
            return "inline", reasons.INLINE_LOOP_INVARIANT
        single = uses.count <= 1 and (cheap or not self._expands(operation, uses))
        again = uses.count < MAX_READERS and (
            self.costs.duplicates(body, inner_load_count(operation))
            or (cheap and self._leaves_registers(operation, uses))
            or self._is_read_online(operation, uses)
        )
        if not single and not again:
            return "realise", reasons.REALISE_EXPENSIVE
        if uses.count > 1 and self._is_narrow(operation):
            return "realise", reasons.REALISE_NARROW
        self.weight.update(heavier)
        return "inline", reasons.INLINE_SINGLE if single else reasons.INLINE_CHEAP

    def _is_computed_by_lanes(self, operation: Pointwise, uses: Uses) -> bool:
        """Return True for a value of the graph's inputs on a GPU, where each element of a tile would compute it.

        The scale of a batch norm's channel is one, unless whole tiles are of one channel. Values of reductions are
        computed once a row, where it is reduced.
        """
        machine = self.context.machine(operation.results[0].type.device)
        if machine is None or not machine.is_gpu:
            return False
        return self.given.issuperset(operation.reads) and not all(
            self._is_uniform(self.graph.operations[position], use) for position, use in uses.readers.items()
        )

    @staticmethod
    def _is_uniform(reader: Operation, use: Use) -> bool:
        """Return True where all points of a tile of a pointwise kernel on a GPU need one element."""
        if not isinstance(reader, Pointwise):
            return False
        return use.run % (_TILE_BYTES // reader.results[0].type.dtype.itemsize) == 0

    def _has_few_rows(self, operation: Operation) -> bool:
        """Return True for a matmul of few rows with a large matrix."""
        if not isinstance(operation, Reduction) or operation.results[0].type.device != CPU:
            return False
        found = few_rows(operation.combiner, operation.bodies, operation.axes)
        if found is None:
            return False
        matrix = estimate(points((*found.columns, *operation.reduce_axes)), self.graph.symbols)
        return matrix >= _LARGE_MATRIX

    def _leaves_registers(self, operation: Pointwise, uses: Uses) -> bool:
        """Return True for a value of rows, or columns, that leave a GPU's registers between its readers, if computing
        it for each of them loads no more than a store and loads of it."""
        machine = self.context.machine(operation.results[0].type.device)
        readers = [self.graph.operations[position] for position in uses.readers]
        if machine is None or not machine.is_gpu or not any(map(self._reads_in_chunks, readers)):
            return False
        further = sum(len(set(operation.reads).difference(reader.reads)) for reader in readers)
        return further <= len(operation.reads) + 1 + len(readers)

    def _is_read_online(self, operation: Pointwise, uses: Uses) -> bool:
        """Return True for rows, or columns, that leave a GPU's registers, if a maximum and a sum alone read them whole.

        ``OnlineReductions`` merges both where the sum is of exponentials, so that one pass computes the value once for
        both; others compute few elements again.
        """
        machine = self.context.machine(operation.results[0].type.device)
        if machine is None or not machine.is_gpu:
            return False
        own, kinds = estimate(points(operation.axes), self.graph.symbols), []
        for position, use in uses.readers.items():
            reader = self.graph.operations[position]
            count = estimate(points(axes_of(reader)), self.graph.symbols) * use.count
            if _FEW_SHARE * count <= own:
                continue
            if not isinstance(reader, Reduction) or not self._reads_in_chunks(reader) or count != own:
                return False
            kinds.append(reader.combiner)
        return sorted(map(str, kinds)) == sorted(map(str, (NamedCombiner("max"), NamedCombiner("sum"))))

    def _reads_in_chunks(self, operation: Operation) -> bool:
        """Return True for a reduction over more elements than stay in registers."""
        if not isinstance(operation, Reduction):
            return False
        elements = estimate(points(operation.reduce_axes), self.graph.symbols)
        return self.costs.reads_in_chunks(elements, columns=reads_columns(operation, self.types))

    def _is_light(self, operation: Pointwise, uses: Uses) -> bool:
        """Return True for an operand that a matmul may compute for every tile that it reads.

        Its body is cheap, and it reads at most 5/4 of the bytes of the operand.
        """
        if len(uses.readers) > 1 or body_cost(*operation.bodies) > _OPERAND_COST:
            return False
        read = sum(self._read_for(name) for name in operation.reads)
        return _EXTRA_READ_SHARE * read <= (_EXTRA_READ_SHARE + 1) * self._bytes(operation.name)

    def _read_for(self, name: str) -> int:
        """Return the bytes that an operand reads for a value.

        Where the value would be inlined too, they are the bytes that it reads, if fewer: int4 weights are larger
        unpacked.
        """
        least, producer = self._bytes(name), self.producers.get(name)
        if producer is None or self.readers[name] > 1 or self._is_materialised(producer):
            return least
        if isinstance(producer, Pointwise) and body_cost(*producer.bodies) > _OPERAND_COST:
            return least
        return min(least, sum(self._read_for(source) for source in producer.reads))

    def _bytes(self, name: str) -> int:
        """Return the bytes of a value, symbolic sizes at their hints."""
        return estimate(type_bytes(self.types[name]), self.graph.symbols)

    def _expands(self, operation: Pointwise, uses: Uses, times: int = 1) -> bool:
        """Return True when a reader would compute the value more than so many times per element."""
        symbols = self.graph.symbols
        own = estimate(points(operation.axes), symbols)
        readers = (points(axes_of(self.graph.operations[position])) for position in uses.readers)
        limit = (own + own // _PADDED_SHARE) * times
        return own > 1 and any(estimate(count, symbols) > limit for count in readers)

    def _is_narrow(self, operation: Pointwise) -> bool:
        """Return True for a value of fewer bytes than the expensive one that it alone reads, which would be stored
        instead if each of its readers computed it.
        """
        source = self.producers.get(operation.reads[0]) if len(operation.reads) == 1 else None
        if (
            not isinstance(source, Pointwise)
            or self.readers[source.name] > 1
            or self._is_materialised(source)
        ):
            return False
        again = self.costs.duplicates(source.bodies[0], inner_load_count(source))
        return not again and self._bytes(operation.name) < self._bytes(source.name)

    def _in_time(self, name: str) -> bool:
        """Return True when every reader runs before a buffer that the value depends on is overwritten.

        The reader that overwrites the buffer may itself read the value at its own point.
        """
        deadline, uses = self.deadlines.get(name), self.uses.get(name)
        if deadline is None or uses is None or uses.last < deadline.position:
            return True
        if uses.last > deadline.position or uses.truncated:
            return False
        use = uses.readers.get(deadline.position)
        return deadline.aligned and use is not None and use.aligned

    def _note(self, value: Value, verdict: str, reason: Reason) -> None:
        self.context.decide(Decision("realise", value.name, verdict, reason, type_bytes(value.type)))
