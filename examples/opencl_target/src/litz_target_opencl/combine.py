"""The named combiners: their accumulators, the update by one more element, and their OpenCL spelling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from litz_ir.dtypes import DType
from litz_target_opencl.ops_table import SPELLINGS, cl_type, extreme


def _position(sign: str) -> str:
    """NaN beats numbers, and among equals the smaller position wins."""
    wins = f"{{2}} {sign} {{0}} || ({{2}} != {{2}} && {{0}} == {{0}})"
    ties = "({2} == {0} || ({2} != {2} && {0} != {0}))"
    return f"if ({wins} || ({ties} && {{3}} < {{1}})) {{0}} = {{2}}, {{1}} = {{3}};"


UPDATES: Mapping[str, str] = MappingProxyType(
    {
        "sum": "{0} += {1};",
        "prod": "{0} *= {1};",
        "xor": "{0} ^= {1};",
        "any": "{0} = {0} || {1};",
        "all": "{0} = {0} && {1};",
        "min": f"{{0}} = {SPELLINGS['minimum'].text};",
        "max": f"{{0}} = {SPELLINGS['maximum'].text};",
        "argmin": _position("<"),
        "argmax": _position(">"),
        "welford": (  # the mean, the squared differences from it, the count
            "{2} += 1, {1} += ({3} - {0}) * ({3} - {0}) * (({2} - 1) / {2}), {0} += ({3} - {0}) / {2};"
        ),
        "online_softmax": (  # what was added up below a peak of minus infinity is NaN and counts no more
            "{1} = {2} > {0} ? ({0} == -INFINITY ? 0 : {1} * exp((double){0} - {2})) + exp((double){2} - {2})"
            " : {1} + exp((double){2} - {0}); {0} = {2} > {0} || {2} != {2} ? {2} : {0};"
        ),
    }
)
"""OpenCL statement over the accumulators, ``{0}`` and so on, and the new element's values, which follow them.

A kind without one is written out by its definition.
"""


def running_values(name: str, dtypes: Sequence[DType]) -> list[tuple[str, str]]:
    """Return OpenCL type and identity of each accumulator of the combiner ``name`` over values of ``dtypes``.

    Each accumulator becomes a result. Floats are summed and multiplied in ``double``, integers wrap in
    ``ulong``, and bools are counted in it.
    """
    own = cl_type(dtypes[0])
    match name:
        case "welford":
            return [("double", "0")] * 3
        case "online_softmax":
            return [(own, "-INFINITY"), ("double", "0")]
        case "argmin" | "argmax" | "min" | "max":
            best = (own, extreme(dtypes[0], largest=name.endswith("min")))
            return [best, *((cl_type(each), extreme(each, largest=True)) for each in dtypes[1:])]
        case "any" | "all":
            return [("bool", "true" if name == "all" else "false")]
    return [("double" if dtypes[0].is_float else "ulong", "1" if name == "prod" else "0")]
