"""``litz device``: the functions that a device out of tree has to have are called, each missing one is named, and the
conformance suites run on the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.markup import escape

from litz.capture.compile_fx import compile_fx
from litz.configuration import config
from litz.devices import functions_of
from litz.testing import device_conformance
from litz_ir.target import find_target

_ROWS, _COLUMNS = 5, 7
"""Shape of the tensors that the checks use: small, and with an odd number of elements."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A function to write, or a few that belong together, and its check."""

    name: str
    """Name of the function."""

    check: Callable[[str], None]
    """Calls it for a kind of device; raises any exception if it is missing or wrong."""


def device(console: Console, kind: str) -> int:
    """Print the check of each function and the results of conformance; return 1 if something fails, else 0.

    Checks end at the first that fails, since later functions need earlier ones.
    """
    for number, step in enumerate(_STEPS, 1):
        console.print(f"{number}. {escape(step.name)}: ", end="", soft_wrap=True)
        console.file.flush()  # a device that lacks a function may end the process
        try:
            step.check(kind)
        except Exception as error:  # whatever a device raises is reported
            text = str(error).strip().partition("\n")[0]
            console.print(f"[red]missing[/]\n  {type(error).__name__}: {escape(text)}", soft_wrap=True)
            console.print(f"  write it as docs/devices.md says, function {number}", soft_wrap=True)
            return 1
        console.print("[green]good[/]")
    kernels, graphs = device_conformance(kind)
    for name, report in (("kernels", kernels), ("graphs", graphs)):
        console.print(f"conformance of {name}: {report.describe()}", markup=False, soft_wrap=True)
    return 1 if kernels.failed or graphs.failed else 0


def _expect(holds: bool, otherwise: str) -> None:
    """Raise ``RuntimeError`` unless a condition holds."""
    if not holds:
        raise RuntimeError(otherwise)


def _numbers(kind: str = "cpu") -> torch.Tensor:
    """Return numbers on a device, made on the CPU."""
    return torch.linspace(-3, 3, _ROWS * _COLUMNS).reshape(_ROWS, _COLUMNS).to(kind)


def _is_registered(kind: str) -> None:
    _expect(torch.get_device_module(kind).device_count() > 0, "device_count() of torch's module of it is 0")


def _has_a_guard(kind: str) -> None:
    functions, last = functions_of(kind), torch.get_device_module(kind).device_count() - 1
    before = functions.current()
    with functions.device(last):
        _expect(functions.current() == last, f"device {last} is not current where it was made so")
    _expect(functions.current() == before, "the device that was current before is not current again")


def _has_streams(kind: str) -> None:
    stream, event = torch.Stream(device=kind), torch.Event(device=kind)
    with stream:
        _expect(torch.accelerator.current_stream() == stream, "a stream is not current where it was made so")
        event.record()
    stream.wait_event(event)
    event.synchronize()
    _expect(event.query(), "an event that was waited for has not happened")
    stream.synchronize()
    functions_of(kind).synchronize()


def _allocates(kind: str) -> None:
    storage = torch.UntypedStorage(64, device=kind)
    _expect(storage.data_ptr() % 64 == 0, "addresses are no multiples of 64 bytes")


def _makes_tensors(kind: str) -> None:
    made = torch.empty_strided((_ROWS, _COLUMNS), (1, _ROWS), dtype=torch.float64, device=kind)
    _expect(made.stride() == (1, _ROWS) and made.dtype == torch.float64, "strides or dtype are not kept")
    _expect(torch.empty(_ROWS, device=kind).device.index is not None, "tensors have no ordinal of a device")


def _copies(kind: str) -> None:
    numbers = _numbers()
    there = torch.empty_strided((_ROWS, _COLUMNS), (1, _ROWS), dtype=torch.float64, device=kind)
    back = there.copy_(numbers).to("cpu", torch.float32)
    _expect(torch.equal(back, numbers), "numbers that were copied there and back are others")


def _has_hooks(kind: str) -> None:
    numbers = _numbers(kind)
    storage = numbers.untyped_storage()
    storage.resize_(2 * storage.nbytes())
    _expect(torch.equal(numbers.to("cpu"), _numbers()), "a storage that grew has lost its contents")
    kept = torch.accelerator.current_device_index()
    _expect(torch.accelerator.is_available() and kept == functions_of(kind).current(), "it is not available")


def _views(kind: str) -> None:
    for view in _VIEWS:
        found, expected = _numbers(kind), _numbers()
        written = view(expected)
        view(found).copy_(torch.ones_like(written))
        written.fill_(1)
        _expect(torch.equal(found.to("cpu"), expected), "a view is a copy: what is written to it is lost")


_VIEWS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    lambda x: x.t()[1:, ::2],
    lambda x: x.view(_COLUMNS, _ROWS)[0],
    lambda x: x.unfold(1, 2, 2)[0],
    lambda x: torch.view_as_real(torch.view_as_complex(x.view(-1)[:6].view(3, 2)))[1],
    lambda x: torch.empty(0, device=x.device).set_(x.untyped_storage(), 3, (4, 2), (_COLUMNS, 2)),
)
"""Views that torch's kernels, or programs, ask a device for."""


def _computes(kind: str) -> None:
    for function in (
        _convolution,
        torch.special.i0,
        torch.nonzero,
        lambda x: x @ x.T,
        lambda x: x.add_(x).sum(),
    ):
        found, expected = function(_numbers(kind)).to("cpu"), function(_numbers())
        _expect(torch.allclose(found, expected, rtol=1e-4, atol=1e-5), "eager's results are not the CPU's")
    means = torch.zeros(_COLUMNS, device=kind)
    torch.nn.functional.batch_norm(_numbers(kind), means, torch.ones_like(means), training=True)
    _expect(bool(means.to("cpu").any()), "running statistics of aten::native_batch_norm stay as they were")
    _expect(_numbers(kind)[1, 2].item() == _numbers()[1, 2].item(), "item() is another number")


def _convolution(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv2d(x[None, None], x[None, None, :3, :3])


def _launches(kind: str) -> None:
    find_target(kind)
    for ordinal in range(torch.get_device_module(kind).device_count()):
        x = _numbers(f"{kind}:{ordinal}")
        with config.patch(fallback="error", cache=False), torch.no_grad():
            found = compile_fx(torch.fx.symbolic_trace(_softmax), [x])(x)
        _expect(found.device == x.device, "the result of a kernel is on another device")
        _expect(torch.allclose(found.to("cpu"), _softmax(_numbers())), "a softmax is another than the CPU's")


def _softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(2 * x, -1)


_STEPS = (
    _Step("register, an entry point in the group torch.backends", _is_registered),
    _Step("DeviceGuardImplInterface: devices", _has_a_guard),
    _Step("DeviceGuardImplInterface: streams and events", _has_streams),
    _Step("Allocator::allocate", _allocates),
    _Step("aten::empty_strided and aten::empty.memory_format", _makes_tensors),
    _Step("aten::_copy_from", _copies),
    _Step("PrivateUse1HooksInterface", _has_hooks),
    _Step("aten::as_strided and the other views", _views),
    _Step("the fallback for all other operators", _computes),
    _Step("KernelModule.function of a target, an entry point in the group litz.targets", _launches),
)
"""The functions in the order of ``docs/devices.md``, where each needs those before it."""
