"""Signatures of names as lines of text: parameters of functions, fields and methods of classes, values of constants.

A name is followed through imports to its definition, within a package and into its siblings. Sources are read, never
imported, and annotations are as their author wrote them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

INDENT = "    "


@dataclass(frozen=True)
class Definition:
    """The statements that define a name: several for overloads, none for a module or for a name of another project."""

    module: str
    name: str
    nodes: tuple[ast.stmt, ...] = ()


@dataclass
class Sources:
    """The modules below some import folders, parsed when they are first asked for."""

    folders: Sequence[Path]
    parsed: dict[str, ast.Module | None] = field(default_factory=dict)

    def module(self, name: str) -> ast.Module | None:
        """Return the module called `name`, or None when it is in none of the folders."""
        if name not in self.parsed:
            below = Path(*name.split("."))
            candidates = (
                folder / path
                for folder in self.folders
                for path in (below / "__init__.py", below.with_suffix(".py"))
            )
            found = next(filter(Path.is_file, candidates), None)
            text = None if found is None else found.read_text(encoding="utf-8")
            self.parsed[name] = None if text is None else ast.parse(text, filename=str(found))
        return self.parsed[name]

    def definition(self, module: str, name: str) -> Definition:
        """Return the definition of `name` as `module` sees it; raises `LookupError` where nothing binds it."""
        tree = self.module(module)
        if tree is None:
            return Definition(module, name)
        nodes = tuple(node for node in _statements(tree.body) if name in bound_names(node))
        if not nodes:
            if self.module(f"{module}.{name}") is None:
                raise LookupError(f"{module} does not define {name}")
            return Definition(f"{module}.{name}", "")
        last = nodes[-1]
        if isinstance(last, ast.Import):
            return Definition(_imported(last, name), "")
        if isinstance(last, ast.ImportFrom):
            assert last.module is not None and last.level == 0, f"{module} imports {name} by a relative path"
            if last.module == module:
                return Definition(f"{module}.{_imported(last, name)}", "")
            return self.definition(last.module, _imported(last, name))
        return Definition(module, name, tuple(filter(_is_overload, nodes)) or (last,))

    def lines(self, public: str, found: Definition) -> list[str]:
        """Return the lines of a definition under its dotted public name: for a constant its annotation or else its
        value, for a function its parameters and result, for a class its bases, fields and public methods.
        """
        if not found.nodes:
            return [f"{public} = {found.module}{'.' if found.name else ''}{found.name}"]
        lines = []
        for node in found.nodes:
            match node:
                case ast.ClassDef():
                    bases = ", ".join(map(ast.unparse, (*node.bases, *node.keywords)))
                    lines.append(f"class {public}({bases})" if bases else f"class {public}")
                    lines += [*_decorators(node), *self._members(found.module, node)]
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    lines += [f"{public}{_signature(node)}", *_decorators(node)]
                case ast.AnnAssign():
                    lines.append(f"{public}: {ast.unparse(node.annotation)}")
                case ast.Assign():
                    lines.append(f"{public} = {ast.unparse(node.value)}")
        return lines

    def _members(self, module: str, node: ast.ClassDef) -> Iterator[str]:
        """Yield the lines of the members of a class in their order, those of its private bases first."""
        for base in node.bases:
            if isinstance(base, ast.Name) and base.id.startswith("_"):
                inherited = self.definition(module, base.id)
                for each in inherited.nodes:
                    assert isinstance(each, ast.ClassDef), f"{module}.{base.id} is no class"
                    yield from self._members(inherited.module, each)
        for member in _statements(node.body):
            yield from _member(member)


def bound_names(node: ast.stmt) -> list[str]:
    """Return the names that a statement binds in its module or class."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.Import() | ast.ImportFrom():
            return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
        case ast.Assign():
            targets = [each for target in node.targets for each in ast.walk(target)]
            # `term.field = value` reads `term`.
            return [
                each.id for each in targets if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
            ]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module or class, those under a condition too."""
    for node in body:
        yield node
        for name in ("body", "orelse", "finalbody") if isinstance(node, ast.If | ast.Try) else ():
            yield from _statements(getattr(node, name, []))


def _is_overload(node: ast.stmt) -> bool:
    """Return True for one of several signatures of a function, which its implementation follows."""
    return isinstance(node, ast.FunctionDef) and "overload" in map(ast.unparse, node.decorator_list)


def _imported(node: ast.Import | ast.ImportFrom, name: str) -> str:
    """Return the name by which the imported module knows what an import statement binds to `name`."""
    return next(alias.name for alias in node.names if name in (alias.asname, alias.name.partition(".")[0]))


def _member(node: ast.stmt) -> list[str]:
    """Return the lines of what a statement in a class binds."""
    names = [name for name in bound_names(node) if _is_public_member(name)]
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            marks = "".join(f"@{ast.unparse(each)} " for each in node.decorator_list)
            return [f"{INDENT}{marks}{name}{_signature(node)}" for name in names]
        case ast.AnnAssign():
            return [f"{INDENT}{_parameter(name, node.annotation, node.value)}" for name in names]
        case ast.Assign():
            return [f"{INDENT}{_parameter(name, None, node.value)}" for name in names]
    return []


def _is_public_member(name: str) -> bool:
    """Return True for a member of the interface: no private one, nor what only a class itself uses."""
    return not name.startswith("_") or (name.startswith("__") and name not in ("__post_init__", "__slots__"))


def _decorators(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [f"{INDENT}@{ast.unparse(each)}" for each in node.decorator_list]


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    result = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    return f"({', '.join(_parameters(node.args))}){result}"


def _parameters(given: ast.arguments) -> Iterator[str]:
    """Yield the parameters of a function, with the signs that divide them by how they are passed."""
    positional = [*given.posonlyargs, *given.args]
    defaults = [*[None] * (len(positional) - len(given.defaults)), *given.defaults]
    for position, (each, default) in enumerate(zip(positional, defaults, strict=True), start=1):
        yield _parameter(each.arg, each.annotation, default)
        if position == len(given.posonlyargs):
            yield "/"
    if given.vararg is not None:
        yield _parameter(f"*{given.vararg.arg}", given.vararg.annotation, None)
    elif given.kwonlyargs:
        yield "*"
    for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield _parameter(each.arg, each.annotation, default)
    if given.kwarg is not None:
        yield _parameter(f"**{given.kwarg.arg}", given.kwarg.annotation, None)


def _parameter(name: str, annotation: ast.expr | None, default: ast.expr | None) -> str:
    """Return a parameter or a field as it is written: its name, annotation and default."""
    typed = name if annotation is None else f"{name}: {ast.unparse(annotation)}"
    return typed if default is None else f"{typed} = {ast.unparse(default)}"
