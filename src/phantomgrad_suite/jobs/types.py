"""Types of configured arguments: those that the annotations of their constructors have."""

import collections.abc
import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hydra.utils import get_object
from omegaconf import OmegaConf

from phantomgrad_suite.runs.errors import SettingError


def check_types(node: Any, name: str, hints: Mapping[str, Any] | None = None) -> None:
    """Raise :class:`SettingError` for an argument in ``node`` that is not of its annotated type.

    Numbers must be finite. What an annotation leaves open, the constructor checks. ``hints`` are
    the types of a node without ``_target_``.
    """
    if OmegaConf.is_config(node):
        node = OmegaConf.to_container(node, resolve=True)
    if isinstance(node, list):
        node = dict(enumerate(node))
    if not isinstance(node, dict):
        if hints:
            raise SettingError(f"{name} must be a mapping, got {node!r}")
        return
    types = annotations(str(node["_target_"])) if "_target_" in node else hints or {}
    for key, value in node.items():
        hint = types.get(str(key), Any)
        if not _fits(value, hint):
            raise SettingError(f"{name}.{key} must be {_described(hint)}, got {value!r}")
        check_types(value, f"{name}.{key}")


@cache
def annotations(target: str) -> Mapping[str, Any]:
    """Return the annotations of a function, or of a constructor and those of the base classes."""
    found: dict[str, Any] = {}
    with suppress(Exception):  # Hydra reports a target that cannot be imported
        function = get_object(target)
        classes: Any = reversed(function.__mro__) if isinstance(function, type) else ()
        for part in [each.__init__ for each in classes] or [function]:
            with suppress(NameError):  # an annotation that only type checkers can resolve
                found |= get_type_hints(part, localns=vars(collections.abc))
    return found


def _described(hint: Any) -> str:
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(map(_described, get_args(hint)))
    text = re.sub(r"<class '|'>|(\w+\.)+", "", str(hint))
    return {"NoneType": "null", "float": "finite float"}.get(text, text)


def _fits(value: Any, hint: Any) -> bool:
    kind, arguments = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType, Literal):
        return any(value == x if kind is Literal else _fits(value, x) for x in arguments)
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)
    if kind in (int, bool, str, NoneType):
        return type(value) is kind
    if kind in (Any, object) or not isinstance(kind, type):
        return True
    if issubclass(kind, Iterable) and not issubclass(kind, Mapping) and arguments:
        each = Any if kind is tuple and arguments[1:] != (...,) else arguments[0]
        return isinstance(value, list) and all(_fits(member, each) for member in value)
    # Strings are for Path, torch.device and the like. Tensor by its name: labels need no torch.
    takes_text = (kind.__module__, kind.__name__) != ("torch", "Tensor")
    return isinstance(value, dict | list) or (isinstance(value, str) and takes_text)
