"""Print docs/operators.md: the treatment of each ATen operator, from the registry of lowering rules.

Only functional overloads are listed: AOTAutograd replaces in-place and out= forms by these before litz. Operators that
torch decomposes before any backend are left out as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch

from litz_lowering import decompositions
from litz_lowering.aten.fallback_families import fallback_reason
from litz_lowering.contexts.registry import RuleEntry
from litz_lowering.rules import RULES

Treatment = Literal["generated", "generated, floats", "decomposed", "library", "random", "ATen", "no rule"]

INTRODUCTION = """\
# Operators

The treatment of each functional ATen operator. `tools/operators.py` prints this page from the registry of lowering
rules, and a test compares the two; torch {version}.

- **generated**: a rule makes loops of it, for every real dtype that eager takes (f64 f32 bf16 f16, i8 to i64, u8, bool)
  or, for *floats*, for floating-point ones. A rule may decline a use of its operator (a data-dependent size, a sort on
  the CPU): that use runs as ATen, and `litz.explain` names it with the reason.
- **decomposed**: torch's own decomposition replaces it, by generated operators if possible.
- **library**: matmuls, convolutions, attention and complex Fourier transforms. ATen, oneDNN or MKL compute them; litz
  knows their semantics.
- **random**: drawn from ATen's stream in program order, so that numbers are eager's; generated under `rng="fast"`.
- **ATen**: called by design, with eager's answer and eager's errors: linear algebra, results of data-dependent size and
  the other families of `litz_lowering.aten.fallback_families`; calls under `fallback="error"` too.
- **no rule**: called for lack of a rule: `fallback="error"` refuses it. Many never reach a backend.

On a CPU, loops also convert, move, select, fill and compare 8-bit floats (e4m3fn, e5m2 and their fnuz forms), bit for
bit as eager does. Eager has no arithmetic on them there: such uses run as ATen, which raises
(`litz_lowering.aten.float8` lists the others).

The column `complex` has the treatment of complex operands (c64, c128), which are pairs of reals inside a graph.
"""

TREATMENTS: dict[str, Treatment] = {"loops": "generated", "library": "library", "stream": "random"}


def overloads() -> Iterator[torch._ops.OpOverload]:
    """Yield ATen's functional overloads over tensors, by name."""
    for full in sorted(torch._C._dispatch_get_all_op_names()):
        namespace, _, name = full.partition("::")
        packet, _, kind = name.partition(".")
        if namespace == "aten" and not _is_composite(full):
            found = getattr(getattr(torch.ops.aten, packet), kind or "default")
            if _is_functional(found):
                yield found


def _is_functional(overload: torch._ops.OpOverload) -> bool:
    schema = overload._schema
    returns = [str(returned.type) for returned in schema.returns]
    takes = [str(argument.type) for argument in schema.arguments]
    return not schema.is_mutable and any("Tensor" in kind for kind in (*returns, *takes))


def _is_composite(name: str) -> bool:
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)


def treatment(overload: str, entry: RuleEntry | None, is_decomposed: bool) -> Treatment:
    """Return the treatment of an overload with the rule `entry`; `is_decomposed` applies without a rule."""
    if entry is None:
        return "decomposed" if is_decomposed else "ATen" if fallback_reason(overload) else "no rule"
    found = TREATMENTS[entry.how]
    return "generated, floats" if found == "generated" and entry.takes == "floats" else found


def page() -> str:
    """Return the page's text."""
    table = decompositions()
    rows: dict[str, dict[tuple[Treatment, Treatment], list[str]]] = {}
    counts: dict[Treatment, int] = {}
    for overload in overloads():
        name, is_decomposed = str(overload), overload in table
        real = treatment(name, RULES.find(name), is_decomposed)
        pair = real, treatment(name, RULES.find(name, is_complex=True), is_decomposed)
        _, packet, kind = name.split(".")
        rows.setdefault(packet, {}).setdefault(pair, []).append(kind)
        counts[real] = counts.get(real, 0) + 1
    lines = [INTRODUCTION.format(version=torch.__version__.partition("+")[0])]
    lines.append("| treatment | overloads |\n|---|---|")
    lines += [f"| {kind} | {count} |" for kind, count in sorted(counts.items())]
    lines.append("\n| operator | real | complex | overloads |\n|---|---|---|---|")
    for packet, pairs in rows.items():
        for (real, complex_), kinds in pairs.items():
            lines.append(f"| `{packet}` | {real} | {complex_} | {' '.join(f'`{kind}`' for kind in kinds)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
