"""The parts of a graph's key as text and digests, kept with its entry, and what differs between two keys.

A key is one digest. Its parts say why a graph was not found: which of them differs from those of the nearest entry.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.fx import GraphModule

from litz.cache.key import OPTIONS, inputs_of, operations_of, option_facts, versions
from litz.reports.repro import source_lines
from litz.settings import Config

_LONGEST = 2000
"""Characters of a part that are kept; its digest covers all."""

_SHOWN = 6
"""Most words that the description of a difference has of each key."""

CODE = "code"
"""Name of the part that is the graph itself."""


@dataclass(frozen=True, slots=True)
class KeyParts:
    """The parts of one graph's key."""

    graph: str
    """Name of the graph, and the user's first line."""

    digests: Mapping[str, tuple[str, str]]
    """Digest and beginning of each part, by name: ``versions``, ``chip``, ``registered``, ``options``, ``scheduler``,
    ``settings``, ``inputs``, ``code``."""

    def data(self) -> bytes:
        """Return the parts as JSON."""
        return json.dumps({"graph": self.graph, "digests": self.digests}).encode()

    @staticmethod
    def of(text: bytes) -> KeyParts:
        """Return the parts in JSON; raise ``ValueError``, ``KeyError`` or ``TypeError`` for other text."""
        data = json.loads(text)
        parts = {str(name): (str(digest), str(text)) for name, (digest, text) in data["digests"].items()}
        return KeyParts(str(data["graph"]), parts)


@dataclass(frozen=True, slots=True)
class Miss:
    """The reason that a graph was not found in the cache."""

    key: str
    """Key of the graph."""

    graph: str
    """Its name, and the user's first line."""

    nearest: str = ""
    """Key of the entry with the most equal parts; empty without another entry."""

    differences: tuple[tuple[str, str, str], ...] = ()
    """Name of each part that differs, with the words of the graph's part that the entry's lacks, and the reverse."""

    def __str__(self) -> str:
        return f"{self.graph} ({self.key[:12]}): {self.reason}"

    @property
    def reason(self) -> str:
        """The nearest entry, and a line for each part that differs."""
        if not self.nearest:
            return "the cache has no other graph"
        lines = [f"the nearest entry is {self.nearest[:12]}"]
        for name, own, other in self.differences:
            lines.append(f"  {name}: {own or 'nothing'}, in the entry {other or 'nothing'}")
        return "\n".join(lines)


def key_parts(
    gm: GraphModule, name: str, config: Config, facts: Mapping[str, Iterable[str]], positions: Sequence[str]
) -> KeyParts:
    """Return the parts of a graph's key; ``facts`` and ``positions`` are those that the key was made of, the facts by
    name."""
    texts = {
        "versions": f"torch {torch.__version__} {' '.join(versions())}",
        **{each: " ".join(values) for each, values in facts.items()},
        "options": " ".join(f"{option}={value}" for option, value in zip(OPTIONS, option_facts(config))),
        "settings": f"deterministic={torch.are_deterministic_algorithms_enabled()}",
        "inputs": " ".join([*inputs_of(gm), *positions]),
        CODE: " ".join(operations_of(gm)),
    }
    lines = source_lines(gm)
    return KeyParts(
        f"{name} {lines[0] if lines else ''}".strip(),
        {each: (_digest(text), text[:_LONGEST]) for each, text in texts.items()},
    )


def nearest_miss(key: str, own: KeyParts, others: Iterable[tuple[str, KeyParts]]) -> Miss:
    """Return the reason that a graph was not found: the entry of ``others`` with the most equal parts, of which the
    code counts most, and the parts that differ."""
    best: tuple[int, str, KeyParts] | None = None
    for each, parts in others:
        if each == key:
            continue
        equal = [name for name, part in own.digests.items() if parts.digests.get(name, ("",))[0] == part[0]]
        score = len(equal) + (len(own.digests) if CODE in equal else 0)
        if best is None or score > best[0]:
            best = score, each, parts
    if best is None:
        return Miss(key, own.graph)
    return Miss(key, own.graph, best[1], tuple(_differences(own, best[2])))


def _differences(own: KeyParts, other: KeyParts) -> Iterator[tuple[str, str, str]]:
    """Yield the parts that differ, with the words that are in one of them alone."""
    for name, (digest, text) in own.digests.items():
        theirs, known = other.digests.get(name, ("", ""))
        if digest != theirs:
            words, others = text.split(), known.split()
            fresh = [word for word in words if word not in set(others)]
            lost = [word for word in others if word not in set(words)]
            unlisted = "" if fresh or lost else f"differs in order, or after {_LONGEST} characters"
            yield name, unlisted or _abbreviated(fresh), "" if unlisted else _abbreviated(lost)
    if {name: each[0] for name, each in own.digests.items()} == {
        n: each[0] for n, each in other.digests.items()
    }:
        yield "values", "constants, or metadata of results, which no text shows", ""


def _abbreviated(words: Sequence[str]) -> str:
    """Return the first words of a difference."""
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return " ".join(words[:_SHOWN]) + more


def _digest(text: str) -> str:
    """Return a short digest of a part."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
