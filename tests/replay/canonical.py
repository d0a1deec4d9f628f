"""Texts of kernels without comments, layout and the names that they declare.

Two texts are the same up to names when their canonical texts are equal. Names that a text declares are numbered in
order of appearance, a declaration anew in each scope. Names that it only uses, such as those of an operation, stay: of
C++ kernels those that litz's own headers declare may be renamed by a mapping that holds for all kernels.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_CPP_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
    | (?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])+')
    | (?P<number>0[xX][\da-fA-F.]+(?:[pP][-+]?\d+)?\w*|\.?\d[\d.]*(?:[eE][-+]?\d+)?\w*)
    | (?P<name>[A-Za-z_]\w*)
    | (?P<mark>::|->|&&|\|\||\+\+|--|[-+*/%&|^=!<]=|<<|[^\s])""",
    re.DOTALL | re.VERBOSE,
)
_PLAN_NAME = re.compile(r"[%$]\w+")

_KEYWORDS = frozenset(
    """alignas alignof and asm auto bool break case catch char class const constexpr continue default delete do double
    else enum explicit extern false float for friend goto if inline int int8_t int16_t int32_t int64_t long mutable
    namespace new noexcept not nullptr operator or private protected public return short signed size_t sizeof static
    static_assert struct switch template this throw true try typedef typename uint8_t uint16_t uint32_t uint64_t union
    unsigned using virtual void volatile while define include ifdef ifndef endif pragma defined""".split()
)
_NO_TYPES = frozenset(
    """and break case const constexpr continue default delete do else explicit extern friend goto if inline mutable
    namespace new not operator or private public return signed sizeof static template throw typedef virtual volatile
    while include ifdef ifndef defined pragma""".split()
)
"""Keywords after which a name is not being declared."""

_AFTER_DECLARED = frozenset("= ; , ) ( [ { :".split())


@dataclass(frozen=True, slots=True)
class Canonical:
    """A canonical text in tokens, the positions of names that the text uses without declaring them, and, of C++, the
    tokens as they were."""

    tokens: tuple[str, ...]
    used: tuple[int, ...] = ()
    words: tuple[str, ...] = ()

    def renamed(self, mapping: Mapping[str, str]) -> tuple[str, ...]:
        """Return the tokens with used names replaced."""
        tokens = list(self.tokens)
        for place in self.used:
            tokens[place] = mapping.get(tokens[place], tokens[place])
        return tuple(tokens)


def canonical(text: str, language: str, name: str = "") -> Canonical:
    """Return the canonical form of a text; ``name`` is that of the entry point of a Triton module."""
    match language:
        case "c++":
            return _Cpp(text).canonical()
        case "triton":
            return Canonical(tuple(_triton_functions(text, name)))
        case "plan":
            return Canonical(tuple(_plan_lines(text)))
        case _:
            return Canonical((text,))


def _plan_lines(text: str) -> list[str]:
    numbers: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        return numbers.setdefault(found[0], f"%{len(numbers)}")

    return [_PLAN_NAME.sub(numbered, line) for line in text.splitlines()]


def _triton_functions(text: str, entry: str) -> list[str]:
    """Return the function of that name and those that it calls, in order of first use."""
    module = ast.parse(text)
    functions = {each.name: each for each in module.body if isinstance(each, ast.FunctionDef)}
    others = [ast.unparse(each) for each in module.body if not isinstance(each, ast.FunctionDef)]
    order = {entry: "f0"} if entry in functions else {name: f"f{k}" for k, name in enumerate(functions)}
    found = sorted(others)
    for name in _reached(functions, order):
        found.append(ast.unparse(_LocalNames(functions, order).renamed(functions[name])))
    return found


def _reached(functions: Mapping[str, ast.FunctionDef], order: dict[str, str]) -> list[str]:
    """Number the functions that are reached from those in ``order``, and return all of them."""
    waiting, reached = list(order), []
    while waiting:
        name = waiting.pop(0)
        reached.append(name)
        for node in ast.walk(functions[name]):
            if isinstance(node, ast.Name) and node.id in functions and node.id not in order:
                order[node.id] = f"f{len(order)}"
                waiting.append(node.id)
    return reached


class _LocalNames(ast.NodeTransformer):
    """Numbers what one function declares, and names functions of the module by their order."""

    def __init__(self, functions: Mapping[str, ast.FunctionDef], order: Mapping[str, str]) -> None:
        self.functions = functions
        self.order = order
        self.numbers: dict[str, str] = {}

    def renamed(self, function: ast.FunctionDef) -> ast.FunctionDef:
        for node in ast.walk(function):
            if isinstance(node, ast.arg):
                self._declare(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self._declare(node.id)
        if ast.get_docstring(function) is not None and len(function.body) > 1:
            function.body = function.body[1:]
        function.name = self.order[function.name]
        self.generic_visit(function)
        return function

    def _declare(self, name: str) -> None:
        self.numbers.setdefault(name, f"v{len(self.numbers)}")

    def visit_arg(self, node: ast.arg) -> ast.arg:
        self.generic_visit(node)
        node.arg = self.numbers[node.arg]
        return node

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self.numbers.get(node.id) or self.order.get(node.id, node.id)
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        if isinstance(node.func, ast.Name) and node.func.id in self.functions:
            arguments = self.functions[node.func.id].args
            given = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
            for keyword in node.keywords:
                if keyword.arg in given:
                    keyword.arg = f"v{given.index(keyword.arg)}"
        self.generic_visit(node)
        return node


@dataclass
class _Cpp:
    """Numbers the names that a C++ text declares, by its tokens alone: emitted code declares one way."""

    text: str
    scopes: list[dict[str, str]] = field(default_factory=lambda: [{}])
    count: int = 0

    def canonical(self) -> Canonical:
        tokens = [found for found in _CPP_TOKEN.finditer(self.text) if found.lastgroup != "comment"]
        self.words = [found[0] for found in tokens]
        result: list[str] = []
        used: list[int] = []
        depth, listed = 0, -1  # of parentheses; and where names of one type are being declared
        for place, found in enumerate(tokens):
            word = found[0]
            if word == "{":
                self.scopes.append({})
            elif word == "}" and len(self.scopes) > 1:
                self.scopes.pop()
            if word in ("(", "["):
                depth += 1
            elif word in (")", "]"):
                depth -= 1
            if word in (";", "{", "}") or depth < listed:
                listed = -1
            if found.lastgroup != "name" or word in _KEYWORDS:
                result.append(word)
                continue
            after_comma = (
                listed == depth and self._at(place - 1) == "," and self._at(place + 1) in (",", ";", "=")
            )
            if after_comma or self._declared(place):
                self.scopes[-1][word] = f"v{self.count}"
                self.count += 1
                listed = depth
            number = None if self._at(place - 1) in (".", "->", "::") else self._number(word)
            if number is None:
                used.append(place)
            result.append(number or word)
        return Canonical(tuple(result), tuple(used), tuple(self.words))

    def _at(self, place: int) -> str:
        return self.words[place] if 0 <= place < len(self.words) else " "

    def _number(self, name: str) -> str | None:
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    def _declared(self, place: int) -> bool:
        """Say whether the name there is being declared: a type stands before it."""
        before = place - 1
        if self._at(place + 1) not in _AFTER_DECLARED:
            return False
        if self._at(before) == "define":
            return True
        while self._at(before) in ("*", "&", "&&", "const"):
            before -= 1
        word = self._at(before)
        if word == ">":
            opening = self._opening(before)
            return opening > 0 and self._is_type(opening - 1)
        return self._is_type(before)

    def _is_type(self, place: int) -> bool:
        """Say whether a type's name stands there: neither a variable's nor, in capitals, a constant's."""
        word = self._at(place)
        if not re.match(r"[A-Za-z_]", word) or word in _NO_TYPES or re.fullmatch(r"[A-Z][A-Z\d_]+", word):
            return False
        return word in _KEYWORDS or self._number(word) is None

    def _opening(self, place: int) -> int:
        """Return the place of the bracket that a ``>`` closes as that of a type's arguments; -1 for a comparison."""
        depth = 0
        while place >= 0:
            word = self._at(place)
            depth += (word == ">") - (word == "<")
            if depth == 0:
                return place
            if not re.match(r"[\w<>,*:&]", word):
                return -1
            place -= 1
        return -1
