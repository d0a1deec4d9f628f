"""Checks of an installation: versions, targets, devices, a compilation, threads and the cache."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Literal, Protocol, runtime_checkable

import torch

from litz.cache.store import FOLDERS, Store
from litz.capture.compile_fx import compile_fx
from litz.configuration import FOREIGN_VARIABLES, config
from litz.devices import CPU_KIND, GPU, gpu, other_accelerator
from litz.targets import targets_for
from litz_ir.errors import LitzError
from litz_ir.target import Capabilities, target_entries

State = Literal["good", "warning", "broken"]
"""Result of a check: a warning costs speed, or an extra; what is broken keeps graphs from being compiled."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    """Name of the checked thing."""

    state: State
    """Its result."""

    found: str
    """Description of what was found."""

    mend: str = ""
    """Next step; empty where nothing is wrong."""


@runtime_checkable
class _Compiler(Protocol):
    """A compiler that a target found."""

    path: str
    version: str


@runtime_checkable
class _CompilingTarget(Protocol):
    """A target that calls a compiler."""

    def compiler(self) -> object:
        """Return the compiler; raise ``ToolchainError`` where there is none."""


_SIBLINGS = ("litz-ir", "litz-lowering", "litz-scheduler", "litz-codegen-cpp")
_GPU_TARGET = "litz-codegen-triton"

_TESTED = (64, 48)
"""Shape of the tensor of the compilation."""


def checks() -> Iterator[Check]:
    """Yield the result of each check, in the order in which faults follow from one another."""
    yield from _versions()
    yield from _compilers()
    yield from _instruction_set()
    yield _threads()
    yield from _gpus()
    yield from _cache()
    yield from _compilations()
    for line in FOREIGN_VARIABLES:
        yield Check("environment", "warning", line, "unset it, or set litz's option instead")


def _versions() -> Iterator[Check]:
    """Check the versions of Python, torch and litz's packages against litz's requirements."""
    yield Check("Python", "good", sys.version.split()[0])
    wanted = dict(map(_requirement, _requirements()))
    for name in ("torch", "litz", *_SIBLINGS):
        try:
            found = version(name)
        except PackageNotFoundError:
            yield Check(name, "broken", "not installed", f"pip install {name}")
            continue
        allowed = wanted.get(name, "")
        if _fits(found, allowed):
            yield Check(name, "good", found)
        else:
            yield Check(name, "broken", f"{found}, litz needs {allowed}", f"pip install '{name}{allowed}'")


def _installed(name: str) -> str:
    """Return the version of a package; a word for one under another name, such as builds of Triton by torch."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "of unknown version"


def _requirements() -> list[str]:
    """Return litz's own requirements; none where it is not installed but found on the path."""
    try:
        return requires("litz") or []
    except PackageNotFoundError:
        return []


def _requirement(text: str) -> tuple[str, str]:
    """Divide a requirement into a name and the allowed versions; those of extras allow everything."""
    name, allowed = re.match(r"([\w.-]+)([^;]*)", text).groups()  # type: ignore[union-attr]  # metadata is well formed
    return name, "" if ";" in text else allowed.strip()


def _fits(found: str, allowed: str) -> bool:
    """Report whether a version is at least the lowest, and less than the bound, that a requirement names."""
    own = _numbers(found)
    for bound in filter(None, allowed.split(",")):
        if bound.startswith(">=") and own < _numbers(bound[2:]):
            return False
        if bound.startswith("<") and own >= _numbers(bound[1:]):
            return False
    return True


def _numbers(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version."""
    return tuple(int(each) for each in re.findall(r"\d+", text.partition("+")[0])[:3])


def _compilers() -> Iterator[Check]:
    """Check that the CPU's target finds its compiler."""
    try:
        target = targets_for([CPU_KIND], config.current()).by_kind[CPU_KIND]
        if isinstance(target, _CompilingTarget):
            found = target.compiler()
            text = f"{found.path} {found.version}" if isinstance(found, _Compiler) else str(found)
            yield Check("C++ compiler", "good", text)
    except LitzError as error:
        yield Check("C++ compiler", "broken", error.message, error.hint or "pip install litz-codegen-cpp")


def _instruction_set() -> Iterator[Check]:
    """Check the instruction set that kernels for the CPU are compiled for."""
    known = _capabilities(CPU_KIND)
    if isinstance(known, Capabilities):
        wide = known.name != "scalar"
        found = f"{known.name}, {known.model.vector_bytes} bytes a vector"
        mend = "" if wide else "use a machine or container that shows AVX2, AVX-512 or NEON in /proc/cpuinfo"
        yield Check("instruction set", "good" if wide else "warning", found, mend)


def _capabilities(kind: str) -> Capabilities | LitzError:
    """Return the capabilities of a kind of device, or the error that keeps them from being read."""
    try:
        return targets_for([kind], config.current()).by_kind[kind].capabilities()
    except LitzError as error:
        return error


def _threads() -> Check:
    """Compare torch's threads with the CPUs that this process may use."""
    threads = torch.get_num_threads()
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found = f"{threads} of torch, on {cpus} CPUs"
    if threads > cpus:
        return Check(
            "threads", "warning", found, f"set OMP_NUM_THREADS={cpus}, or call torch.set_num_threads"
        )
    return Check("threads", "good", found)


def _gpus() -> Iterator[Check]:
    """Check that litz has a target for the GPUs that torch sees, and the versions that it needs."""
    if not gpu.is_available():
        built = torch.version.cuda or torch.version.hip
        hidden = f"none, though torch is built for {built}: is a driver loaded, and a device visible?"
        yield Check("GPU", "good", hidden if built else "none, and torch is built for CPUs")
        return
    names = ", ".join(gpu.get_device_name(k) for k in range(gpu.device_count()))
    yield Check("GPU", "good", names)
    if GPU not in target_entries():
        mend = "pip install 'litz[cuda]'"
        yield Check("GPU target", "broken", f"{_GPU_TARGET} is not installed", mend)
        return
    known = _capabilities(GPU)
    if isinstance(known, LitzError):
        yield Check("GPU target", "broken", known.message, known.hint or f"pip install {_GPU_TARGET}")
        return
    versions = ", ".join(f"{name} {_installed(name)}" for name in (_GPU_TARGET, "triton"))
    yield Check("GPU target", "good", f"{versions}, {known.name}")


def _cache() -> Iterator[Check]:
    """Check that the cache is on, belongs to this user, can be written, and that files in it can be executed."""
    chosen = config.current()
    root = chosen.cache_root()
    if not chosen.uses_disk:
        yield Check("cache", "warning", "off: each process compiles its graphs", "set LITZ_CACHE=1")
        return
    try:
        stores = [Store(root / name) for name in FOLDERS]
    except LitzError as error:
        yield Check("cache", "broken", error.message, error.hint)
        return
    if not all(store.writable for store in stores):
        mend = "nothing to do if it is shipped so; else set LITZ_CACHE_DIR to a folder of yours"
        yield Check("cache", "warning", f"{root} is read only", mend)
    elif os.statvfs(root).f_flag & os.ST_NOEXEC:
        mend = "set LITZ_CACHE_DIR to a folder on a file system that is mounted without noexec"
        yield Check("cache", "broken", f"{root} is on a file system mounted noexec", mend)
    else:
        free = shutil.disk_usage(root).free
        state: State = "good" if free > 1 << 30 else "warning"
        found = f"{root}, {free / 1e9:.1f} GB free"
        yield Check("cache", state, found, "" if state == "good" else "litz cache clear, or free the disk")


def _compilations() -> Iterator[Check]:
    """Compile and run a small graph on each kind of device, without what was compiled before."""
    present = (CPU_KIND, GPU if gpu.is_available() else None, other_accelerator())
    for kind in present:
        if kind is not None and (kind == CPU_KIND or kind in target_entries()):
            yield _compilation(kind)


def _compilation(kind: str) -> Check:
    """Compile and run a softmax on one kind of device, and compare it with eager."""
    name = f"compilation for {kind}"
    graph = torch.fx.symbolic_trace(_softmax)
    root = config.current().cache_root()
    parent = root if root.is_dir() and os.access(root, os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="litz-doctor-", dir=parent)
    start = time.perf_counter()
    try:
        x = torch.linspace(-3, 3, _TESTED[0] * _TESTED[1], device=kind).reshape(_TESTED)
        with config.patch(cache_dir=folder, fallback="error"), torch.no_grad():
            result = compile_fx(graph, [x])(x)
        agrees = torch.allclose(result, _softmax(x), rtol=1e-4, atol=1e-6)
    except (LitzError, RuntimeError, OSError) as error:
        hint = error.hint if isinstance(error, LitzError) else ""
        text = error.message if isinstance(error, LitzError) else str(error)
        return Check(name, "broken", text, hint or "see docs/failures.md, and report it")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    seconds = time.perf_counter() - start
    if not agrees:
        return Check(
            name, "broken", "a softmax differs from eager's", "report it; LITZ_FUSE=0 may help meanwhile"
        )
    return Check(name, "good", f"a softmax compiles and agrees with eager's, in {seconds:.1f} s")


def _softmax(x: torch.Tensor) -> torch.Tensor:
    """Return the softmax of the rows of doubled elements."""
    return torch.softmax(2 * x, -1)
