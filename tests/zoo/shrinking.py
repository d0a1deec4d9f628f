"""Small configurations of a class of dataclasses, with the size fields set by the tables of `sizes`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from zoo import sizes

CHOOSING = ("AutoConfig", "PreTrainedConfig")
"""Names of classes of configurations that stand for any other."""

WHOLE = ("backbone_config", "codec_config")
"""Parts of any class that keep their sizes, which depend on one another."""


def shrunk(config_class: Any, family: Mapping[str, Any]) -> Any:
    """Return a configuration of small sizes; values in ``family`` take precedence."""
    chosen: dict[str, Any] = {}
    parts = config_class.sub_configs
    for field in dataclasses.fields(config_class):
        if field.name in family and field.name not in parts:
            chosen[field.name] = family[field.name]
        elif field.name in parts and parts[field.name] is not None:
            part = _small_config(_class_of_part(config_class, field.name), family.get(field.name, {}))
            if part is not None:
                chosen[field.name] = part
        else:
            value = small(field.name, _default(field))
            if value is not None:
                chosen[field.name] = value
    return config_class(**chosen)


def _class_of_part(config_class: Any, name: str) -> Any:
    """Return the class of a nested configuration: that of the default one, where the given class chooses between
    others."""
    part_class = config_class.sub_configs[name]
    if getattr(part_class, "__name__", "") in CHOOSING and name not in WHOLE:
        return type(getattr(config_class(), name))
    return part_class


def _small_config(part_class: Any, family: Mapping[str, Any]) -> Any:
    """Return a small nested configuration; classes that only choose between others have no fields of their own."""
    if not dataclasses.is_dataclass(part_class) or getattr(part_class, "__name__", "") in CHOOSING:
        return None
    return shrunk(part_class, family)


def _default(field: Any) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None


TOKENS = ("_token_id", "_token_index", "_token")


def small(name: str, default: Any) -> Any:
    """Return the small value of a field, or ``None`` where the default stays."""
    if name in sizes.VALUES:
        return sizes.VALUES[name]
    if isinstance(default, bool) or default is None:
        return None
    if isinstance(default, int) and name.endswith(TOKENS) and default >= sizes.VOCABULARY:
        # Far apart by name, the same wherever the name stands; the inputs have none of them.
        return sizes.VOCABULARY - 1 - sum(map(ord, name)) % 48
    if isinstance(default, int) and name in sizes.FIELDS:
        return min(default, sizes.FIELDS[name])
    if isinstance(default, float | int) and any(part in name for part in sizes.SWITCHED_OFF):
        return type(default)(0)
    if isinstance(default, list | tuple) and name in sizes.LISTS:
        return _small_list(default, sizes.LISTS[name])
    return None


def _small_list(values: Any, largest: int) -> Any:
    if not values or not all(isinstance(value, int) for value in values):
        return None
    return type(values)(
        min(value, largest * max(1, value // max(1, min(values))) if largest > 1 else 1) for value in values
    )
