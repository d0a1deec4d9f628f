"""Public names of a package that are imported when they are first used, so that importing the package is cheap."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from litz_ir.collection import collection_paused


def deferred(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and ``__dir__`` of a package (PEP 562).

    ``modules`` names the module that defines each deferred name. A name is looked up there each time, so that a test
    that replaces it sees its own. Under ``TYPE_CHECKING`` the package imports the names as usual. The first function
    raises ``AttributeError`` for other names, and lists the package's ``__all__``.
    """

    def attribute(name: str) -> Any:
        if name not in modules:
            known = ", ".join(vars(sys.modules[package]).get("__all__", modules))
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {known}")
        with collection_paused():
            module = import_module(modules[name])
        return getattr(module, name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return attribute, names
