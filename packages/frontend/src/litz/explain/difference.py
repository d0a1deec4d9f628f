"""Differences of two explanations: kernels, calls, bytes, memory, times and decisions, as data and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from litz.explain.document import FORMAT, VERSION
from litz.explain.explanation import Explanation
from litz_ir.errors import ConfigError

Document = Mapping[str, Any]
"""A document that :meth:`litz.Explanation.to_json` returned."""

_NOISE = 0.05
"""Part by which times may differ without being named: repeated measurements differ as much."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A number of the first explanation, and that of the second."""

    first: float
    """Number of the first."""

    second: float
    """Number of the second."""

    @property
    def ratio(self) -> float | None:
        """The second number as a multiple of the first; ``None`` where the first is 0."""
        return self.second / self.first if self.first else None


@dataclass(frozen=True, slots=True)
class KernelDifference:
    """A kernel that fuses other operations, moves other bytes or takes another time in the second explanation."""

    operations: tuple[str, ...]
    """Operations that it fuses in both."""

    lost: tuple[str, ...]
    """Operations that it fuses in the first alone."""

    gained: tuple[str, ...]
    """Operations that it fuses in the second alone."""

    nbytes: Pair
    """Bytes that a launch moves."""

    seconds: Pair | None
    """Times of a launch, in seconds; ``None`` where one was not measured."""


@dataclass(frozen=True, slots=True)
class DecisionDifference:
    """A decision that one explanation alone has."""

    stage: str
    """Pass or stage that decided."""

    about: str
    """The value or the groups that it is about."""

    verdict: str
    """The choice."""

    sentence: str
    """The reason."""

    def __str__(self) -> str:
        return f"{self.stage}: {self.verdict} {self.about}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class GraphDifference:
    """Differences of two graphs of one kind; false if there are none that count."""

    name: str
    """Kind of the graphs and number among those of this kind, such as ``forward 0``."""

    changed: tuple[KernelDifference, ...]
    """Kernels that have operations in common and differ."""

    removed: tuple[tuple[str, ...], ...]
    """Operations of each kernel of the first graph alone."""

    added: tuple[tuple[str, ...], ...]
    """Operations of each kernel of the second graph alone."""

    removed_calls: tuple[str, ...]
    """Targets of library calls of the first graph alone."""

    added_calls: tuple[str, ...]
    """Targets of library calls of the second graph alone."""

    removed_decisions: tuple[DecisionDifference, ...]
    """Decisions of the first graph alone."""

    added_decisions: tuple[DecisionDifference, ...]
    """Decisions of the second graph alone."""

    launches: Pair
    """Numbers of kernel launches."""

    nbytes: Pair
    """Bytes that all kernels and calls move."""

    peak: Pair
    """Modelled peaks of memory, in bytes."""

    seconds: Pair | None
    """Times of all kernels and calls, in seconds; ``None`` where one was not measured."""

    compile_seconds: Pair
    """Times of the compilations, in seconds, which depend on the caches and do not count."""

    def __bool__(self) -> bool:
        """Report whether anything differs besides the time of the compilation, and times within the noise."""
        lists = (self.changed, self.removed, self.added, self.removed_calls, self.added_calls)
        decisions = (self.removed_decisions, self.added_decisions)
        numbers = (self.launches, self.nbytes, self.peak)
        return (
            any(lists) or any(decisions) or any(each.first != each.second for each in numbers)
            or _differ(self.seconds)
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Difference:
    """Differences of two explanations; false if there are none that count."""

    graphs: tuple[GraphDifference, ...]
    """Graphs of both, in order; those without differences too."""

    removed: tuple[str, ...]
    """Kind of each graph of the first explanation that has no counterpart."""

    added: tuple[str, ...]
    """Kind of each graph of the second explanation that has no counterpart."""

    breaks: Pair
    """Numbers of graph breaks."""

    recompiles: Pair
    """Numbers of recompilations."""

    def __bool__(self) -> bool:
        counts = (self.breaks, self.recompiles)
        return (
            any(self.graphs) or bool(self.removed or self.added)
            or any(each.first != each.second for each in counts)
        )  # fmt: skip

    def __str__(self) -> str:
        return self.describe()

    def describe(self) -> str:
        """Return the differences as text, with ``-`` before what the first has alone and ``+`` before what the second
        has; a sentence if there are none.
        """
        return "\n".join(_lines(self)) or "the explanations do not differ"


def diff(first: Explanation | Document, second: Explanation | Document) -> Difference:
    """Return the differences of two explanations, or documents of them; raise ``ConfigError`` for other documents."""
    before, after = _document(first), _document(second)
    graphs: list[GraphDifference] = []
    removed: list[str] = []
    added: list[str] = []
    own, other = _by_kind(before), _by_kind(after)
    for kind in dict.fromkeys((*own, *other)):
        for number, (a, b) in enumerate(zip_longest(own.get(kind, ()), other.get(kind, ()))):
            if a is None or b is None:
                (added if a is None else removed).append(kind)
            else:
                graphs.append(_graph(f"{kind} {number}", a, b))
    counts = (_both(before, after, _break_count), _both(before, after, _recompile_count))
    return Difference(tuple(graphs), tuple(removed), tuple(added), *counts)


def _document(given: Explanation | Document) -> Document:
    """Return the document of an explanation; check one that is given as such."""
    if isinstance(given, Explanation):
        return given.to_json()
    if not isinstance(given, Mapping) or (given.get("format"), given.get("version")) != (FORMAT, VERSION):
        raise ConfigError(
            f"this is no document of an explanation, version {VERSION}", hint="give what to_json() returned"
        )
    return given


def _by_kind(document: Document) -> dict[str, list[Document]]:
    """Return the graphs by kind, in order."""
    found: dict[str, list[Document]] = {}
    for graph in document["graphs"]:
        found.setdefault(graph["kind"], []).append(graph)
    return found


def _graph(name: str, a: Document, b: Document) -> GraphDifference:
    """Return the differences of two graphs."""
    changed, removed, added = _kernels(a["kernels"], b["kernels"])
    calls = [Counter(call["target"] for call in graph["calls"]) for graph in (a, b)]
    decisions = [Counter(_decision(each, graph) for each in graph["decisions"]) for graph in (a, b)]
    return GraphDifference(
        name=name,
        changed=tuple(changed),
        removed=tuple(removed),
        added=tuple(added),
        removed_calls=tuple((calls[0] - calls[1]).elements()),
        added_calls=tuple((calls[1] - calls[0]).elements()),
        removed_decisions=tuple((decisions[0] - decisions[1]).elements()),
        added_decisions=tuple((decisions[1] - decisions[0]).elements()),
        launches=_both(a, b, lambda graph: len(graph["kernels"])),
        nbytes=_both(a, b, lambda graph: sum(each["bytes"] for each in _work(graph))),
        peak=_both(a, b, lambda graph: graph["peak_bytes"]),
        seconds=_times(a, b),
        compile_seconds=_both(a, b, lambda graph: sum(graph["seconds"].values())),
    )


def _kernels(
    first: Sequence[Document], second: Sequence[Document]
) -> tuple[list[KernelDifference], list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Match kernels: those of equal operations first, then those with most operations in common.

    Returns the pairs that differ, and the operations of the others.
    """
    pairs: list[tuple[Document, Document]] = []
    left, right = list(first), list(second)
    for kernel in first:
        equal = next((each for each in right if each["operations"] == kernel["operations"]), None)
        if equal is not None:
            pairs.append((kernel, equal))
            right = [each for each in right if each is not equal]
            left = [each for each in left if each is not kernel]
    rest = []
    for kernel in left:
        own = set(kernel["operations"])
        best = max(right, key=lambda each: len(own.intersection(each["operations"])), default=None)
        if best is None or own.isdisjoint(best["operations"]):
            rest.append(tuple(kernel["operations"]))
            continue
        pairs.append((kernel, best))
        right = [each for each in right if each is not best]
    found = [each for each in (_kernel(a, b) for a, b in pairs) if each is not None]
    return found, rest, [tuple(kernel["operations"]) for kernel in right]


def _kernel(a: Document, b: Document) -> KernelDifference | None:
    """Return the difference of two kernels; ``None`` where nothing that counts differs."""
    before, after = a["operations"], b["operations"]
    seconds = None
    if a["seconds"] is not None and b["seconds"] is not None:
        seconds = Pair(a["seconds"], b["seconds"])
    if before == after and a["bytes"] == b["bytes"] and not _differ(seconds):
        return None
    return KernelDifference(
        tuple(each for each in before if each in after),
        tuple(each for each in before if each not in after),
        tuple(each for each in after if each not in before),
        Pair(a["bytes"], b["bytes"]),
        seconds,
    )


def _decision(document: Document, graph: Document) -> DecisionDifference:
    """Return a decision without its bytes, which are those of the kernels; one about the graph names its kind."""
    about = graph["kind"] if document["about"] == graph["name"] else document["about"]
    return DecisionDifference(document["stage"], about, document["verdict"], document["sentence"])


def _work(graph: Document) -> list[Document]:
    """Return the kernels and calls of a graph."""
    return [*graph["kernels"], *graph["calls"]]


def _times(a: Document, b: Document) -> Pair | None:
    """Return the times of all kernels and calls of two graphs; ``None`` where one was not measured."""
    sums = []
    for graph in (a, b):
        times = [each["seconds"] for each in _work(graph)]
        if None in times:
            return None
        sums.append(sum(times))
    return Pair(*sums)


def _both(a: Document, b: Document, number: Callable[[Document], float]) -> Pair:
    """Return a number of each of two documents."""
    return Pair(number(a), number(b))


def _break_count(document: Document) -> int:
    return sum(each["count"] for each in document["breaks"])


def _recompile_count(document: Document) -> int:
    return sum(bool(each["recompile_reason"]) for each in document["frames"])


def _differ(seconds: Pair | None) -> bool:
    """Report whether two times differ by more than the noise of measurements."""
    return seconds is not None and abs(seconds.second - seconds.first) > _NOISE * max(
        seconds.first, seconds.second
    )


def _lines(difference: Difference) -> Iterator[str]:
    """Yield the lines of the text."""
    yield from (f"- graph: {kind}" for kind in difference.removed)
    yield from (f"+ graph: {kind}" for kind in difference.added)
    for title, pair in (("graph breaks", difference.breaks), ("recompilations", difference.recompiles)):
        yield from _changed(title, pair, "")
    for graph in difference.graphs:
        if graph:
            yield f"graph {graph.name}:"
            yield from (f"  {line}" for line in _graph_lines(graph))


def _graph_lines(graph: GraphDifference) -> Iterator[str]:
    """Yield the lines of one graph."""
    yield from _changed("launches", graph.launches, "")
    yield from _changed("moves", graph.nbytes, " B")
    yield from _changed("memory peak", graph.peak, " B")
    if graph.seconds is not None and _differ(graph.seconds):
        yield from _changed("kernels and calls take", _micro(graph.seconds), " us")
    for sign, kernels, calls, decisions in (
        ("-", graph.removed, graph.removed_calls, graph.removed_decisions),
        ("+", graph.added, graph.added_calls, graph.added_decisions),
    ):
        yield from (f"{sign} kernel of {_names(operations)}" for operations in kernels)
        yield from (
            f"{sign} call of {target}{_times_text(count)}" for target, count in Counter(calls).items()
        )
        yield from (f"{sign} {decision}" for decision in decisions)
    for kernel in graph.changed:
        yield f"kernel of {_names(kernel.operations)}:"
        yield from (f"  - {operation}" for operation in kernel.lost)
        yield from (f"  + {operation}" for operation in kernel.gained)
        for line in _changed("moves", kernel.nbytes, " B"):
            yield f"  {line}"
        if kernel.seconds is not None and _differ(kernel.seconds):
            for line in _changed("takes", _micro(kernel.seconds), " us"):
                yield f"  {line}"


def _changed(title: str, pair: Pair, unit: str) -> Iterator[str]:
    """Yield a line about two numbers that differ."""
    if pair.first != pair.second:
        ratio = "" if pair.ratio is None else f" ({pair.ratio:.2f} times)"
        yield f"{title}: {pair.first:,}{unit} -> {pair.second:,}{unit}{ratio}"


def _micro(pair: Pair) -> Pair:
    """Return two times in microseconds, to a tenth."""
    return Pair(round(pair.first * 1e6, 1), round(pair.second * 1e6, 1))


def _names(operations: Iterable[str]) -> str:
    return ", ".join(operations)


def _times_text(count: int) -> str:
    return "" if count == 1 else f", {count} times"
