"""Calls of convolutions and of their gradients, by their arguments."""

from __future__ import annotations

from dataclasses import replace

import pytest

from litz_ir.contraction import (
    CONVOLUTION,
    CONVOLUTION_BACKWARD,
    ConvolutionCall,
    convolution_arguments,
    convolution_call,
)
from litz_ir.loops.nodes import Argument, ComplexRef, ContractionCall, Operation, Ref
from litz_ir.symbols.term import symbol
from litz_ir.text import parse_graph

TYPES = "%x: f32[2, 6, 9, 9] fixed, %w: f32[8, 3, 3, 3] fixed, %b: f32[8] fixed, %g: f32[2, 8, 5, 5] fixed"
GEOMETRY: tuple[Argument, ...] = ((2, 2), (2, 2), (1, 1), False, (0, 0), 2)


def call(
    text: str, results: str, types: str, inputs: str = TYPES
) -> tuple[Operation, ConvolutionCall | None]:
    """A call, and what it computes."""
    graph = parse_graph(
        f"graph g({inputs}) -> (%x) {{\n  {results} = contraction.convolution {text} -> {types}\n}}\n"
    )
    (operation,) = graph.operations
    return operation, convolution_call(operation, graph.values())


def forward(
    geometry: str = "[2, 2], [2, 2], [1, 1], false, [0, 0], 2", bias: str = "%b"
) -> ConvolutionCall | None:
    return call(f"aten.convolution.default(%x, %w, {bias}, {geometry})", "%y", "f32[2, 8, 5, 5]")[1]


def backward(mask: str, transposed: bool = False) -> ConvolutionCall | None:
    """The gradients of the convolution of ``x``, or of the transposed one of ``g``, that ``mask`` asks for."""
    given, source = ("%x", "%g") if transposed else ("%g", "%x")
    text = (
        f"aten.convolution_backward.default({given}, {source}, %w, [8], [2, 2], [2, 2], [1, 1],"
        f" {str(transposed).lower()}, [0, 0], 2, [{mask}])"
    )
    of_source = "f32[2, 8, 5, 5]" if transposed else "f32[2, 6, 9, 9]"
    return call(text, "%gx, %gw, %gb", f"{of_source}, f32[8, 3, 3, 3], f32[8]")[1]


def test_a_convolution_has_input_weight_output_and_geometry() -> None:
    found = forward()
    assert found is not None and found.bias is not None and found.bias.name == "b"
    (only,) = found.convolutions
    assert (only.input.name, only.weight.name, only.output.name) == ("x", "w", "y")
    assert (only.kernel_size, only.stride, only.padding, only.dilation) == ((3, 3), (2, 2), (2, 2), (1, 1))
    assert (only.groups, only.computed, only.result.name) == (2, "output", "y")


def test_one_number_stands_for_all_dimensions() -> None:
    found = forward("[2], [2], [1], false, [0], 2", "none")
    assert found is not None and found.bias is None
    assert (found.convolutions[0].stride, found.convolutions[0].dilation) == ((2, 2), (1, 1))


def test_a_transposed_convolution_computes_the_input() -> None:
    text = "aten.convolution.default(%g, %w, none, [2, 2], [2, 2], [1, 1], true, [0, 0], 2)"
    found = call(text, "%y", "f32[2, 6, 9, 9]")[1]
    assert found is not None
    (only,) = found.convolutions
    assert (only.input.name, only.output.name, only.computed, only.result.name) == ("y", "g", "input", "y")


@pytest.mark.parametrize(
    ("mask", "expected", "bias"),
    [
        ("true, true, true", ["gx", "gw"], "gb"),
        ("true, false, false", ["gx"], ""),
        ("false, true, false", ["gw"], ""),
        ("false, false, true", [], "gb"),
    ],
)
def test_gradients_are_those_of_the_output_mask(mask: str, expected: list[str], bias: str) -> None:
    found = backward(mask)
    assert found is not None and found.bias is None
    assert [each.result.name for each in found.convolutions] == expected
    assert ("" if found.bias_gradient is None else found.bias_gradient[0].name) == bias
    assert found.bias_gradient is None or found.bias_gradient[1].name == "g"


def test_a_gradient_replaces_its_tensor() -> None:
    found = backward("true, true, false")
    assert found is not None
    of_input, of_weight = found.convolutions
    assert (of_input.input.name, of_input.output.name, of_input.weight.name) == ("gx", "g", "w")
    assert (of_weight.input.name, of_weight.output.name, of_weight.weight.name) == ("x", "g", "gw")
    assert (of_input.computed, of_weight.computed) == ("input", "weight")


def test_the_gradient_of_a_transposed_convolution_is_an_output() -> None:
    found = backward("true, true, false", transposed=True)
    assert found is not None
    of_source, of_weight = found.convolutions
    assert (of_source.computed, of_source.output.name, of_source.input.name) == ("output", "gx", "x")
    assert (of_weight.computed, of_weight.input.name, of_weight.output.name) == ("weight", "x", "g")


@pytest.mark.parametrize(
    "geometry",
    [
        "[2, s], [2, 2], [1, 1], false, [0, 0], 2", "[2, 2], [s], [1, 1], false, [0, 0], 2",
        "[2, 2, 2], [2, 2], [1, 1], false, [0, 0], 2", "2, [2, 2], [1, 1], false, [0, 0], 2",
    ],
)  # fmt: skip
def test_sizes_that_are_not_known_are_none(geometry: str) -> None:
    assert forward(geometry) is None


@pytest.mark.parametrize("batch", ["0", "n"])
def test_an_empty_input_or_one_of_unknown_size_is_none(batch: str) -> None:
    text = "aten.convolution.default(%x, %w, none, [2, 2], [2, 2], [1, 1], false, [0, 0], 2)"
    assert call(text, "%y", f"f32[{batch}, 8, 5, 5]", TYPES.replace("[2, 6", f"[{batch}, 6"))[1] is None


def test_arguments_are_given_in_order_and_all() -> None:
    arguments = (Ref("x"), Ref("w"), Ref("b"), *GEOMETRY)
    found = convolution_arguments(CONVOLUTION, arguments)
    assert found is not None
    assert (found.input, found.weight, found.bias, found.grad_output) == (Ref("x"), Ref("w"), Ref("b"), None)
    assert (found.stride, found.padding, found.dilation) == ((2, 2), (2, 2), (1, 1))
    assert (found.transposed, found.groups, found.output_mask) == (False, 2, ())
    assert convolution_arguments(CONVOLUTION, arguments[:-1]) is None
    assert convolution_arguments(CONVOLUTION, arguments[:-1], (("groups", 2),)) is None
    assert convolution_arguments("aten.mm.default", arguments) is None
    unknown = (Ref("x"), Ref("w"), None, (symbol("s"), 2), *GEOMETRY[1:])
    assert convolution_arguments(CONVOLUTION, unknown) is not None, "what is not known is an argument too"


def test_arguments_of_gradients() -> None:
    arguments = (Ref("g"), Ref("x"), Ref("w"), (8,), *GEOMETRY, (True, False, True))
    found = convolution_arguments(CONVOLUTION_BACKWARD, arguments)
    assert found is not None
    assert (found.grad_output, found.input, found.weight, found.bias) == (Ref("g"), Ref("x"), Ref("w"), None)
    assert found.output_mask == (True, False, True) and found.groups == 2


def test_complex_tensors_are_none() -> None:
    for place in range(3):
        arguments = [Ref("x"), Ref("w"), Ref("b")]
        arguments[place] = ComplexRef("z")
        assert convolution_arguments(CONVOLUTION, (*arguments, *GEOMETRY)) is None


def test_other_operations_are_none() -> None:
    operation, found = call("aten.convolution.default(%x, %w, %b, [2, 2], [2, 2], [1, 1], false, [0, 0], 2)",
                            "%y", "f32[2, 8, 5, 5]")  # fmt: skip
    assert found is not None and isinstance(operation, ContractionCall)
    values = {"x": operation.results[0]}
    assert convolution_call(replace(operation, target="convolution"), values) is None
