"""Options of the scheduler."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from litz_ir.costs import HEAVY
from litz_ir.errors import ConfigError

_POWER_OF_TWO = ("lookback",)
"""Options that are 0 or a power of two."""

_POSITIVE = ("unroll", "max_cluster_size")
"""Options that are at least 1; other numbers are at least 0."""

Lanes = Literal["best", "inner", "outer", "none"]
Precision = Literal["ieee", "tf32"]
"""Precision of matmuls and convolutions of ``f32``: as IEEE says, or with operands that may be rounded to TF32."""


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """Thresholds and switches of the cost model.

    The defaults decide by sizes and capabilities. The extremes of a range force a decision one way, to measure the
    alternative. Results change at most by the order in which a sum is accumulated, and not at all if they are
    ``exact``.
    """

    inline_cost: int = 4
    """The largest cost, in adds of the scalar operation table, of a body that is recomputed in each of several
    readers."""
    inline_loads: int = 1
    """The most elements that such a body may load in its innermost loop."""
    fuse: bool = True
    """True to fuse operations. False leaves one in each kernel, which is slow but helps to isolate a fault."""
    exact: bool = False
    """True to leave out the passes over loop graphs that may change a bit of a result, those with a bound ``ulp`` above
    0: routines of libraries other than those called, splits of sums, and the like."""
    batch_invariant: bool = False
    """True to sum on a CPU in an order that does not depend on how many results there are, so that a row's result does
    not depend on the number of rows: sums are not split, matmuls are loops, and what decides lanes and fusion is the
    length and the strides of what is summed."""
    siblings: int = 4
    """The number of recent readers of a buffer that are tried for sibling fusion with another reader."""
    sibling_bytes: int = 64 << 10
    """Bytes that a loop moves, above which it fuses with a sibling only if they share at least an eighth of that."""
    min_parallel_points: int = 2
    """Outer points that vertical fusion must leave to each CPU thread or SM."""
    foreach_bytes: int = 64 << 20
    """Bytes moved by each loop, below which a GPU fuses pointwise loops over the same points and small reductions
    whether or not they share data."""
    horizontal_fusion_bytes: int = 1 << 20
    """The most bytes that a loop may move to be fused horizontally with loops over any other points; 0 for none."""
    isomorphic_fusion_bytes: int = 16 << 20
    """The same for loops that differ in sizes alone; 0 for none."""
    horizontal_fusion_peak: int = 1 << 20
    """Bytes by which horizontal fusion may raise peak memory, since small results no longer reuse one another's
    memory. A GPU allocator requests at least as much at a time."""
    scratch_cost: int = HEAVY
    """Cost, in adds, from which a value is stored in scratch memory for later phases of a kernel; cheaper ones are
    recomputed."""
    reload_cost: int = 4
    """Cost, in adds, above which later phases of a kernel load a stored value instead of recomputing it."""
    order_loops: bool = True
    """True to order the axes of a kernel by stride; false leaves them in the order of the operations."""
    lanes: Lanes = "best"
    """The axis that CPU kernels vectorise: the ``best`` by cost, the last ``inner`` or ``outer`` one where there is
    one, or ``none``."""
    unroll: int = 1
    """Vector registers for each iteration of a CPU's vector loop; 1 leaves the number to the code generator."""
    serial_bytes: int = 64 << 10
    """Bytes moved, below which a CPU kernel runs on one thread."""
    cpu_split_bytes: int = 16 << 10
    """The fewest bytes that one split of a reduction reads on a CPU."""
    gpu_split_bytes: int = 64 << 10
    """The same on a GPU, where a launch takes as long as reading that."""
    long_row: int = 16384
    """Elements from which a GPU reads a row in chunks, because it does not fit in registers."""
    tall_column: int = 256
    """The same for columns, of which a CTA reduces several at once."""
    max_cluster_size: int = 16
    """The most CTAs of a cluster that reduce one row or column; 1 turns clusters off."""
    lookback: int = 8192
    """Points of a long row that a CTA scans in a decoupled look-back scan on a GPU, a power of two.

    The default is what registers hold. 0 turns look-back off: a long scan is split into three kernels, which read it
    twice.
    """
    linear_flops: int = 0
    """Operations from which oneDNN's ``linear`` runs an f32 matmul faster than ATen's own routine; 0 where it does not,
    or where the host has no such routine."""
    few_rows_bytes: int = 0
    """Bytes of a stored matrix from which a CPU multiplies up to eight rows with it in loops, which read it once and
    fuse with conversions and epilogues; with one that loops compute it always does. 0 leaves such matmuls to a
    library."""
    attention_width: int = 256
    """The most elements of a head for which a CPU's kernels compute calls of attention in f32, in blocks; the library
    computes wider ones. Written attention is not concerned."""
    narrow_attention_width: int = 256
    """The same for bf16 and f16."""
    prepack_convolutions: bool = False
    """True where the host has the routines ``convolution`` and ``prepack_convolution``."""
    prepack_matmuls: bool = False
    """True to compute calls of ``linear`` with frozen weights in tiles over prepacked weights, on a CPU that can."""
    tile_flops: int = 1_000_000_000_000
    """Operations up to which a CPU's kernels compute a prepacked convolution in tiles instead of the routine, where
    they can: by default more than any has, since tiles were quicker at every size that was measured. Those of single
    pixels, of few input channels and with a filter for each channel do so at any size; 0 leaves all to the routine."""
    convolution_relu: bool = False
    """True where the host has the routine ``convolution_relu`` for GPUs."""
    generated_matmuls: frozenset[str] = frozenset()
    """The matmuls, convolutions and attention calls that become loops on a GPU and fuse with producers and consumers:
    names of operations or of their FX nodes, or ``all``."""
    matmul_precision: Precision = "ieee"
    """``tf32`` where the operands of generated f32 matmuls may be rounded to TF32."""
    convolution_precision: Precision = "ieee"
    """``tf32`` where a GPU's library may round the operands of f32 convolutions to TF32."""
    channels_last: bool = True
    """True where layout propagation may convert convolutions to channels-last; false leaves all in eager's layout."""

    def __post_init__(self) -> None:
        for each in fields(self):
            _check(each.name, getattr(self, each.name), _HINTS[each.name])

    def generates(self, *names: str) -> bool:
        """Return whether ``generated_matmuls`` has one of these names, or ``all``."""
        return not self.generated_matmuls.isdisjoint(("all", *names))


_HINTS: Mapping[str, Any] = MappingProxyType(get_type_hints(SchedulerOptions))
"""The type of each option."""


def _check(name: str, value: object, hint: Any) -> None:
    """Check one option; raises ``ConfigError`` for a value of another type or outside its range."""
    if hint is int:
        low = 1 if name in _POSITIVE else 0
        if type(value) is not int or value < low:
            raise _wrong(name, value, f"an int of at least {low}")
        if name in _POWER_OF_TWO and value & (value - 1):
            raise _wrong(name, value, "0 or a power of two")
    elif hint is bool:
        if type(value) is not bool:
            raise _wrong(name, value, "True or False")
    elif get_origin(hint) is Literal:
        if not isinstance(value, str) or value not in get_args(hint):
            raise _wrong(name, value, f"one of {', '.join(map(repr, get_args(hint)))}")
    elif not isinstance(value, frozenset) or not all(isinstance(each, str) for each in value):
        raise _wrong(name, value, "a frozenset of strings")


def _wrong(name: str, value: object, expected: str) -> ConfigError:
    return ConfigError(
        f"{name} is {value!r:.60}, but {expected} belongs there",
        hint="see litz_scheduler.SchedulerOptions for units and defaults",
    )


_TYPES: Mapping[str, Any] = get_type_hints(SchedulerOptions)


def parse_options(text: str) -> dict[str, int | str | frozenset[str]]:
    """Parse ``siblings=0 lanes=outer`` to fields of :class:`SchedulerOptions` and their values.

    Numbers are decimal, flags 0 or 1, sets are names separated by commas. Raises :class:`ConfigError` for other names
    and values.
    """
    return dict(_parse_option(word) for word in text.split())


def _parse_option(word: str) -> tuple[str, int | str | frozenset[str]]:
    """Parse one ``name=value``; raise :class:`ConfigError` for an unknown name or a wrong value."""
    name, _, value = word.partition("=")
    if name not in _TYPES:
        nearest = difflib.get_close_matches(name, _TYPES, n=1) or list(_TYPES)
        raise ConfigError(
            f"the scheduler has no option {name!r}", hint=f"did you mean {' or '.join(nearest)}?"
        )
    if _TYPES[name] == frozenset[str]:
        return name, frozenset(filter(None, value.split(",")))
    names = get_args(_TYPES[name])
    if names:
        accepted, expected = value in names, " or ".join(names)
    elif _TYPES[name] is bool:
        accepted, expected = value in ("0", "1"), "0 or 1"
    else:
        accepted, expected = value.isdecimal(), "a number"
    if not accepted:
        raise ConfigError(f"the scheduler's option {name!r} takes {expected}, got {value!r}")
    return name, value if names else value == "1" if _TYPES[name] is bool else int(value)
