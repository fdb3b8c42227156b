"""The dataclasses that records become."""

from __future__ import annotations

import builtins
import collections.abc
import sys
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, ForwardRef, get_args, get_origin


def standard(type_name: str) -> type:
    """The dataclass of a standard type, named with its version (``std/Imu@1``)."""
    from nervure import types

    found: type = getattr(types, type_name.removeprefix("std/").partition("@")[0])
    return found


def fields_of(cls: type) -> list[tuple[str, bool, type | None, str]]:
    """The fields of a dataclass.

    Returns:
        For each field its name, whether it must have a value, the class of records in it, and its annotation.
        The class is that of the only dataclass in the annotation, alone or in lists, ``dict`` where the
        annotation allows any dict, and None otherwise.
    """
    if not (isinstance(cls, type) and is_dataclass(cls)):
        raise TypeError(f"expected a dataclass, got {cls!r}")
    found = []
    for field in fields(cls):
        if field.init:
            has_default = field.default is not MISSING or field.default_factory is not MISSING
            module = sys.modules.get(_origin(cls, field).__module__)
            names = _Names(vars(builtins) | getattr(module, "__dict__", {}))
            classes = set(_classes(field.type, names))
            record = classes.pop() if len(classes) == 1 else None
            found.append((field.name, not has_default, record, str(field.type)))
    return found


class _Unknown:
    """A name that only type checkers import, such as ``npt`` in ``npt.NDArray[np.float64] | None``."""

    def __getattr__(self, name: str) -> _Unknown:
        return self

    def __getitem__(self, key: object) -> _Unknown:
        return self

    def __or__(self, other: object) -> _Unknown:
        return self

    __ror__ = __or__


class _Names(dict[str, Any]):
    """The names that an annotation may use."""

    def __missing__(self, name: str) -> _Unknown:
        return _Unknown()


def _origin(cls: type, field: Field[Any]) -> type:
    """The class that defines a field, which it or a class derived from it has."""
    return next(
        base
        for base in reversed(cls.__mro__)
        if base.__dict__.get("__dataclass_fields__", {}).get(field.name) is field
    )


def _classes(annotation: Any, names: _Names) -> collections.abc.Iterator[type]:
    """The classes that a record may become."""
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        annotation = eval(annotation, {}, names)
    kind = get_origin(annotation) or annotation
    if kind is Any or (isinstance(kind, type) and (issubclass(dict, kind) or issubclass(kind, dict))):
        yield dict
    elif isinstance(kind, type) and is_dataclass(kind):
        yield kind
    else:
        for argument in get_args(annotation):
            yield from _classes(argument, names)
