"""The form of each class in a document: an object with the parameters of its constructor as fields.

A dataclass is its own constructor, so its form follows from the types of its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from inspect import Parameter, signature
from types import MappingProxyType
from typing import Any, get_type_hints

from litz_ir.device import Device
from litz_ir.interchange.constructors import CONSTRUCTORS, FIELDS, Summand
from litz_ir.serial.schema import CLASSES

REQUIRED = Parameter.empty
"""The default of a field that has none."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an object."""

    name: str
    """Name of the field."""
    hint: Any
    """Type hint of its values."""
    default: Any
    """Value of the field where a document leaves it out; ``REQUIRED`` if it may not."""

    def is_default(self, value: Any) -> bool:
        """True if a document may leave the field out."""
        return type(value) is type(self.default) and bool(value == self.default)


@dataclass(frozen=True, slots=True)
class Form:
    """A class as an object of a document: its constructor, and access to its fields."""

    cls: type
    """The class."""
    make: Callable[..., Any]
    """Constructor, which takes the fields by name."""
    get: Callable[[Any, str], Any]
    """Function from a value and the name of a field to the field."""

    @property
    def name(self) -> str:
        """The name of the class, which an object has as its ``class``."""
        return self.cls.__name__

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields in order."""
        return _fields(self)


@cache
def _fields(form: Form) -> tuple[Field, ...]:
    # The types of a dataclass's fields are in its body, those of an expression in the constructor.
    derived = form.make is not form.cls or form.cls in CLASSES_BY_FIELDS
    hints = get_type_hints(form.make if derived else form.cls.__new__)
    found = signature(form.make).parameters.values()
    return tuple(Field(each.name, hints[each.name], each.default) for each in found)


CLASSES_BY_FIELDS: tuple[type, ...] = (*CLASSES, Device, Summand)
"""The dataclasses that may occur in a document."""

FORMS: Mapping[str, Form] = MappingProxyType(
    {
        form.name: form
        for form in (
            *[Form(cls, cls, getattr) for cls in CLASSES_BY_FIELDS],
            *[Form(cls, make, FIELDS.get(cls, getattr)) for cls, make in CONSTRUCTORS.items()],
        )
    }
)
"""The form of every class that may occur in a document, by name; no other class is instantiated."""


@cache
def forms_of(cls: type) -> tuple[Form, ...]:
    """The forms of a class and its subclasses; raises ``TypeError`` if there are none."""
    found = tuple(form for form in FORMS.values() if issubclass(form.cls, cls))
    if not found:
        raise TypeError(f"{cls.__name__} has no form: list it in litz_ir.serial.schema.CLASSES")
    return found
