"""Views of inputs, results that share memory, and strides."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from reports.table import Compile, counted, drawn, report


@report(
    "pytorch#198095",
    "a returned view of an input that is itself a view of another, written one has its base's start",
    differs="AOTAutograd replays the view on the wrong base (under `aot_eager` too)",
)
def view_of_a_view_with_offset(compiled: Compile) -> object:
    def program(base: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        base.add_(100)
        return rows[0]

    base = counted(4, 6).double()
    return compiled(program)(base, base[1:]), base


@report("pytorch#106457", "two inputs share storage and no element; both are written")
def false_aliasing(compiled: Compile) -> object:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        y.mul_(2)
        return x * y

    base = counted(3, 2)
    return compiled(program)(base[:, 0], base[:, 1]), base


@report("pytorch#114338", "equal results with and without gradients become one tensor")
def equal_results_with_and_without_gradients(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.enable_grad():
            first = x + 1
        return first, x + 1

    with torch.no_grad():
        return compiled(program)(torch.ones(5, requires_grad=True))


@report("pytorch#168278", "abs, sqrt and the like of a detached clone have the shape of another view")
def chain_on_a_detached_clone(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.clone().detach().requires_grad_(True)
        return torch.sqrt(torch.abs(y)).permute(2, 0, 1) + 1

    return compiled(program)(drawn(6, 2, 3))


@report("pytorch#194760", "a detached result takes the gradient of the view that is returned with it")
def detached_result_and_its_view(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = x * 2
        return h.view(-1), h.detach(), h[0], (h * 1).detach()

    x = counted(2, 3).requires_grad_()
    results = compiled(program)(x)
    (results[0].sum() + results[2].sum()).backward()
    return [each.requires_grad for each in results], [each.detach().clone() for each in results], x.grad


@report("pytorch#100348", "a loss and its detached copy are one tensor, which a caller then divides in place")
def loss_and_its_detached_copy(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> dict[str, torch.Tensor]:
        loss = x.mean()
        return {"loss": loss, "logged": loss.detach()}

    x = counted(4, 4).requires_grad_()
    results = compiled(program)(x)
    results["loss"].backward()
    return results["loss"].requires_grad, results["logged"].requires_grad, x.grad


@report("pytorch#195451", "a returned copy of a written input is the input itself")
def copy_of_a_written_input(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> torch.Tensor:
        x[1:] += 1
        return x.clone()

    x = counted(6)
    y = compiled(program)(x)
    y.zero_()
    return x, y


@report("pytorch#130394", "a result made by empty_strided with gaps is dense")
def strides_of_empty_strided(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> torch.Tensor:
        result = torch.empty_strided(x.size(), x.stride())
        result[:] = x + x
        return result

    return compiled(program)(torch.as_strided(counted(6, 6), (6, 3), (6, 1)))


@report("pytorch#93562", "select of an input that starts inside its storage starts at the storage's start")
def view_of_an_input_with_offset(compiled: Compile) -> object:
    base = counted(3, 4, 5)
    result = compiled(lambda x: x.select(1, 2))(base[2])
    return result, result.storage_offset(), base


@report("pytorch#175325", "as_strided of an input with an offset, and of what is computed from it")
def as_strided_with_offset(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.as_strided(x, (2, 3), (3, 1)) + 1, torch.as_strided(x + 1, (2, 2), (1, 2), 1)

    return compiled(program)(counted(20)[4:14])


@report("pytorch#197431", "as_strided of a strided slice of a repeated tensor reads another tensor's memory")
def as_strided_of_a_slice(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> torch.Tensor:
        full = x.repeat((3, 2))
        return torch.as_strided(full[:, ::2], (3, 1), (full.stride(0), 1)) * 2

    return compiled(program)(counted(1, 1, start=4))


@report("pytorch#122239", "strides of channels-last results, dense results and results of size one")
def strides_of_results(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.permute(0, 2, 1)
        return (
            y + 1,
            y.reshape(-1, 4),
            torch.empty_like(y).fill_(2),
            y.contiguous(),
            y.cumsum(1),
            y.unfold(1, 2, 1) * 1,
        )

    return compiled(program)(counted(2, 3, 4)[:, :, :3].expand(2, 3, 3)[:, :, :2].repeat(1, 1, 2))


@report("pytorch#91233", "concatenation of channels-last images is contiguous")
def concatenated_channels_last(compiled: Compile) -> object:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = torch.cat((x * 2, y), 1)
        return z, F.pad(z, (1, 0)), z.mean(1, keepdim=True), torch.stack((x, x + 1))

    last = torch.channels_last
    x, y = counted(2, 3, 4, 5), counted(2, 2, 4, 5)
    return compiled(program)(x.contiguous(memory_format=last), y.contiguous(memory_format=last))


@report("pytorch#198031", "an operator that is given a tensor and its copy is given the tensor twice")
def operand_and_its_copy(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.clone()
        x.add_(y)
        y.sub_(x)
        return y, torch.maximum(x.clone(), x)

    x = counted(5)
    return compiled(program)(x), x


@report("", "inputs that are the same tensor, or views of one another, in one call and not in the next")
def aliased_in_one_call(compiled: Compile) -> object:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x + y

    call = compiled(program)
    a, b = counted(4), counted(4, start=9)
    return call(a, b), call(a, a), call(b, a), a, b


@report("pytorch#191002", "a returned slice of an input at an odd address is another slice")
def returned_slices_of_an_unaligned_input(compiled: Compile) -> object:
    x = counted(13)[1:].view(3, 4)
    top = compiled(lambda t: (t[:2], t.t(), t.view(2, 6)))(x)
    top[0].zero_()
    return x, top


@report("", "an expanded or overlapping input")
def expanded_inputs(compiled: Compile) -> object:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x + y, x.sum(0), y.cumsum(1), (x * y).reshape(-1), x.clone()

    overlapping = torch.as_strided(counted(8), (4, 3), (1, 2))
    return compiled(program)(counted(3).expand(4, 3), overlapping)


@report("pytorch#107066", "views and reads of tensors without elements or dimensions")
def tensors_without_elements(compiled: Compile) -> object:
    def program(x: torch.Tensor, s: torch.Tensor) -> tuple[Any, ...]:
        return (
            x.sum(0),
            x.sum(1),
            x.prod(),
            x.reshape(4, 0),
            torch.cat((x, x), 1),
            s.expand(3) + x.sum(),
            x.mean(0),
        )

    return compiled(program)(torch.zeros(0, 3), torch.tensor(4.0))


@report("", "a result without elements is no longer a view")
def aliases_without_elements(compiled: Compile) -> object:
    x = torch.zeros(0)
    return compiled(lambda t: (t, t.unsqueeze(1), t.view(0, 2)))(x), x
