"""Records of two trees matched, and those that differ by more than names."""

from __future__ import annotations

import re
from collections import defaultdict
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
        """The canonical form of the text."""
        return canonical(self.text, self.language, self.name)

    @property
    def plan(self) -> str:
        """The key of the graph and target that it belongs to."""
        return self.key.rpartition(" record ")[0]

    def content(self, mapping: Mapping[str, str]) -> tuple[object, ...]:
        """All that has to be equal, with used names renamed."""
        return (self.language, self.facts, self.form.renamed(mapping))

    def raw(self) -> str:
        """The facts and the text as they are, for people."""
        return "".join(f"{fact}\n" for fact in self.facts) + self.text


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the records of two trees stand to one another.

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
        """The keys of all that is not the same."""
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
    """Return the renamed ones of the names that C++ kernels use and headers declare.

    Each is renamed the same way wherever it is used, and no two get one name; what is not is no renaming.
    """
    pairs = [(old, new) for old, new in pairs if old.language == new.language == "c++"]
    declared = [_words(side) for side in zip(*((o, n) for o, n in pairs if o.key.startswith("header ")))]
    if not declared:
        return {}
    votes: dict[str, set[str]] = defaultdict(set)
    for old, new in pairs:
        if old.text != new.text:
            for one, other in _used_pairs(old.form, new.form):
                votes[one].add(other)
    names = {
        one: next(iter(others))
        for one, others in votes.items()
        if len(others) == 1 and one not in others and one in declared[0] and others <= declared[1]
    }
    for old, new in pairs:
        if old.text == new.text:
            words = {old.form.tokens[place] for place in old.form.used} if _mentions(old, names) else set()
            names = {one: other for one, other in names.items() if one not in words}
    targets = list(names.values())
    return {one: other for one, other in names.items() if targets.count(other) == 1}


def _words(headers: Sequence[Emitted]) -> set[str]:
    return {word for each in headers for word in re.findall(r"[A-Za-z_]\w*", each.text)}


def _mentions(each: Emitted, names: Iterable[str]) -> bool:
    return any(name in each.text for name in names)


def _used_pairs(old: Canonical, new: Canonical) -> list[tuple[str, str]]:
    """Pair the used names of two texts that are alike but for them."""
    if old.used != new.used or len(old.tokens) != len(new.tokens):
        return []
    return [(old.tokens[place], new.tokens[place]) for place in old.used]
