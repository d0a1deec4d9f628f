"""Quantities as people read them: bytes, seconds and rates with the fitting unit."""

from __future__ import annotations

_BYTES = (("GB", 1e9), ("MB", 1e6), ("KB", 1e3))
_SECONDS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))
_FLOPS = (("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6), ("KFLOP", 1e3))


def bytes_text(nbytes: float) -> str:
    """Return a number of bytes, as ``4.2 MB``."""
    return _scaled(nbytes, _BYTES, "B")


def seconds_text(seconds: float | None) -> str:
    """Return a time, as ``12.3 us``; empty for ``None``."""
    return "" if seconds is None else _scaled(seconds, _SECONDS, "ns", 1e-9)


def flops_text(flops: float | None) -> str:
    """Return a number of floating-point operations, as ``1.2 GFLOP``; empty for ``None``."""
    return "" if flops is None else _scaled(flops, _FLOPS, "FLOP")


def rate_text(flops: float) -> str:
    """Return floating-point operations per second, as ``1.2 GFLOP/s``."""
    return f"{flops_text(flops)}/s"


def _scaled(value: float, units: tuple[tuple[str, float], ...], least: str, size: float = 1.0) -> str:
    """Return a value in the largest unit that it reaches, else in the unit ``least`` of this size."""
    for name, scale in units:
        if value >= scale:
            return f"{_digits(value / scale)} {name}"
    return f"{_digits(value / size)} {least}"


def _digits(value: float) -> str:
    """Return three significant digits; whole numbers below 1000 as they are."""
    if value == int(value) and value < 1000:
        return str(int(value))
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
