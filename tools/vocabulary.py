"""Refuse the words that the glossary retired, and docstrings that open with a question word.

The words stand in `vocabulary.toml`, each with the term that replaces it. Read are the names that Python sources and
C++ headers define, docstrings, string literals, comments, and Markdown pages; names of other projects are left alone.
`--summary` counts by word and package. `--names FOLDER` lists the definitions to be renamed.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WORDS = Path(__file__).with_name("vocabulary.toml")
SKIPPED = {".git", ".nox", ".venv", ".mypy_cache", ".pytest_cache", "build", "dist"}
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
GAP = re.compile(r"[\s_\-]*")
LINK = re.compile(r"\]\([^)\s]*\)|<?https?://[^\s)>]*")
CODE = re.compile(r"`[^`\n]*`")
DOTTED = re.compile(r"[\w.]*\w")
CPP_TEXT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:[^\"\\\n]|\\.)*\"", re.DOTALL)
CPP_NAME = re.compile(r"(?:\w+::)*[A-Za-z_]\w*")
SINGLE = re.compile(r"[\w./\-]*\w")
QUESTION = re.compile(r"(What|Which|Who|Whose|Where|When|How|Whether|Why)\b")
PROSE = ("docstring", "message", "comment", "page")
"""The kinds of text; every other kind is a name that the repository defines, or a `string` without spaces."""


@dataclass(frozen=True)
class Rule:
    """A retired word in its forms (a phrase has spaces), and the term to use.

    `names`: only these whole names are refused, leading underscores aside. `kinds`: only definitions and texts of these
    kinds. `files` and `without`: globs of the files that are read or passed over. `allow`: phrases that hold the word
    and stay.
    """

    words: tuple[str, ...]
    say: str
    identifiers: bool = True
    prose: bool = True
    names: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    files: tuple[str, ...] = ("*",)
    without: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Rule:
        """Read a table of the data file, whose keys are the fields."""
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in row.items()
        }
        return cls(**fields)

    def applies(self, path: str) -> bool:
        """Report whether the rule holds in a file."""
        return any(fnmatch(path, each) for each in self.files) and not any(
            fnmatch(path, each) for each in self.without
        )

    def concerns(self, kind: str, text: str) -> bool:
        """Report whether the rule holds for a text or name of this kind."""
        if self.kinds and kind not in self.kinds:
            return False
        if kind in PROSE:
            return self.prose
        return self.identifiers and (not self.names or bare(text) in self.names)


@dataclass(frozen=True)
class Vocabulary:
    """Rules, and what they never concern: dotted `prefixes`, whole `foreign` names, and `skipped` files."""

    rules: tuple[Rule, ...]
    prefixes: tuple[str, ...] = ()
    foreign: frozenset[str] = frozenset()
    skipped: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path = WORDS) -> Vocabulary:
        """Read the data file."""
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        rules = tuple(Rule.read(row) for row in data["word"])
        others = data.get("other", {})
        return cls(
            rules,
            tuple(others.get("prefixes", ())),
            frozenset(others.get("names", ())),
            tuple(others.get("files", ())),
        )

    def is_foreign(self, name: str) -> bool:
        """Report whether a name, perhaps dotted, comes from another project."""
        return name.startswith(self.prefixes) or bare(name) in self.foreign

    def masked(self, text: str) -> str:
        """Return a text with other projects' names replaced by spaces of the same length."""
        return DOTTED.sub(lambda m: " " * len(m[0]) if self.is_foreign(m[0]) else m[0], text)


@dataclass(frozen=True, order=True)
class Finding:
    """A retired word, or a question word, in a definition or a text; `head` is the word's first form."""

    path: str
    line: int
    kind: str
    name: str
    word: str
    say: str
    head: str

    def __str__(self) -> str:
        about = f" {self.name}" if self.name else ""
        return f"{self.path}:{self.line}: {self.kind}{about}: {self.word!r}: say {self.say}"


@dataclass(frozen=True)
class Text:
    """A name (`name` is qualified then) or a piece of prose, where it begins in its file."""

    line: int
    kind: str
    text: str
    name: str = ""


def bare(name: str) -> str:
    """Return a name without qualification and leading underscores."""
    return name.rpartition(".")[2].lstrip("_")


class Matcher:
    """Finds the words of rules in a text, by a table of their first words."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._refused: dict[str, list[tuple[tuple[str, ...], Rule]]] = {}
        self._allowed: dict[str, list[tuple[tuple[str, ...], Rule]]] = {}
        for rule in rules:
            for table, phrases in ((self._refused, rule.words), (self._allowed, rule.allow)):
                for phrase in phrases:
                    first, *rest = phrase.split()
                    table.setdefault(first, []).append(((first, *rest), rule))

    def occurrences(self, kind: str, text: str) -> Iterator[tuple[int, str, Rule]]:
        """Yield the position and the spelling of each refused word that no allowed phrase covers."""
        tokens = list(WORD.finditer(text))
        allowed = list(_spans(self._allowed, text, tokens))
        for start, end, rule in _spans(self._refused, text, tokens):
            covered = any(other is rule and a < end and start < b for a, b, other in allowed)
            if not covered and rule.concerns(kind, text):
                yield start, text[start:end], rule


def _spans(
    table: Mapping[str, Sequence[tuple[tuple[str, ...], Rule]]], text: str, tokens: Sequence[re.Match[str]]
) -> Iterator[tuple[int, int, Rule]]:
    """Yield where a phrase stands whose words are divided by no more than spaces, hyphens or underscores."""
    words = [token[0].lower() for token in tokens]
    for k, word in enumerate(words):
        for phrase, rule in table.get(word, ()):
            found = tokens[k : k + len(phrase)]
            if tuple(words[k : k + len(phrase)]) == phrase and all(
                GAP.fullmatch(text, a.end(), b.start()) for a, b in pairwise(found)
            ):
                yield found[0].start(), found[-1].end(), rule


class Definitions(ast.NodeVisitor):
    """Collects the names that a module defines, each once per scope, by kind."""

    def __init__(self) -> None:
        self.found: list[Text] = []
        self._scope: list[tuple[str, str]] = []
        self._known: set[tuple[str, str]] = set()

    def add(self, node: ast.AST, kind: str, name: str) -> None:
        """Note a definition, unless its scope has it already."""
        owners = [owner for owner, _ in self._scope]
        if name.startswith("self."):  # a field of the class around the method
            owners, name = owners[:-1], name.removeprefix("self.")
        qualified = ".".join((*owners, name))
        if (kind, qualified) not in self._known:
            self._known.add((kind, qualified))
            self.found.append(Text(getattr(node, "lineno", 1), kind, name, qualified))

    @property
    def _around(self) -> str:
        return self._scope[-1][1] if self._scope else "module"

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.add(node, "class", node.name)
        self._inside(node, "class")

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.add(node, "method" if self._around == "class" else "function", node.name)
        self._inside(node, "function")

    visit_AsyncFunctionDef = visit_FunctionDef

    def _inside(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, kind: str) -> None:
        self._scope.append((node.name, kind))
        self.generic_visit(node)
        self._scope.pop()

    def visit_arg(self, node: ast.arg) -> None:
        self.add(node, "parameter", node.arg)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            kinds = {"module": "constant", "class": "field", "function": "variable"}
            self.add(node, kinds[self._around], node.id)

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name is not None:
            self.add(node, "variable", node.name)
        elif isinstance(node, ast.alias) and node.asname is not None:
            self.add(node, "variable", node.asname)
        super().generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id == "self":
            self.add(node, "field", f"self.{node.attr}")
        self.generic_visit(node)


def docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield the docstrings of a module, its classes, functions, fields and constants."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        opens = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for before, each in zip([None, *body], body):
            documents = opens if before is None else isinstance(before, ast.Assign | ast.AnnAssign)
            value = each.value if isinstance(each, ast.Expr) else None
            if documents and isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value


def python_texts(source: str) -> Iterator[Text]:
    """Yield what a Python source defines and says."""
    tree = ast.parse(source)
    definitions = Definitions()
    definitions.visit(tree)
    yield from definitions.found
    documents = {id(node): node for node in docstrings(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            word = SINGLE.fullmatch(node.value)
            kind = "docstring" if id(node) in documents else "string" if word else "message"
            yield Text(node.lineno, kind, node.value, node.value if kind == "string" else "")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(token.start[0], "comment", token.string)


def header_texts(source: str) -> Iterator[Text]:
    """Yield each identifier of a C++ header once, its comments and its strings."""
    known: set[str] = set()
    for match in CPP_TEXT.finditer(source):
        kind = "message" if match[0].startswith('"') else "comment"
        yield Text(source.count("\n", 0, match.start()) + 1, kind, match[0])
    code = CPP_TEXT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), source)
    for match in CPP_NAME.finditer(code):
        if match[0] not in known:
            known.add(match[0])
            yield Text(code.count("\n", 0, match.start()) + 1, "c++ name", match[0], match[0])


def page_texts(source: str, without_code: bool) -> Iterator[Text]:
    """Yield a page, its link targets blanked; inline code too where it may name what was renamed."""
    for pattern in (LINK, *([CODE] if without_code else [])):
        source = pattern.sub(lambda m: " " * len(m[0]), source)
    yield Text(1, "page", source)


def path_texts(path: str, known: set[str]) -> Iterator[Text]:
    """Yield the names of a file and of the folders that it lies in, those not yet `known`."""
    parts = Path(path).with_suffix("").parts
    for k, part in enumerate(parts, 1):
        name = "/".join(parts[:k])
        if name not in known:
            known.add(name)
            yield Text(1, "module" if k == len(parts) else "folder", part, name)


def texts_of(path: str, source: str) -> Iterator[Text]:
    """Yield what a file of any kind defines and says."""
    if path.endswith(".py"):
        yield from python_texts(source)
    elif path.endswith(".h"):
        yield from header_texts(source)
    else:
        yield from page_texts(source, without_code=path.endswith("CHANGELOG.md"))


def check(path: str, texts: Iterable[Text], vocabulary: Vocabulary) -> Iterator[Finding]:
    """Yield what the vocabulary refuses of the texts of a file."""
    matcher = Matcher(rule for rule in vocabulary.rules if rule.applies(path))
    for each in texts:
        opening = QUESTION.match(each.text.lstrip()) if each.kind == "docstring" else None
        if opening:
            say = "what it is or does: a noun or a verb comes first"
            yield Finding(path, each.line, each.kind, "", opening[0], say, opening[0].lower())
        if each.kind not in PROSE and vocabulary.is_foreign(each.text):
            continue
        text = vocabulary.masked(each.text)
        for position, word, rule in matcher.occurrences(each.kind, text):
            line = each.line + text.count("\n", 0, position)
            yield Finding(path, line, each.kind, each.name, " ".join(word.split()), rule.say, rule.words[0])


def files_in(root: Path) -> Iterator[str]:
    """Yield the sources, headers and pages of the repository, in order."""
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if path.suffix in (".py", ".h", ".md") and SKIPPED.isdisjoint(relative.parts) and path.is_file():
            yield relative.as_posix()


def findings_in(root: Path, vocabulary: Vocabulary) -> list[Finding]:
    """Return everything that the vocabulary refuses below a folder."""
    found: list[Finding] = []
    known: set[str] = set()
    for path in files_in(root):
        if not any(fnmatch(path, each) for each in vocabulary.skipped):
            source = (root / path).read_text(encoding="utf-8")
            found += check(path, [*path_texts(path, known), *texts_of(path, source)], vocabulary)
    return sorted(found)


def package_of(path: str) -> str:
    """Return the package that a file belongs to, else its top folder; `.` for files in none."""
    parts = Path(path).parts
    return parts[1] if parts[0] == "packages" else parts[0] if len(parts) > 1 else "."


def summary(findings: Sequence[Finding]) -> str:
    """Return the number of findings by word and package, the most frequent word first."""
    counts = Counter((each.head, package_of(each.path)) for each in findings)
    totals = Counter(each.head for each in findings)
    packages = sorted({package for _, package in counts})
    words = [word for word, _ in totals.most_common()]
    rows = [("word", [*packages, "all"])]
    for word in words:
        row = [counts[word, each] for each in packages]
        rows.append((word, [str(each) if each else "" for each in (*row, sum(row))]))
    total = [sum(counts[word, each] for word in words) for each in packages]
    rows.append(("all", [str(each) for each in (*total, sum(total))]))
    width = max(len(word) for word, _ in rows)
    cells = [f"{word:{width}}" + "".join(f"{each:>15}" for each in row) for word, row in rows]
    return "\n".join(cells)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print every finding; exit code 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--summary", action="store_true", help="print counts by word and package instead")
    parser.add_argument(
        "--names", metavar="FOLDER", help="list the definitions below FOLDER to be renamed instead"
    )
    given = parser.parse_args(arguments)
    findings = findings_in(ROOT, Vocabulary.read())
    if given.names is not None:
        folder = (Path.cwd() / given.names).resolve()
        inside = [each for each in findings if (ROOT / each.path).is_relative_to(folder)]
        lines = [str(each) for each in inside if each.kind not in (*PROSE, "string")]
        print("\n".join(dict.fromkeys(lines)))
    elif given.summary:
        print(summary(findings))
    else:
        print("\n".join(map(str, findings)), file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
