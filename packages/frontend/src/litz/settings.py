"""Options: few, typed, scoped, and read from the environment here and nowhere else.

``litz.config`` is the handle. ``litz.config.patch(fallback="error")`` holds inside a ``with`` block, for the thread and
its tasks; ``litz.config.fallback = "error"`` holds for the process. What a compilation uses is fixed when it starts, so
a backward graph that is compiled later sees the options of its forward.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args, get_type_hints

from platformdirs import user_cache_path

from litz.notices import log_once
from litz_ir.errors import ConfigError
from litz_scheduler import SchedulerOptions


@dataclass(frozen=True, slots=True)
class Config:
    """The options.

    ``fallback``: what happens to operations that should be generated and are not, or fail to compile: run them as ATen
    and say so once (``warn``), say nothing (``silent``), or raise (``error``). What is meant for ATen (sorts, linear
    algebra, results whose size is data; ``docs/operators.md`` names all) is a call under each.
    ``rng``: ``eager`` draws from ATen's own random stream in program order; ``fast`` generates Philox numbers in
    kernels.
    ``numerics``: ``eager`` computes as eager does, roundings to narrow types included; ``fast`` may differ in the last
    place where that is quicker (a product with a reciprocal for a quotient).
    ``cache``: keep compiled graphs on disk. ``cache_dir``: where (``None``: the platform's cache folder).
    ``compiler``: the C++ compiler to use (``None``: ``g++``, then ``clang++``).
    ``prepack_weights``: in inference, keep what is computed from parameters alone (weights in the form that a library
    likes best, scaled by a batch norm that follows) until one of them changes. It takes their memory again. A write
    through ``.data`` to single elements of more than 4 KB may go unseen (``docs/decisions/0007``).
    ``attention``: products around a softmax that were written by hand run as the library's attention, where that gives
    the same (``docs/attention.md``).
    ``sort_rows``: rows of up to 2,048 elements are sorted by kernels on a GPU, if they are many, which nobody has timed
    beside the library's sorts. Values and places are the same.
    ``freezing``: parameters never change after the first call, so that nobody looks whether one did.
    ``cuda_graphs``: record what a call launches on a GPU and replay it by one call of the driver, where sizes are fixed
    and nothing looks at values. Results stay what they are. It takes memory of its own.
    ``autotune``: from the second call on, time other tiles for the kernels that move much on a GPU, and go on with
    those that are quicker. What is found is kept in the cache. ``autotune_seconds``: what that may take for a graph.
    ``fuse``: off makes one kernel per operation, which is slow and good for finding a fault.
    ``force``: the scheduler's options that are set instead of chosen (``siblings=0 lanes=outer``), see
    :class:`litz_scheduler.SchedulerOptions`; for measuring what its choices are worth.
    ``verify``: check the IR's invariants after every pass. ``check``: run the reference interpreter after every pass.
    ``self_check``: compare the results of a compiled graph with ATen's, in its first call (``first``), or in that and
    each 64th after it (``sample``). Kernels with wrong results are reported, and their operations run as ATen from then
    on, in later processes with the same cache too (``docs/self-check.md``).
    ``nan_asserts``: raise ``NanFound`` where a compiled graph is given NaN, or computes it. Every call waits for its
    device, so this is for finding where NaN begins.
    """

    fallback: Literal["warn", "silent", "error"] = "warn"
    rng: Literal["eager", "fast"] = "eager"
    numerics: Literal["eager", "fast"] = "eager"
    cache: bool = True
    cache_dir: str | None = None
    compiler: str | None = None
    prepack_weights: bool = True
    attention: bool = True
    sort_rows: bool = False
    freezing: bool = False
    cuda_graphs: bool = False
    autotune: bool = False
    autotune_seconds: float = 10.0
    fuse: bool = True
    force: str = ""
    verify: bool = False
    check: bool = False
    self_check: Literal["off", "first", "sample"] = "off"
    nan_asserts: bool = False

    def cache_root(self) -> Path:
        """The folder that ``cache_dir`` names, else the platform's for litz."""
        return user_cache_path("litz", appauthor=False) if self.cache_dir is None else Path(self.cache_dir)

    def replaced(self, changes: Mapping[str, Any]) -> Config:
        """The options with some changed; raises :class:`ConfigError` for unknown names and wrong values."""
        for name, value in changes.items():
            _validate(name, value)
        return dataclasses.replace(self, **changes)


_TYPES = get_type_hints(Config)

PREFIX = "LITZ_"
"""How the variables of the environment begin that set options."""


def _validate(name: str, value: object) -> None:
    if name not in _TYPES:
        near = _near(name)
        hint = f"did you mean {' or '.join(near)}?" if near else f"options are {', '.join(_TYPES)}"
        raise ConfigError(f"unknown option {name!r}", hint=hint)
    wanted = _TYPES[name]
    choices = get_args(wanted)
    if choices and isinstance(choices[0], str):
        accepted = value in choices
        text = " or ".join(map(repr, choices))
    elif choices:
        accepted = isinstance(value, choices)
        text = " or ".join("None" if c is type(None) else c.__name__ for c in choices)
    elif wanted is float:
        accepted = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
        text = "a number that is not negative"
    else:
        accepted = isinstance(value, wanted)
        text = wanted.__name__
    if not accepted:
        raise ConfigError(f"option {name!r} takes {text}, got {value!r}")
    if name == "force":
        forced(str(value))


def _near(name: str) -> list[str]:
    """The options that are spelled like a name, the nearest first."""
    return difflib.get_close_matches(name, _TYPES, n=3, cutoff=0.4)


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """A line for each ``LITZ_...`` in the environment that names no option, and so changes nothing."""
    known = {f"{PREFIX}{name.upper()}" for name in _TYPES}
    lines = []
    for variable in sorted(each for each in environment if each.startswith(PREFIX) and each not in known):
        near = _near(variable.removeprefix(PREFIX).lower())
        hint = f"did you mean {PREFIX}{near[0].upper()}?" if near else f"options are {', '.join(_TYPES)}"
        lines.append(f"litz: {variable} in the environment names no option and is ignored: {hint}")
    return lines


def _from_environment(environment: Mapping[str, str]) -> Config:
    """``LITZ_<OPTION>`` for every option; ``CXX`` names the compiler too."""
    changes: dict[str, Any] = {}
    if environment.get("CXX"):
        changes["compiler"] = environment["CXX"]
    for option in fields(Config):
        text = environment.get(f"{PREFIX}{option.name.upper()}")
        if text is None or text == "":
            continue
        if _TYPES[option.name] is bool:
            if text.lower() not in _BOOLEANS:
                raise ConfigError(f"LITZ_{option.name.upper()} takes 0 or 1, got {text!r}")
            changes[option.name] = _BOOLEANS[text.lower()]
        elif _TYPES[option.name] is float:
            changes[option.name] = _number(option.name, text)
        else:
            changes[option.name] = text
    return Config().replaced(changes)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ConfigError(f"LITZ_{name.upper()} takes a number, got {text!r}") from error


_BOOLEANS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


_NOTHING: Mapping[str, Any] = MappingProxyType({})


class ConfigHandle:
    """``litz.config``: reads, sets and scopes the options."""

    __slots__ = ("_default", "_scoped")
    _default: Config
    _scoped: ContextVar[Mapping[str, Any]]

    def __init__(self, environment: Mapping[str, str]) -> None:
        for line in unknown_variables(environment):
            log_once(line)
        object.__setattr__(self, "_default", _from_environment(environment))
        object.__setattr__(self, "_scoped", ContextVar[Mapping[str, Any]]("litz_config", default=_NOTHING))

    def current(self) -> Config:
        """The options in force here."""
        scoped: Mapping[str, Any] = self._scoped.get()
        default: Config = self._default
        return default.replaced(scoped) if scoped else default

    @contextlib.contextmanager
    def patch(self, **changes: Any) -> Iterator[Config]:
        """Change options inside a ``with`` block; raises :class:`ConfigError`."""
        for name, value in changes.items():
            _validate(name, value)
        token = self._scoped.set({**self._scoped.get(), **changes})
        try:
            yield self.current()
        finally:
            self._scoped.reset(token)

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


_SCHEDULER_TYPES: Mapping[str, Any] = get_type_hints(SchedulerOptions)


def forced(text: str) -> dict[str, int | str | frozenset[str]]:
    """``siblings=0 lanes=outer`` as fields of :class:`litz_scheduler.SchedulerOptions` and their values.

    Numbers are decimal, flags 0 or 1, sets of names separated by commas. Raises :class:`ConfigError` for other names
    and values.
    """
    return dict(_forced_field(word) for word in text.split())


def _forced_field(word: str) -> tuple[str, int | str | frozenset[str]]:
    name, _, value = word.partition("=")
    if name not in _SCHEDULER_TYPES:
        near = difflib.get_close_matches(name, _SCHEDULER_TYPES, n=1) or list(_SCHEDULER_TYPES)
        raise ConfigError(f"the scheduler has no option {name!r}", hint=f"did you mean {' or '.join(near)}?")
    if _SCHEDULER_TYPES[name] == frozenset[str]:
        return name, frozenset(filter(None, value.split(",")))
    names = get_args(_SCHEDULER_TYPES[name])
    if names:
        accepted, wanted = value in names, " or ".join(names)
    elif _SCHEDULER_TYPES[name] is bool:
        accepted, wanted = value in ("0", "1"), "0 or 1"
    else:
        accepted, wanted = value.isdecimal(), "a number"
    if not accepted:
        raise ConfigError(f"the scheduler's option {name!r} takes {wanted}, got {value!r}")
    if names:
        return name, value
    return name, value == "1" if _SCHEDULER_TYPES[name] is bool else int(value)
