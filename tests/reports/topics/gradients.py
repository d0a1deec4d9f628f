"""Gradients: custom functions, hooks, transforms, checkpoints, autocast."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from reports.table import Compile, attempt, counted, drawn, report


@report("pytorch#136662", "torch.func.grad of two writes to one column counts one of them")
def grad_of_two_column_writes(compiled: Compile) -> object:
    def total(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros_like(x)
        y[:, 0] += x[:, 2].abs()
        y[:, 0] += x[:, 1] * x[:, 2].abs()
        return y.sum()

    return compiled(lambda x: torch.func.grad(total)(x), fullgraph=True)(drawn(2, 3))


class TimesThree(torch.autograd.Function):
    """Multiply in place."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        x.mul_(3)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * 3


@report("pytorch#184113", "mark_dirty is ignored where the result of apply is not used")
def marked_dirty(compiled: Compile) -> object:
    def program(w: torch.Tensor, use: bool) -> torch.Tensor:
        y = torch.ones(2, 2) @ w
        result = TimesThree.apply(y)
        return (result if use else y).sum()

    seen = []
    for use in (True, False):
        w: Any = torch.eye(2).requires_grad_()
        loss = compiled(program)(w, use)
        loss.backward()
        seen.append((loss.detach(), w.grad))
    return seen


class ScaledGradient(torch.autograd.Function):
    """Identity whose gradient is multiplied by what the forward saved."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        y += 1
        ctx.save_for_backward(x)
        ctx.factor = factor
        return y, x > 0

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradients[0] * ctx.factor * x, None


@report("pytorch#180642", "a write in the forward of a custom function gives its gradient to another result")
def write_in_a_custom_forward(compiled: Compile) -> object:
    x: Any = counted(4).requires_grad_()
    y, positive = compiled(lambda t: ScaledGradient.apply(t * 3, 0.5))(x)
    y.sum().backward()
    return y.detach(), positive, x.grad


@report("pytorch#91468", "retain_grad and hooks on intermediates and results are ignored")
def retained_gradients(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.clone()
        y.register_hook(lambda g: g * 10)
        z = y * y
        return z, y

    x: Any = torch.tensor([1.0, 2.0], requires_grad=True)
    z, y = compiled(program)(x)
    z.retain_grad()
    z.sum().backward()
    return z.detach(), y.detach(), x.grad, z.grad


@report("pytorch#116221", "hooks on saved tensors around a call are ignored")
def hooks_on_saved_tensors(compiled: Compile) -> object:
    a: Any = torch.ones(2, requires_grad=True)
    b: Any = torch.tensor([2.0, 5.0], requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        y = compiled(lambda p, q: p * q + p.exp())(a, b)
    y.sum().backward()
    return a.grad, b.grad


@report(
    "pytorch#115750",
    "a backward hook that is added to a module after the first call is ignored",
    differs="Dynamo does not guard a module's backward hooks (under `aot_eager` too)",
)
def backward_hook_after_the_first_call(compiled: Compile) -> object:
    layer = nn.Linear(3, 3, bias=False)
    layer.weight = nn.Parameter(torch.eye(3))
    call = compiled(lambda x: layer(x))
    call(drawn(3).requires_grad_())
    handle = layer.register_full_backward_hook(lambda module, inputs, outputs: tuple(g * 2 for g in inputs))
    x: Any = drawn(3).requires_grad_()
    call(x).sum().backward()
    handle.remove()
    return x.grad


class ZeroGradient(torch.autograd.Function):
    """Sine whose gradient is zero."""

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return torch.zeros_like(gradients[0])


@report(
    "pytorch#193279",
    "the backward of a custom function is ignored under torch.func.grad",
    differs="Dynamo traces the forward alone (under `aot_eager` too)",
)
def custom_function_under_a_transform(compiled: Compile) -> object:
    return attempt(compiled(torch.func.grad(lambda x: ZeroGradient.apply(x).sum())), drawn(4))


@report(
    "pytorch#138422",
    "vmap over autograd.grad of a compiled result fails",
    differs="AOTAutograd's backward cannot be batched: it raises (under `aot_eager` too)",
)
def vmap_over_gradients(compiled: Compile) -> object:
    x: Any = drawn(3).requires_grad_()
    y = compiled(lambda t: t**2)(x)
    return attempt(torch.vmap(lambda v: torch.autograd.grad(y, x, v)[0]), torch.eye(3))


@report("pytorch#154036", "a vmapped jacrev with further results has another shape")
def vmap_of_jacrev(compiled: Compile) -> object:
    def wave(x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        return torch.exp(-((x - 4 * time) ** 2) / (time + 1))

    def program(x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        slope, value = torch.func.jacrev(lambda p: (wave(p, time),) * 2, has_aux=True)(x)
        return slope / value + 4

    both = torch.vmap(torch.vmap(program, (0, None)), (None, 0))
    return compiled(both)(torch.linspace(-1, 1, 5).double(), torch.tensor([0.0, 0.5]).double())


@report(
    "pytorch#151196",
    "vmap of jacfwd cannot be compiled",
    differs="Dynamo raises (under `aot_eager` too)",
)
def vmap_of_jacfwd(compiled: Compile) -> object:
    def program(t: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(torch.func.jacfwd(lambda s, p: (p * s).sin()), (0, 0))(t, x)

    return attempt(compiled(program), drawn(3), drawn(3, 4))


@report("pytorch#194706", "jacfwd of a chain of matmuls in half precision does not compile")
def jacfwd_of_matmuls(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.sum((torch.prod(x) + x) @ (torch.sum(x) + x))

    x = (torch.arange(1, 10).double() / 10).reshape(3, 3)
    return attempt(compiled(torch.func.jacfwd(program)), x), compiled(torch.func.jacrev(program))(x)


@report("", "per-sample gradients, hessians and tangents")
def transforms(compiled: Compile) -> object:
    def loss(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return ((x @ w).tanh() ** 2).sum()

    w, x = drawn(3), drawn(4, 3, seed=1)
    each = compiled(torch.vmap(torch.func.grad(loss), (None, 0)))(w, x)
    hessian = compiled(torch.func.hessian(loss))(w, x)
    tangent = compiled(lambda a, b: torch.func.jvp(lambda t: loss(t, b), (a,), (a * 2,)))(w, x)
    pull = compiled(lambda a: torch.func.vjp(lambda t: t.sin() * t, a)[1](a)[0])(w)
    return each, hessian, tangent, pull


@report(
    "pytorch#179804",
    "the backward of a part with autocast turned off runs in the outer dtype",
    differs="AOTAutograd traces the backward under the autocast around the call (under `aot_eager` too)",
)
def autocast_off_inside(compiled: Compile) -> object:
    w: Any = drawn(8, 8).requires_grad_()

    def inner(x: torch.Tensor) -> torch.Tensor:
        with torch.amp.autocast("cpu", enabled=False):
            return x.float() @ w.float().t()

    x = drawn(4, 8, seed=1).bfloat16()
    with torch.amp.autocast("cpu", dtype=torch.bfloat16):
        y = compiled(inner)(x)
    y.sum().backward()
    return y.detach(), w.grad


@report("pytorch#124901", "layers, softmax and sums under autocast have other dtypes than in eager")
def dtypes_under_autocast(compiled: Compile) -> object:
    layer = nn.Linear(4, 4)
    with torch.no_grad():
        layer.weight.copy_(drawn(4, 4))
        layer.bias.zero_()

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = layer(x)
        return (
            y,
            y.softmax(-1),
            y + x,
            (y @ y.t()).sum(),
            F.layer_norm(y, [4]),
            torch.cat((y, x)),
            F.mse_loss(y, x),
        )

    x: Any = drawn(3, 4, seed=2).requires_grad_()
    results = []
    for enabled in (True, False, True):
        with torch.amp.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            results.append([each.detach().float() for each in compiled(program)(x)])
    return [[each.dtype for each in row] for row in results], [row[0] for row in results]


@report("pytorch#190758", "dropout that is recomputed under a memory budget is drawn again for the gradient")
def dropout_under_a_memory_budget(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x.sin(), 0.5).exp() * x

    x: Any = torch.ones(64, requires_grad=True)
    with torch._functorch.config.patch(activation_memory_budget=0.0):
        y = compiled(program)(x)
        y.sum().backward()
    kept = y.detach() > 1.5
    return kept, x.grad


@report("pytorch#121966", "dropout in a checkpoint around a compiled function")
def checkpoint_of_a_compiled_function(compiled: Compile) -> object:
    x: Any = torch.ones(32, requires_grad=True)
    call = compiled(lambda t: F.dropout(t * 5, 0.5))
    y = checkpoint(call, x, use_reentrant=False)
    y.backward(torch.ones(32))
    return y.detach(), x.grad


@report("", "second gradients, gradients of several results, and of inputs that are not used")
def second_gradients(compiled: Compile) -> object:
    def program(x: torch.Tensor, w: torch.Tensor, unused: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x.sin() * w).sum(), (x**3).detach() * w

    x, w, u = (drawn(3, seed=s).requires_grad_() for s in range(3))
    first, second = compiled(program)(x, w, u)
    gradients = torch.autograd.grad((first, second.sum()), (x, w, u), allow_unused=True)
    return [None if g is None else g.clone() for g in gradients], second.requires_grad


@report("", "no_grad and inference_mode inside a function, around a call, and changing between calls")
def grad_modes(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            y = x * 2
        return y, x * y, torch.tensor(float(torch.is_grad_enabled()))

    call = compiled(program)
    x = counted(3).requires_grad_()
    seen: list[Any] = [[each.requires_grad for each in call(x)]]
    with torch.no_grad():
        seen.append([each.requires_grad for each in call(x)])
    with torch.inference_mode():
        seen.append([each.is_inference() for each in call(x.detach())])
    return [*seen, [each.detach() for each in call(x)]]
