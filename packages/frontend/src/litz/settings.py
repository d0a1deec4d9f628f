"""Options of litz: typed and scoped.

``litz.config`` is the handle. ``litz.config.patch(fallback="error")`` holds inside a ``with`` block, for its thread
and the tasks started there; ``litz.config.fallback = "error"`` holds for the process. A compilation reads its options
once, when it starts, so a backward graph that is compiled later has the options of its forward.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args, get_type_hints

import torch.compiler.config
from platformdirs import user_cache_path

from litz.environment.variables import nearest, quota_bytes, unknown_variables, values_in
from litz.notices import log_once
from litz.passes import NO_PASSES, Passes
from litz_ir.errors import ConfigError
from litz_scheduler import parse_options


@dataclass(frozen=True, slots=True)
class Config:
    """Options of one compilation.

    Each can be set by ``litz.config``, by the environment variable ``LITZ_<NAME>``, and by the ``options`` argument
    of ``torch.compile``. Flags take 0 or 1 in the environment.
    """

    fallback: Literal["warn", "silent", "error"] = "warn"
    """Treatment of operations that should be generated and are not, or that fail to compile: ``warn`` runs them as
    ATen kernels and logs that once, ``silent`` runs them so without a log line, ``error`` raises. Default ``warn``:
    a missing rule costs speed, not the program. Operations that litz calls from ATen by design (most sorts, linear
    algebra, results of data-dependent size; ``docs/operators.md`` names all) are not affected."""

    rng: Literal["eager", "fast"] = "eager"
    """Source of random numbers: ``eager`` draws from ATen's generator in program order, ``fast`` generates Philox
    numbers inside kernels. Default ``eager``, which gives the numbers of eager PyTorch for the same seed."""

    numerics: Literal["strict", "eager", "fast"] = "eager"
    """Rounding: ``strict`` gives the bits of eager PyTorch, and leaves every operator whose loops would not to eager's
    kernels (``docs/numerics.md``); ``eager`` rounds where eager PyTorch does, also to low-precision dtypes between
    operations; ``fast`` may differ in the last place where that is faster (a quotient by a constant becomes a
    multiplication by its reciprocal). Default ``eager``, since eager PyTorch is the specification."""

    batch_invariant: bool = False
    """Results of a row that do not depend on the number of rows of its batch, on a CPU: sums are neither split nor
    ordered by the number of results, and matmuls are loops (``docs/numerics.md`` says what holds for other routines of
    libraries). Default off: matmuls take several times as long."""

    deterministic: bool = False
    """Results that repeat bit by bit: graphs are compiled, and their calls run, as under
    ``torch.use_deterministic_algorithms(True)``, a setting of the process that is on during each call, and nothing is
    tuned. Operators without a deterministic kernel raise torch's error. Default off: sums by atomics are faster on a
    GPU."""

    cache: bool = True
    """Read and write compiled graphs on disk. Default on: a second process then compiles nothing that a first one
    did."""

    cache_dir: str | None = None
    """Path of the cache folder; ``None`` for the cache folder of the platform. The environment variable
    ``TORCHINDUCTOR_CACHE_DIR`` sets it too, to the folder ``litz`` below its own. Default ``None``, one cache per
    user."""

    cache_layers: str = ""
    """Paths of cache folders that are only read, after ``cache_dir`` and in this order, with ``os.pathsep`` (a colon)
    between them: part of a container, or on a file system that machines share (``docs/caches.md``). Default empty."""

    cache_remote: str = field(default="", repr=False)
    """URL of a cache that machines share, asked last: ``redis://host:port/0``, or one that fsspec knows
    (``s3://bucket/folder``, ``file:///mnt/cache``). Of Inductor's variables, ``TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE=1``
    with ``TORCHINDUCTOR_REDIS_HOST`` and ``TORCHINDUCTOR_REDIS_PORT`` set it too. It needs ``cache_remote_key``.
    Default empty."""

    cache_remote_key: str = field(default="", repr=False)
    """Secret text that the machines of a remote cache share: entries are signed with it (HMAC-SHA-256), and those of
    another key are not used. It is never shown or saved. Default empty: no remote cache is used."""

    cache_quota: str = ""
    """Most bytes of entries in the cache folder, such as ``5GB`` or ``500 MiB``: after a write that exceeds them,
    entries are deleted, the least recently used first. Default empty: nothing is deleted."""

    compiler: str | None = None
    """Command of the C++ compiler; ``None`` for ``g++``, or ``clang++`` where that is missing. The environment
    variable ``CXX`` sets it too. Default ``None``, so that no configuration is needed."""

    isa: str | None = None
    """Name of the instruction set that CPU kernels are compiled for (``avx512``, ``avx2``, ``neon``, ``scalar``);
    ``None`` for the best that this machine has. Default ``None``; another one serves to compile for other machines."""

    chip: str | None = None
    """Compute capability of the GPU that kernels are compiled for (``sm_90``); ``None`` for that of the current
    device. Default ``None``; another one serves to compile for other machines."""

    prepack_weights: bool = True
    """Constant folding of frozen parameters in inference: values that depend on nothing but parameters (weights in
    the format that a library reads fastest, scaled by a following batch norm) are computed once and reused until a
    parameter changes. Default on: it saves the reordering in every call, for as many bytes as those weights have. A
    write through ``.data`` to single elements of a tensor of more than 4 KB may go unnoticed
    (``docs/decisions/0007-frozen-parameters.md``)."""

    attention: bool = True
    """Replacement of hand-written attention, matmuls around a softmax, by the attention kernel of the library, in
    inference on a CPU and where the values are the same (``docs/attention.md``). Default on, since the scores are
    then never stored."""

    sort_rows: bool = True
    """Generated sort kernels on a GPU for rows of 65 to 512 elements of at most 32 bits, where there are at least
    128 rows; ``topk`` of more than 8 elements uses them too. Values and indices are the same. Default on."""

    freezing: bool = False
    """Assumption that parameters never change after the first call, so that calls do not test for a change. Default
    off: a training step or ``load_state_dict`` changes parameters."""

    cuda_graphs: bool = False
    """CUDA graphs: the launches of a call on a GPU are captured, then replayed by one call of the driver, where
    sizes are fixed and no value is read by the host. Results are never overwritten while they are in use. Default
    off, since each captured graph has memory of its own."""

    autotune: bool = False
    """Autotuning: from the second call on, candidate configs of the kernels that move most data on a GPU are timed,
    and the fastest are used from then on and stored in the cache; matmuls are generated or called, whichever is
    faster. Default off: it delays the first calls, and sums may be rounded in another order afterwards."""

    autotune_seconds: float = 10.0
    """Time limit for autotuning one graph, in seconds, at least 0: three quarters of it for building candidate
    configs, and up to half of it before that for the choice between generated and called matmuls. Kernels that are
    not tuned in time keep their schedule. Default 10, by ``docs/decisions/0013-tuning.md``."""

    fuse: bool = True
    """Fusion of operations. Default on, since fused operations need not store their intermediate values. Off makes
    one kernel per operation, which is slow and helps to find a wrong kernel."""

    force: str = ""
    """Options of the scheduler that are set instead of chosen by its cost model, as words ``name=value`` with spaces
    between them (``siblings=0 lanes=outer``); :class:`litz_scheduler.SchedulerOptions` lists them. Default empty: it
    exists to measure the cost model's choices."""

    verify: bool = False
    """Verification of the IR after every pass. Default off, since it adds to compile time and finds only errors in
    passes."""

    check: bool = False
    """Run of the reference interpreter before and after every pass, with a comparison of the results. Default off: it
    takes far longer than compilation and finds only errors in passes."""

    self_check: Literal["off", "first", "sample"] = "off"
    """Comparison of the results of compiled graphs with ATen's: ``off``, in the first call (``first``), or in that
    and each 64th after it (``sample``). A kernel with wrong results is reported, and its operations run as ATen from
    then on, also in later processes with the same cache (``docs/self-check.md``). Default ``off``, since a checked
    call also runs the graph by ATen, several times where results differ."""

    debug_files: bool = False
    """Debug files: a folder for each graph below torch's debug folder (``torch._dynamo.config.debug_dir_root``), with
    the graph before and after each pass, the plan, sources, decisions, times and a repro (``docs/debugging.md``).
    Graphs are compiled although they are in the cache. Default off; the environment variable ``TORCH_COMPILE_DEBUG``
    sets it too."""

    nan_asserts: bool = False
    """Test of inputs and results of compiled graphs for NaN, which raises ``NanFound``. Default off: every call waits
    for its device, so this serves to find the operation where NaN first appears."""

    size_asserts: bool = False
    """Assertion in each call that inputs of compiled graphs have the shapes, strides and dtypes that the graph was
    compiled for, which raises ``InputMismatch``. Default off: guards of Dynamo test the same, so this finds errors of
    callers that pass them by. Results of operators are always tested."""

    alignment_asserts: bool = False
    """Assertion in each call that inputs of compiled graphs lie at addresses that are multiples of their element's
    size, on a GPU of 16 bytes, which raises ``Misaligned``. Default off: on a GPU, kernels are rebuilt for another
    alignment."""

    debug_values: Literal["off", "nan", "all"] = "off"
    """Log lines about the values that each kernel and library call of a compiled graph computes, with the user's
    lines: ``off``, results that contain NaN or infinity, each once (``nan``), or count of NaN and infinity, range and
    mean of every result (``all``). Default ``off``: every kernel is launched alone and waited for, without CUDA
    graphs (``docs/profiling.md``)."""

    compile_scheme: Literal["in_process", "subprocess", "async"] = "in_process"
    """Way to compile (``docs/compile-schemes.md``): in the calling process; in child processes, whose end, hang or
    hunger for memory costs one graph its kernels; or there while the program runs ATen (``async``). Default
    ``in_process``, which has the fewest parts."""

    compile_threads: int = 0
    """Most source units compiled at once, by all threads and children of the process; 0 for torch's number of threads,
    on a GPU for one a core. ``TORCHINDUCTOR_COMPILE_THREADS`` sets it too. Default 0: a program waits for them."""

    compile_timeout: float = 600.0
    """Time limit of a child process for one graph, in seconds. Default 600, twice the limit of a unit."""

    compile_memory: float = 0.0
    """Address space of a child process, and of each compiler that it starts, in GiB; 0, the default, for no bound."""

    progress_bar: bool = True
    """Progress bar on standard error, where that is a terminal, once compilation has taken two seconds. Default on."""

    passes: Passes = NO_PASSES
    """Passes of the program, which run between litz's own, by stage (:class:`litz.passes.Passes`, ``docs/passes.md``).
    Inductor's names for such passes (``post_grad_custom_post_pass`` and others) add to them. Default none; passes of
    installed packages run in addition."""

    disable_passes: str = ""
    """Names of passes of the program and of installed packages that do not run, with spaces between them. Default
    empty: it exists to find the pass that is at fault."""

    def cache_root(self) -> Path:
        """Return the folder that ``cache_dir`` names, or the cache folder of the platform for litz; for a
        user without a folder of their own one in the temporary folder."""
        if self.cache_dir is not None:
            return Path(self.cache_dir)
        try:
            found = user_cache_path("litz", appauthor=False)
        except RuntimeError:  # of newer releases of platformdirs; others leave the tilde
            found = Path("~")
        return found if found.is_absolute() else Path(tempfile.gettempdir(), f"litz-{os.getuid()}")

    def layer_roots(self) -> tuple[Path, ...]:
        """Return the folders that ``cache_layers`` names."""
        return tuple(Path(each) for each in self.cache_layers.split(os.pathsep) if each)

    @property
    def uses_disk(self) -> bool:
        """True where graphs are cached: ``cache`` is on, and torch's ``force_disable_caches`` is off."""
        return self.cache and not torch.compiler.config.force_disable_caches

    def in_force(self) -> Config:
        """Return the options as compilations read them; raise :class:`ConfigError` for some that exclude another."""
        if self.numerics == "strict" and self.batch_invariant:
            hint = "choose eager's bits (numerics='strict') or equal rows (batch_invariant)"
            raise ConfigError(
                "numerics='strict' and batch_invariant exclude one another: eager's sums depend on the batch",
                hint=hint,
            )
        return dataclasses.replace(self, autotune=False) if self.deterministic and self.autotune else self

    def promises(self) -> str:
        """Return the options about results that are not at their default, for reports; empty where all are."""
        chosen = "" if self.numerics == "eager" else f"numerics={self.numerics!r}"
        return ", ".join(filter(None, (chosen, *(name for name in _PROMISES if getattr(self, name)))))

    def replaced(self, changes: Mapping[str, Any]) -> Config:
        """Return the options with some changed; raise :class:`ConfigError` for unknown names and wrong values."""
        for name, value in changes.items():
            _validate(name, value)
        return dataclasses.replace(self, **changes)


_TYPES = get_type_hints(Config)

_PROMISES = ("batch_invariant", "deterministic", "nan_asserts", "size_asserts", "alignment_asserts")
"""Flags of options that promise something about results or inputs."""

_SECRETS = ("cache_remote", "cache_remote_key")
"""Options that may contain a password: :meth:`ConfigHandle.save` and errors leave them out."""

_NO_SUCH_OPTION = (
    "litz.list_options() lists the names; other options of Inductor set nothing here, and can be left out"
)
"""Hint about a name that resembles no option."""


_HINTS = {"passes": "name the stage, as in litz.passes.Passes(post_grad_after=(one, another))"}
"""Hint about a value of the wrong type, by option, where the type does not say how to make one."""


def _validate(name: str, value: object) -> None:
    """Raise :class:`ConfigError` for an unknown option or a value of the wrong type."""
    if name not in _TYPES:
        near = nearest(name, _TYPES)
        hint = f"did you mean {' or '.join(near)}?" if near else _NO_SUCH_OPTION
        raise ConfigError(f"unknown option {name!r}", hint=hint)
    expected = _TYPES[name]
    choices = get_args(expected)
    if choices and isinstance(choices[0], str):
        accepted = value in choices
        text = " or ".join(map(repr, choices))
    elif choices:
        accepted = isinstance(value, choices)
        text = " or ".join("None" if c is type(None) else c.__name__ for c in choices)
    elif expected in (int, float):
        kinds = int if expected is int else int | float
        accepted = isinstance(value, kinds) and not isinstance(value, bool) and value >= 0
        text = f"a {'whole ' if expected is int else ''}number that is not negative"
    else:
        accepted = isinstance(value, expected)
        text = expected.__name__
    if not accepted:
        hint = _HINTS.get(name, "")
        given = f"an object of the type {type(value).__name__}" if name in _SECRETS else repr(value)
        raise ConfigError(f"option {name!r} takes {text}, got {given}", hint=hint)
    if name == "force":
        parse_options(str(value))
    if name == "cache_quota":
        quota_bytes(str(value))


_DEFAULTS = Config()
"""All options at their default."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class ConfigHandle:
    """Type of ``litz.config``: reads, sets and scopes the options."""

    __slots__ = ("_default", "_scoped")
    _default: Config
    _scoped: ContextVar[Mapping[str, Any]]

    def __init__(self, environment: Mapping[str, str]) -> None:
        for line in unknown_variables(environment, _TYPES):
            log_once(line)
        object.__setattr__(self, "_default", Config().replaced(values_in(environment, _TYPES)))
        object.__setattr__(self, "_scoped", ContextVar[Mapping[str, Any]]("litz_config", default=_NOTHING))

    def current(self) -> Config:
        """Return the options in force for the calling thread or task."""
        scoped: Mapping[str, Any] = self._scoped.get()
        default: Config = self._default
        return default.replaced(scoped) if scoped else default

    @contextlib.contextmanager
    def patch(self, **changes: Any) -> Iterator[Config]:
        """Change options inside a ``with`` block; raise :class:`ConfigError` for unknown names and wrong values."""
        for name, value in changes.items():
            _validate(name, value)
        token = self._scoped.set({**self._scoped.get(), **changes})
        try:
            yield self.current()
        finally:
            self._scoped.reset(token)

    def save(self) -> str:
        """Return the options in force that are not at their default, as JSON; :meth:`load` sets them.

        The URL and the key of a remote cache, which may contain passwords, are left out. Raises :class:`ConfigError`
        for passes, which are objects of the program.
        """
        current = self.current()
        if current.passes:
            raise ConfigError("passes cannot be saved", hint="litz.config.patch(passes=Passes()) drops them")
        changed = {name: getattr(current, name) for name in _TYPES if name not in ("passes", *_SECRETS)}
        return json.dumps({name: each for name, each in changed.items() if each != getattr(_DEFAULTS, name)})

    def load(self, text: str) -> None:
        """Set the options that :meth:`save` returned for the process, and all others to their default, except those
        that it leaves out.

        Raises :class:`ConfigError` for other text, unknown names and wrong values.
        """
        try:
            changes = dict(json.loads(text))
        except (TypeError, ValueError) as error:
            hint = "litz.config.save() returns them"
            raise ConfigError(f"{text!r:.60} is no saved options", hint=hint) from error
        kept = {name: getattr(self._default, name) for name in _SECRETS}
        object.__setattr__(self, "_default", _DEFAULTS.replaced({**kept, **changes}))

    def digest(self) -> str:
        """Return a digest of what :meth:`save` returns, equal for equal options in every process."""
        return hashlib.sha256(self.save().encode()).hexdigest()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in _TYPES:
            _validate(name, None)
        return getattr(self.current(), name)

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, "_default", self._default.replaced({name: value}))

    def __repr__(self) -> str:
        return repr(self.current())
