"""The scheduler's passes as a value, which others insert into, replace in and remove from by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any

from litz_ir.errors import ConfigError
from litz_ir.loops import LoopGraph
from litz_ir.passes import Pass
from litz_ir.target import DeviceClass

AnyPass = Pass[Any, Any]

_CHANGES_FORM = ("vertical-fusion", "storage-classes", "build-steps", "name-kernels", "plan-memory")
"""Passes whose result has another form than their input, without which the next one has nothing to work on."""

REQUIRED = (
    *_CHANGES_FORM,
    "dead-code",
    "dead-code-2",
    "horizontal-fusion",
    "device-support",
    "kernel-support",
)
"""Passes that take no fuel: those that change the form, those that remove operations for which there are no kernels,
one whose fusions are counted, and checks of the device."""


@dataclass(frozen=True, slots=True)
class PassList:
    """Passes by stage, in order. A pass belongs to the stage of the pass next to which it is inserted.

    A pass over loop graphs that has the attribute ``devices``, a :data:`litz_ir.target.DeviceClass`, runs over graphs
    with values on such a device alone.
    """

    graph: tuple[Pass[LoopGraph, LoopGraph], ...]
    """From loop graph to loop graph."""
    fusion: tuple[AnyPass, ...]
    """From the loop graph to the fused graph."""
    plan: tuple[AnyPass, ...]
    """From the fused graph to the plan."""

    def __post_init__(self) -> None:
        names: set[str] = set()
        for item in self.all():
            _check(item)
            if item.name in names:
                raise ConfigError(
                    f"two passes are called {item.name!r}",
                    hint="give the pass another name: names tell passes apart",
                )
            names.add(item.name)

    def all(self) -> tuple[AnyPass, ...]:
        """Return the passes of all stages, in the order in which they run."""
        return (*self.graph, *self.fusion, *self.plan)

    def graph_for(self, classes: Collection[DeviceClass]) -> tuple[Pass[LoopGraph, LoopGraph], ...]:
        """Return the passes over a loop graph with values on devices of these classes."""
        return tuple(each for each in self.graph if getattr(each, "devices", None) in (None, *classes))

    def names(self) -> tuple[str, ...]:
        """Return the names of the passes, in the order in which they run."""
        return tuple(item.name for item in self.all())

    def before(self, name: str, *passes: AnyPass) -> PassList:
        """Return the list with ``passes`` before the pass called ``name``; raises ``ConfigError`` without one."""
        return self._edited(name, lambda item: (*_some(passes), item))

    def after(self, name: str, *passes: AnyPass) -> PassList:
        """Return the list with ``passes`` after the pass called ``name``; raises ``ConfigError`` without one."""
        return self._edited(name, lambda item: (item, *_some(passes)))

    def replaced(self, name: str, *passes: AnyPass) -> PassList:
        """Return the list with ``passes`` instead of the pass called ``name``; raises ``ConfigError`` without one."""
        return self._edited(name, lambda item: _some(passes))

    def without(self, *names: str) -> PassList:
        """Return the list without the passes of these names; raises ``ConfigError`` for a name without a pass."""
        result = self
        for name in names:
            result = result._edited(name, lambda item: ())
            if name in _CHANGES_FORM:
                raise ConfigError(
                    f"the pass {name} changes the form of the program and cannot be removed",
                    hint="replace it by a pass from and to the same forms",
                )
        return result

    def _edited(self, name: str, edit: Callable[[AnyPass], Iterable[AnyPass]]) -> PassList:
        """Return the list with the pass called ``name`` replaced by what ``edit`` makes of it."""
        if name not in self.names():
            if not isinstance(name, str):
                raise ConfigError(f"{name!r:.60} is no name of a pass", hint="give the name as a string")
            near = get_close_matches(name, self.names(), n=3, cutoff=0.4) or self.names()
            raise ConfigError(
                f"no pass is called {name!r}", hint=f"passes with such names: {', '.join(near)}"
            )
        stages = {
            stage.name: tuple(
                each
                for item in getattr(self, stage.name)
                for each in (edit(item) if item.name == name else (item,))
            )
            for stage in fields(self)
        }
        return replace(self, **stages)


def _some(passes: tuple[AnyPass, ...]) -> tuple[AnyPass, ...]:
    """Return passes; raises ``ConfigError`` for none."""
    if not passes:
        raise ConfigError(
            "no pass is given", hint="give one or more passes after the name; without removes passes"
        )
    return passes


def _check(item: object) -> None:
    """Raise ``ConfigError`` for an object that is no pass, with the members that it lacks."""
    lacking = [member for member in ("name", "ulp", "apply") if not hasattr(item, member)]
    if isinstance(item, type) or lacking:
        wrong = f"the class {item.__name__}" if isinstance(item, type) else f"a {type(item).__name__}"
        raise ConfigError(
            f"{wrong} is no pass" + (f": it has no {', '.join(lacking)}" if lacking else ""),
            hint="see litz_ir.passes.Pass; give an instance of the class",
        )
    name, ulp = getattr(item, "name", None), getattr(item, "ulp", None)
    if not isinstance(name, str) or not name or type(ulp) is not int or ulp < 0:
        raise ConfigError(
            f"a pass has the name {name!r:.60} and the bound {ulp!r:.60}",
            hint="name is a string; ulp an int, 0 for an exact pass",
        )
