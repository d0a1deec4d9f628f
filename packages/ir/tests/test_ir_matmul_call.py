"""Matmuls of calls: operands, epilogues, loop nests, and calls that loops cannot compute."""

from __future__ import annotations

from dataclasses import replace

import pytest

from litz_ir.contraction import (
    MATMULS,
    Epilogue,
    MatmulCall,
    by_role,
    matmul_arguments,
    matmul_call,
    matmul_nest,
    operand_a,
    plain_operands,
)
from litz_ir.contraction.matmul_calls import OTHER_MATMULS
from litz_ir.dtypes import f32, i32
from litz_ir.loops.nodes import Axis, ContractionCall, NamedCombiner, Ref
from litz_ir.text import parse_graph
from litz_ir.text.parsing.bodies import parse_expr

INPUTS = (
    "%x: bf16[12, 20] fixed, %w: bf16[20, 16] fixed, %c: bf16[16] fixed, %u: bf16[3, 12, 20] fixed,"
    " %v: bf16[3, 20, 16] fixed, %i: i8[12, 20] fixed, %j: i8[16, 20] fixed, %k: i8[20, 16] fixed,"
    " %l: f16[20, 16] fixed, %f: f8e4m3fn[12, 20] fixed, %g: f8e4m3fn[20, 16] fixed,"
    " %one: f32[] fixed, %rows: f32[12, 1] fixed, %columns: f32[1, 16] fixed,"
    "%many: f32[12] fixed, %ends: i32[3] fixed, %n: i32[16] fixed"
)


def contraction(call: str, result: str = "bf16[12, 16]") -> tuple[ContractionCall, MatmulCall | None]:
    """A call, and the matmul that it computes."""
    graph = parse_graph(
        f"graph g({INPUTS}) -> (%o) {{\n  %o = contraction.matmul {call} -> {result} fixed\n}}\n"
    )
    (operation,) = graph.operations
    assert isinstance(operation, ContractionCall)
    return operation, matmul_call(operation, graph.values())


def matmul_of(call: str, result: str = "bf16[12, 16]") -> MatmulCall:
    """The matmul of a call that computes one."""
    found = contraction(call, result)[1]
    assert found is not None
    return found


def test_operands_of_a_plain_matmul() -> None:
    found = matmul_of("aten.mm.default(%x, %w)")
    assert (found.a.name, found.b.name, found.result.name, found.accumulator) == ("x", "w", "o", f32)
    assert found.epilogue == Epilogue() and found.epilogue.is_identity
    assert not found.b_transposed and not found.fast and found.offsets is None


def test_an_epilogue_has_bias_alpha_and_beta() -> None:
    found = matmul_of("aten.addmm.default(%c, %x, %w, beta=0.5, alpha=2)").epilogue
    assert (found.bias and found.bias.name, found.beta, found.alpha, found.scales) == ("c", 0.5, 2.0, ())
    assert not found.is_identity


def test_a_bias_times_zero_is_not_read() -> None:
    found = matmul_of("aten.addmm.default(%c, %x, %w, beta=0)").epilogue
    assert found.bias is None and found.is_identity


def test_a_matmul_of_8_bit_integers_is_exact() -> None:
    assert matmul_of("aten._int_mm.default(%i, %k)", "i32[12, 16]").accumulator == i32
    assert contraction("aten._int_mm.default(%i, %k)", "f32[12, 16]")[1] is None


def test_weights_of_8_bits_are_transposed_and_scaled() -> None:
    found = matmul_of("aten._weight_int8pack_mm.default(%x, %j, %c)")
    assert found.b_transposed and found.b.name == "j"
    assert [scale.name for scale in found.epilogue.scales] == ["c"]


def test_scales_are_of_rows_and_columns() -> None:
    found = matmul_of("aten._scaled_mm.default(%f, %g, %rows, %columns, %c, none, bf16, true)")
    assert [scale.name for scale in found.epilogue.scales] == ["rows", "columns"]
    assert found.fast and found.epilogue.bias is not None and found.epilogue.bias.name == "c"
    assert found.accumulator == f32


NOT_LOOPS: dict[str, tuple[str, str]] = {
    "two dtypes": ("aten.mm.default(%x, %l)", "bf16[12, 16]"),
    "rounded to another dtype": ("aten.mm.default(%x, %w)", "f16[12, 16]"),
    "a scale of the result": ("aten._scaled_mm.default(%f, %g, %one, %one, none, %one)", "bf16[12, 16]"),
    "scales of blocks": ("aten._scaled_mm.default(%f, %g, %many, %one)", "bf16[12, 16]"),
    "swizzled scales": (
        "aten._scaled_mm_v2.default(%f, %g, [%one], [0], [1], [%one], [0], [0], none, bf16)", "bf16[12, 16]",
    ),
    "an integer bias": ("aten.addmm.default(%n, %x, %w)", "bf16[12, 16]"),
    "an argument too many": ("aten._int_mm.default(%i, %k, 1)", "i32[12, 16]"),
    "groups of K": ("aten._grouped_mm.default(%x, %w, %ends)", "bf16[3, 12, 16]"),
    "groups with a bias": ("aten._grouped_mm.default(%x, %v, %ends, %c)", "bf16[12, 16]"),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_LOOPS)
def test_calls_that_loops_cannot_compute_are_none(name: str) -> None:
    assert contraction(*NOT_LOOPS[name])[1] is None


def test_unswizzled_scales_are_supported() -> None:
    call = "aten._scaled_mm_v2.default(%f, %g, [%rows], [1], [0], [%columns], [1], [0], none, bf16)"
    assert [scale.name for scale in matmul_of(call).epilogue.scales] == ["rows", "columns"]


def test_groups_end_at_offsets() -> None:
    found = matmul_of("aten._grouped_mm.default(%x, %v, %ends)")
    assert found.offsets is not None and found.offsets.name == "ends"
    with pytest.raises(AssertionError, match="looks up the matrix of each row"):
        found.nest()


NESTS: dict[str, tuple[str, str, str]] = {
    "mm": ("aten.mm.default(%x, %w)", "bf16[12, 16]", "f32(%x[i0, r0]:bf16) * f32(%w[r0, i1]:bf16)"),
    "bmm": ("aten.bmm.default(%u, %v)", "bf16[3, 12, 16]", "f32(%u[i0, i1, r0]:bf16) * f32(%v[i0, r0, i2]:bf16)"),
    "transposed": (
        "aten._weight_int8pack_mm.default(%x, %j, %c)", "bf16[12, 16]", "f32(%x[i0, r0]:bf16) * f32(%j[i1, r0]:i8)",
    ),
    "integers": ("aten._int_mm.default(%i, %k)", "i32[12, 16]", "i32(%i[i0, r0]:i8) * i32(%k[r0, i1]:i8)"),
}  # fmt: skip


@pytest.mark.parametrize("name", NESTS)
def test_the_nest_of_a_call_is_recognised_as_its_matmul(name: str) -> None:
    call, result, product = NESTS[name]
    found = matmul_of(call, result)
    nest = found.nest()
    assert nest.summand == parse_expr(product)
    assert nest.k == (Axis("r0", 20),) and tuple(axis.size for axis in nest.outer) == found.result.type.shape
    assert matmul_nest(NamedCombiner("sum"), [nest.summand], nest.outer, nest.k) == nest


def test_a_nest_multiplies_at_the_given_precision() -> None:
    nest = matmul_of("aten.mm.default(%x, %w)").nest("mul_tf32")
    assert nest.summand == parse_expr("mul_tf32(f32(%x[i0, r0]:bf16), f32(%w[r0, i1]:bf16))")


def test_a_plain_call_has_operands_and_maybe_a_bias() -> None:
    assert plain_operands(contraction("aten.mm.default(%x, %w)")[0]) == (None, "x", "w")
    assert plain_operands(contraction("aten.addmm.default(%c, %x, %w)")[0]) == ("c", "x", "w")
    assert plain_operands(contraction("aten.addmm.default(%c, %x, %w, beta=1)")[0]) is None
    assert plain_operands(contraction("aten.bmm.default(%u, %v)", "bf16[3, 12, 16]")[0]) is None
    call = contraction("aten.mm.default(%x, %w)")[0]
    assert plain_operands(replace(call, arguments=call.arguments[:1])) is None


def test_arguments_have_roles_in_order_and_by_name() -> None:
    given = matmul_arguments("aten.addmm.default", (Ref("c"), Ref("x")), (("mat2", Ref("w")), ("beta", 2)))
    assert given == {"bias": Ref("c"), "a": Ref("x"), "b": Ref("w"), "beta": 2}
    assert by_role("a=self b=mat2", (1, 2, 3), ()) == {}, "an argument too many"
    assert by_role("a=self b=mat2", (1,), [("other", 2)]) == {}, "an unknown name"


@pytest.mark.parametrize("target", [*MATMULS, *OTHER_MATMULS])
def test_every_matmul_has_an_a(target: str) -> None:
    signature = {**MATMULS, **OTHER_MATMULS}[target]
    roles = [pair.partition("=")[0] for pair in signature.split()]
    assert operand_a(target, roles, ()) == "a"
    assert len(set(roles)) == len(roles) and {"b", "b_transposed"} & set(roles)
