"""Traversal of expressions, including those inside indirect indices."""

from __future__ import annotations

from collections.abc import Iterator

from litz_ir.scalar import Checked, Expr, Load, Masked, indirects


def leaves(root: Expr) -> Iterator[Expr]:
    """Yield every distinct node without children below ``root``, including those inside indirect indices."""
    return (node for node in _nodes(root) if not node.children)


def _nodes(root: Expr) -> Iterator[Expr]:
    """Yield every distinct node below ``root``, including those inside indirect indices."""
    seen: set[Expr] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        stack.extend(node.children)
        stack.extend(atom.value for atom in indirects(node))


def touches_memory(expr: Expr) -> bool:
    """Return True when evaluation of the expression reads memory or may report a fault."""
    return any(
        isinstance(node, Load | Checked) or any(True for _ in indirects(node)) for node in _nodes(expr)
    )


def always_evaluated(roots: tuple[Expr, ...]) -> Iterator[Expr]:
    """Yield the expressions under ``roots`` that are evaluated unconditionally, each once."""
    seen: set[Expr] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            yield node
            stack.extend((node.cond, node.other) if isinstance(node, Masked) else node.children)
