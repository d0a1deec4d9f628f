"""Matching of the records of two trees, and those that differ by more than names."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from replay.canonical import Canonical, canonical


@dataclass(frozen=True)
class Emitted:
    """A kernel, plan or header of one tree. ``key`` is its graph, target and place in the plan."""

    key: str
    name: str
    language: str
    text: str
    facts: tuple[str, ...] = ()

    @cached_property
    def form(self) -> Canonical:
        """Return the canonical form of the text."""
        return canonical(self.text, self.language, self.name)

    @property
    def plan(self) -> str:
        """Return the key of the graph and target."""
        return self.key.rpartition(" record ")[0]

    @property
    def graph(self) -> str:
        """Return the key of the graph; empty for a header."""
        return "" if self.key.startswith("header ") else self.plan.rpartition(" ")[0]

    def content(self, mapping: Mapping[str, str]) -> tuple[object, ...]:
        """Return everything that has to be equal, with used names renamed."""
        return (self.language, self.facts, self.form.renamed(mapping))

    def raw(self) -> str:
        """Return the facts and the text unchanged, for display."""
        return "".join(f"{fact}\n" for fact in self.facts) + self.text


@dataclass(frozen=True, slots=True)
class Comparison:
    """Differences between the records of two trees.

    ``renamed`` maps names that kernels use to those of the other tree, the same in all kernels; ``moved`` counts
    records that are the same under another key.
    """

    same: int = 0
    moved: int = 0
    different: tuple[tuple[Emitted, Emitted], ...] = ()
    gone: tuple[Emitted, ...] = ()
    new: tuple[Emitted, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)

    def keys(self) -> list[str]:
        """Return the keys of all records that differ."""
        return [each.key for each in (*(after for _, after in self.different), *self.gone, *self.new)]


def compared(before: Mapping[str, Emitted], after: Mapping[str, Emitted]) -> Comparison:
    """Match records by key, then by content within a plan, then by content anywhere."""
    both = [(before[key], after[key]) for key in before if key in after]
    mapping = renamings(both)
    unequal = [pair for pair in both if not _same(*pair, mapping)]
    left = {each.key: each for each, _ in unequal} | {k: e for k, e in before.items() if k not in after}
    right = {each.key: each for _, each in unequal} | {k: e for k, e in after.items() if k not in before}
    moved = 0
    for within_plan in (True, False):
        moved += _take_equal(left, right, mapping, within_plan)
    different = [(left.pop(key), right.pop(key)) for key in list(left) if key in right]
    return Comparison(
        same=len(both) - len(unequal),
        moved=moved,
        different=tuple(different),
        gone=tuple(left.values()),
        new=tuple(right.values()),
        renamed=mapping,
    )


def _same(old: Emitted, new: Emitted, mapping: Mapping[str, str]) -> bool:
    if (old.language, old.facts) != (new.language, new.facts):
        return False
    identical = old.text == new.text and (old.language == "plan" or old.name == new.name)
    if identical and not (mapping and old.language == "c++"):
        return True
    return old.content(mapping) == new.content({})


def _take_equal(
    left: dict[str, Emitted], right: dict[str, Emitted], mapping: Mapping[str, str], within_plan: bool
) -> int:
    """Remove records of equal content from both sides; return how many pairs there were."""
    places: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for key, each in right.items():
        places[(each.plan if within_plan else "", *each.content({}))].append(key)
    found = 0
    for key, each in list(left.items()):
        equal = places.get((each.plan if within_plan else "", *each.content(mapping)))
        if equal:
            del left[key], right[equal.pop(0)]
            found += 1
    return found


def renamings(pairs: Iterable[tuple[Emitted, Emitted]]) -> dict[str, str]:
    """Return the new names of functions and types that headers declare and C++ kernels use.

    Headers declare the new name where they declared the old one, which they have no more, and every kernel uses it in
    place of the old one. A name for which that does not hold is not renamed, but differs.
    """
    pairs = [(old, new) for old, new in pairs if old.language == new.language == "c++"]
    headers = [(old, new) for old, new in pairs if not old.graph]
    names = _renamed_in_headers(headers)
    for old, new in pairs:
        if old.text == new.text:
            words = {old.form.tokens[place] for place in old.form.used} if _mentions(old, names) else set()
            names = {one: other for one, other in names.items() if one not in words}
        else:
            used = _used_pairs(old.form, new.form)
            names = {one: other for one, other in names.items() if used.get(one, {other}) == {other}}
    return names


def _renamed_in_headers(headers: Sequence[tuple[Emitted, Emitted]]) -> dict[str, str]:
    """Pair the words of headers that have new ones in their places, the same everywhere."""
    before, after = (set().union(*(pair[side].form.words for pair in headers)) for side in (0, 1))
    found: dict[str, set[str]] = defaultdict(set)
    for old, new in headers:
        if old.text != new.text and len(old.form.words) == len(new.form.words):
            for one, other in zip(old.form.words, new.form.words):
                if one != other:
                    found[one].add(other)
    single = {one: next(iter(others)) for one, others in found.items() if len(others) == 1}
    targets = Counter(single.values())
    return {
        one: other
        for one, other in single.items()
        if one not in after and other not in before and targets[other] == 1 and one.isidentifier()
    }


def _mentions(each: Emitted, names: Iterable[str]) -> bool:
    return any(name in each.text for name in names)


def _used_pairs(old: Canonical, new: Canonical) -> dict[str, set[str]]:
    """Return the other text's names for each used name of a text; empty where the texts differ by more than names."""
    found: dict[str, set[str]] = defaultdict(set)
    if old.used == new.used and len(old.tokens) == len(new.tokens):
        for place in old.used:
            found[old.tokens[place]].add(new.tokens[place])
    return found
