"""Calls that move a window over images: their names, and what their arguments mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from litz_ir.loops import Argument, Contraction, Operation, Ref, TensorType, Value
from litz_ir.symbols import Size

CONVOLUTION = "aten.convolution.default"
CONVOLUTION_BACKWARD = "aten.convolution_backward.default"

WIDE, WIDE_SUMS = 3, 256
"""Of windows wider than this, in channels-last and with a group for each channel, oneDNN keeps this many sums of each
element of the weight's gradient, which it adds up in the end."""

Part = Literal["image", "places", "weight"]


@dataclass(frozen=True, slots=True)
class Window:
    """What moves over an image: its sizes, the steps that it takes, the paddings around the image and the distances
    between its points, along each dimension; and into how many ``groups`` channels are divided."""

    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    paddings: tuple[int, ...]
    distances: tuple[int, ...]
    groups: int


@dataclass(frozen=True, slots=True)
class Convolution:
    """``places[n, o, y] = sum over i and r of image[n, i, y * step + r * distance - padding] * weight[o, i, r]``, where
    points outside of the image count as zero and ``i`` runs over the channels of the group that ``o`` is in.

    ``wanted`` is what is computed: ``places``, or the gradient of one of the others with respect to them, which takes
    the same products and sums them over what that other one does not know.
    """

    image: Value
    places: Value
    weight: Value
    window: Window
    wanted: Part

    @property
    def result(self) -> Value:
        """What is computed."""
        return {"image": self.image, "places": self.places, "weight": self.weight}[self.wanted]


@dataclass(frozen=True, slots=True)
class ConvolutionCall:
    """What a call computes: ``convolutions``, to the only one of which ``bias`` may be added by channels; and ``sums``,
    the gradient of a bias and what that is the sum of by channels, if it is wanted."""

    convolutions: tuple[Convolution, ...]
    bias: Value | None = None
    sums: tuple[Value, Value] | None = None


def convolution_call(operation: Operation, values: Mapping[str, Value]) -> ConvolutionCall | None:
    """What a convolution, transposed or not, or the gradients of one compute, where all sizes are known and positive;
    None for anything else."""
    if not isinstance(operation, Contraction) or operation.attributes:
        return None
    if operation.target == CONVOLUTION and len(operation.arguments) == 9:
        return _forward(operation, values)
    if operation.target == CONVOLUTION_BACKWARD and len(operation.arguments) == 11:
        return _backward(operation, values)
    return None


def _forward(call: Contraction, values: Mapping[str, Value]) -> ConvolutionCall | None:
    x, weight, bias, *moved = call.arguments
    if type(x) is not Ref or type(weight) is not Ref or (bias is not None and type(bias) is not Ref):
        return None
    given, (result,) = values[x.name], call.results
    found = _convolution(given, result, values[weight.name], moved)
    if found is None:
        return None
    wanted: Part = "image" if found.image is result else "places"
    return ConvolutionCall((replace(found, wanted=wanted),), None if bias is None else values[bias.name])


def _backward(call: Contraction, values: Mapping[str, Value]) -> ConvolutionCall | None:
    *tensors, _ = call.arguments[:4]
    *moved, mask = call.arguments[4:]
    given = [values[each.name] for each in tensors if type(each) is Ref]
    if len(given) != 3 or not isinstance(mask, tuple):
        return None
    gradient, x, weight = given
    found = _convolution(x, gradient, weight, moved)
    if found is None:
        return None
    of_x, of_weight, of_bias = (value if wanted else None for value, wanted in zip(call.results, mask))
    wanted: list[Convolution] = []
    if of_x is not None and found.image is x:
        wanted.append(replace(found, image=of_x, wanted="image"))
    elif of_x is not None:
        wanted.append(replace(found, places=of_x, wanted="places"))
    if of_weight is not None:
        wanted.append(replace(found, weight=of_weight, wanted="weight"))
    return ConvolutionCall(tuple(wanted), sums=None if of_bias is None else (of_bias, gradient))


def _convolution(x: Value, y: Value, weight: Value, moved: Sequence[Argument]) -> Convolution | None:
    """The convolution of ``x`` that gives ``y``, or whose gradient that is."""
    steps, paddings, distances, transposed, _, groups = moved
    if not all(map(_is_known, (x.type, y.type, weight.type))) or not isinstance(groups, int):
        return None
    rank = len(x.type.shape) - 2
    numbers = [_numbers(each, rank) for each in (weight.type.shape[2:], steps, paddings, distances)]
    sizes, step, padding, distance = (each or () for each in numbers)
    if any(each is None for each in numbers):
        return None
    image, places = (y, x) if transposed else (x, y)
    return Convolution(image, places, weight, Window(sizes, step, padding, distance, groups), "places")


def _is_known(type_: TensorType) -> bool:
    return all(isinstance(size, int) and size > 0 for size in type_.shape)


def _numbers(argument: Argument | Sequence[Size], rank: int) -> tuple[int, ...] | None:
    """A number for each dimension, where all are known; one may stand for all."""
    if not isinstance(argument, tuple):
        return None
    found = tuple(each for each in argument if isinstance(each, int))
    if len(found) < len(argument):
        return None
    found = found * rank if len(found) == 1 else found
    return found if len(found) == rank else None
