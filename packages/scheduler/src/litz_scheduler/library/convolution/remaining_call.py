"""Calls of convolutions of which other operations compute a part."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from litz_ir.contraction import ConvolutionCall
from litz_ir.loops import ContractionCall
from litz_ir.symbols import floordiv, mul


def remaining_call(
    operation: ContractionCall, call: ConvolutionCall, made: Collection[str]
) -> tuple[ContractionCall, ...]:
    """Return the call of a convolution, or of gradients of one, without the results that others make.

    ``call`` is what ``operation`` computes, ``made`` names the results of other operations. Empty where nothing
    remains.
    """
    called = [each.result.name for each in call.convolutions if each.result.name not in made]
    if not called and call.bias_gradient is None:
        return ()
    if not made:
        return (operation,)
    results = tuple(
        replace(value, name=f"{value.name}.unread") if value.name in made else value
        for value in operation.results
    )
    wanted = {*called, *(() if call.bias_gradient is None else (call.bias_gradient[0].name,))}
    mask = tuple(value.name in wanted for value in operation.results)
    flops = mul(floordiv(operation.flops, len(call.convolutions)), len(called))
    return (replace(operation, results=results, arguments=(*operation.arguments[:-1], mask), flops=flops),)
