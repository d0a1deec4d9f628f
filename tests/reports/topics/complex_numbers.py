"""Complex numbers, conjugate views and Fourier transforms."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from reports.table import Compile, counted, drawn, report


def _complex(*shape: int) -> torch.Tensor:
    return torch.complex(drawn(*shape), drawn(*shape, seed=1))


@report("pytorch#171852", "linear and convolution layers of conjugate views do not compile")
def layers_of_conjugates(compiled: Compile) -> object:
    with torch.random.fork_rng():
        torch.manual_seed(2)
        fc, conv = nn.Linear(4, 4, dtype=torch.complex64), nn.Conv2d(1, 2, 2, dtype=torch.complex64)

    def program(x: torch.Tensor) -> torch.Tensor:
        y = fc(torch.complex(x, torch.zeros_like(x)).conj())
        y = torch.complex(F.relu(y.real), y.imag).conj()
        return conv(y.view(-1, 1, 2, 2)).conj().flatten(1)

    with torch.no_grad():
        return compiled(program)(drawn(3, 4))


@report("pytorch#148950", "the sum of a complex tensor and its conjugate does not compile")
def sum_with_the_conjugate(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x + x.conj(), x * x.conj(), x.conj() - 1j, x.conj().t() @ x, x.conj().imag, x.mH

    return compiled(program)(_complex(5, 5))


@report("pytorch#174891", "a sum with a broadcast complex tensor adds its real part to imaginary parts")
def broadcast_complex_sum(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x + torch.ones(2, 1, dtype=torch.complex64),
            x - 2,
            3 * x,
            x / torch.tensor([[2.0], [4.0]]),
            x + 1j,
        )

    return compiled(program)(torch.full((2, 2), 1.0, dtype=torch.complex64))


@report("pytorch#172073", "a complex tensor without dimensions cannot be added to itself")
def complex_without_dimensions(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.scalar_tensor(2.5, dtype=torch.complex64)
        return y + y, x + y, x.sum() * y, x.real.sum() + y.imag

    return compiled(program)(_complex(3))


@report("pytorch#160495", "complex tensors of one element with and without dimensions cannot be added")
def complex_of_one_element(compiled: Compile) -> object:
    return compiled(lambda x, y: (x + y, y * x, (y - x).abs()))(_complex(1), torch.tensor(2 + 3j))


@report("pytorch#97562", "rotary embeddings as complex multiplications do not compile")
def complex_rotary_embedding(compiled: Compile) -> object:
    def program(q: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        rotation = torch.polar(torch.ones_like(angles), angles)
        rotated = torch.view_as_complex(q.float().reshape(*q.shape[:-1], -1, 2)) * rotation
        return torch.view_as_real(rotated).flatten(-2).type_as(q)

    return compiled(program)(drawn(2, 3, 8), drawn(3, 4, seed=1)), compiled(program)(
        drawn(2, 3, 8).bfloat16(), drawn(3, 4)
    )


@report("pytorch#188718", "view_as_complex of a transposed tensor does not compile")
def transposed_as_complex(compiled: Compile) -> object:
    x = counted(2, 2, 2).transpose(0, 1)
    return compiled(torch.view_as_complex)(x), x


@report("pytorch#105290", "the gradient of a multiplication by a complex number does not compile")
def gradient_of_a_complex_number(compiled: Compile) -> object:
    x: Any = _complex(4).requires_grad_()
    y = compiled(lambda t: (t * (2 - 1j) + t**2 / 1j).abs())(x)
    y.sum().backward()
    return y.detach(), x.grad


@report("pytorch#171665", "activation checkpoints of complex parts do not compile")
def checkpoints_of_complex_parts(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> torch.Tensor:
        z = torch.utils.checkpoint.checkpoint(torch.complex, x, x * 2, use_reentrant=False).conj()
        real = torch.utils.checkpoint.checkpoint(torch.real, z, use_reentrant=False)
        return F.relu(real) + z.imag

    x: Any = drawn(4).requires_grad_()
    y = compiled(program)(x)
    y.sum().backward()
    return y.detach(), x.grad


@report("pytorch#166514", "a Fourier transform after a convolution has other strides than its meta kernel")
def transform_after_a_convolution(compiled: Compile) -> object:
    weight = drawn(4, 3, 3, 3, seed=1)

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.conv2d(x, weight, padding=1)
        return (
            torch.fft.ifft(y, n=12).real,
            torch.fft.fft2(y).imag,
            torch.fft.irfft(y[..., :5].to(torch.complex64)),
        )

    return compiled(program)(drawn(2, 3, 8, 8))


@report("pytorch#167636", "a Fourier transform over the first dimension has other strides")
def transforms_over_each_dimension(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        each = [torch.fft.fft(x, dim=d) for d in range(3)]
        return *each, torch.fft.rfft(x, dim=1), torch.fft.fftn(x), torch.fft.fftshift(x)

    return compiled(program)(drawn(3, 5, 7))


@report("pytorch#182200", "gradients of stft and of transforms over several dimensions do not compile")
def gradients_of_transforms(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> torch.Tensor:
        short = torch.stft(x.flatten(), 8, 4, window=torch.ones(8), return_complex=True).abs().sum()
        return short + torch.fft.rfftn(x).abs().sum() + torch.fft.fftn(x).real.pow(2).sum() / 9

    x: Any = drawn(2, 4, 8).requires_grad_()
    y = compiled(program)(x)
    y.backward()
    return y.detach(), x.grad


@report("pytorch#141426", "a conjugate of a transposed transform has contiguous strides")
def strides_of_a_conjugate(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.fft.fft(x, dim=1)
        return (
            torch.conj_physical(y),
            y.conj().resolve_conj(),
            x.transpose(0, 1) * 2,
            torch.fft.ifft(y, dim=0),
            -y,
        )

    return compiled(program)(_complex(5, 3, 6))


@report(
    "", "absolute values, angles, roots and comparisons of complex numbers, zero and infinite ones among them"
)
def functions_of_complex_numbers(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.abs(), x.angle(), x.sqrt(), x.exp(), x == x.conj(), x.sgn(), x.cumsum(0), x.prod(), x.mean(),
            x.isfinite(), x.reciprocal(), torch.where(x.real > 0, x, -x), x.pow(2), x.sin(),
            x.to(torch.complex128), x.isreal(), torch.stack((x, x)).sum(0),
        )  # fmt: skip

    return compiled(program)(torch.tensor([1 + 2j, -1 - 1j, 3 + 0j, -2 + 0j, 0.5j]))


@report(
    "",
    "writes through real and imaginary views of a complex input",
    differs="AOTAutograd cannot capture the write to a conjugate view; litz warns, and runs it as eager does",
)
def writes_through_real_views(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> torch.Tensor:
        x.real.mul_(2)
        torch.view_as_real(x)[..., 1] += 1
        x.conj().add_(1j)
        return x.imag

    x = _complex(4)
    return compiled(program)(x), x
