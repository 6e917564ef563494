"""Reads a model's configuration so that whatever is missing or unknown is named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from vstate.schemas.errors import VstateError

Value = TypeVar("Value", int, float, str, bool)


class ConfigReader:
    """A configuration, or a part of it, that knows where it stands.

    Attributes:
        model: How errors name the model: its architecture.
        place: Path of this part in the configuration, with a dot behind it; empty for the whole.
    """

    def __init__(self, values: Mapping[str, Any], model: str, place: str = "") -> None:
        """Read ``values``, which stand at ``place`` of the configuration of ``model``."""
        self._values = values
        self.model = model
        self.place = place

    def __contains__(self, name: str) -> bool:
        """Say whether the field is there and says something."""
        return self._values.get(name) is not None

    def integer(self, *names: str) -> int:
        """Return the first of the fields that is there, as a whole number.

        Raises:
            VstateError: None is there, or it is no whole number.
        """
        name, value = self._first(names)
        if isinstance(value, bool) or not isinstance(value, int):
            raise VstateError(f"{self.model}: {self.place}{name} is {value!r}, which is no whole number")
        return value

    def number(self, *names: str) -> float:
        """Return the first of the fields that is there, as a number.

        Raises:
            VstateError: None is there, or it is no number.
        """
        name, value = self._first(names)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise VstateError(f"{self.model}: {self.place}{name} is {value!r}, which is no number")
        return value

    def text(self, *names: str) -> str:
        """Return the first of the fields that is there, as text.

        Raises:
            VstateError: None is there, or it is no text.
        """
        name, value = self._first(names)
        if not isinstance(value, str):
            raise VstateError(f"{self.model}: {self.place}{name} is {value!r}, which is no text")
        return value

    def sequence(self, *names: str) -> list[Any]:
        """Return the first of the fields that is there, as a list.

        Raises:
            VstateError: None is there, or it is no list.
        """
        name, value = self._first(names)
        if not isinstance(value, list | tuple):
            raise VstateError(f"{self.model}: {self.place}{name} is {value!r}, which is no list")
        return list(value)

    def get(self, name: str, default: Value) -> Value:
        """Return a field that has a default in the model's own code, which must be of the default's type.

        Raises:
            VstateError: It is there and of another type.
        """
        if name not in self:
            return default
        value = self._values[name]
        kinds = {float: (int, float), int: (int,), str: (str,), bool: (bool,)}[type(default)]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise VstateError(f"{self.model}: {self.place}{name} is {value!r}, not of type {type(default).__name__}")
        return type(default)(value)

    def any(self, name: str) -> Any:
        """Return a field as it is, None where it is not there."""
        return self._values.get(name)

    def part(self, *names: str) -> ConfigReader:
        """Return a part of the configuration.

        Raises:
            VstateError: None of the names is there, or it is no mapping.
        """
        name, value = self._first(names)
        if not isinstance(value, Mapping):
            raise VstateError(f"{self.model}: {self.place}{name} is {value!r}, which has no fields")
        return ConfigReader(value, self.model, f"{self.place}{name}.")

    def part_or_self(self, *names: str) -> ConfigReader:
        """Return the first part that is there, the whole where none is: text models have no part of that name."""
        return next((self.part(name) for name in names if name in self), self)

    def fields(self) -> Iterator[str]:
        """Yield the names of its fields."""
        yield from self._values

    def _first(self, names: tuple[str, ...]) -> tuple[str, Any]:
        for name in names:
            if name in self:
                return name, self._values[name]
        wanted = " or ".join(f"{self.place}{name}" for name in names)
        raise VstateError(f"{self.model}: the configuration has no {wanted}; state it, or register an adapter")
