"""Reads published trace files row by row; a fault names the file and the line."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vstate.schemas.errors import VstateError
from vstate.schemas.text_files import text_lines

BLOCK_IDS = 2**63
"""The ids that a workload can hold are below it."""


class Fields:
    """The named values of one row of a file."""

    def __init__(self, place: str, values: Mapping[str, Any]) -> None:
        """Wrap the ``values`` that stand at ``place``, such as ``file:line``."""
        self._place = place
        self._values = values

    def __contains__(self, name: str) -> bool:
        """Tell whether the row has a value of that name; one that is blank or null counts as none."""
        return self._values.get(name) not in (None, "")

    def fault(self, message: str) -> VstateError:
        """Return the error that says what is wrong with this row."""
        return VstateError(f"{self._place}: {message}")

    def value(self, name: str) -> Any:
        """Return a value as it stands in the file.

        Raises:
            VstateError: There is none.
        """
        if name not in self:
            raise self.fault(f"no {name}")
        return self._values[name]

    def number(self, name: str) -> float:
        """Return a number that is finite and not negative.

        Raises:
            VstateError: The row has none of that name.
        """
        value = self.value(name)
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if isinstance(value, bool) or not math.isfinite(number) or number < 0:
            raise self.fault(f"{name} is {value!r}, not a number of at least 0")
        return number

    def count(self, name: str) -> int:
        """Return a whole number that is not negative.

        Raises:
            VstateError: The row has none of that name.
        """
        number = self.number(name)
        if number != int(number):
            raise self.fault(f"{name} is {self.value(name)!r}, not a whole number")
        return int(number)

    def text(self, name: str) -> str:
        """Return a string, or a whole number written as one: some sources name chats by number.

        Raises:
            VstateError: The row has neither of that name.
        """
        value = self.value(name)
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise self.fault(f"{name} is {value!r}, not a name")
        return str(value)

    def block_ids(self, name: str) -> tuple[tuple[int, int], ...]:
        """Return a list of block ids as runs of consecutive ones, (first, count).

        Raises:
            VstateError: It is no list of whole numbers that are not negative, or one is too large for a workload.
        """
        ids = self._values.get(name)
        if not isinstance(ids, list) or not all(type(block) is int and block >= 0 for block in ids):
            raise self.fault(f"{name} is not a list of block ids")
        return self._small(name, runs(ids))

    def block_ranges(self, name: str) -> tuple[tuple[int, int], ...]:
        """Return a list of runs of block ids, [[first, count], ...].

        Raises:
            VstateError: It is none, or one is too large for a workload.
        """
        ranges = self._values.get(name)
        if not isinstance(ranges, list) or not all(_is_range(entry) for entry in ranges):
            raise self.fault(f"{name} is not a list of [first block id, count]")
        return self._small(name, tuple((first, count) for first, count in ranges))

    def _small(self, name: str, ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        if any(sum(run) > BLOCK_IDS for run in ranges):
            raise self.fault(f"{name} holds a block id of 2^63 or above; number the blocks of the file anew")
        return ranges


def _is_range(entry: object) -> bool:
    if not isinstance(entry, list) or [type(number) for number in entry] != [int, int]:
        return False
    return bool(entry[0] >= 0 and entry[1] >= 1)


def runs(ids: list[int]) -> tuple[tuple[int, int], ...]:
    """Return ``ids`` in their order as runs of consecutive numbers, (first, count)."""
    found: list[tuple[int, int]] = []
    for block in ids:
        if found and block == sum(found[-1]):
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((block, 1))
    return tuple(found)


def trace_lines(path: Path) -> Iterator[str]:
    """Read a trace line by line; some sources begin with a byte order mark, and CSV keeps its own line ends.

    Raises:
        VstateError: It cannot be read.
    """
    return text_lines(path, "trace", encoding="utf-8-sig", newline="")


def json_rows(path: Path) -> Iterator[Fields]:
    """Read a JSONL file; empty lines are skipped.

    Raises:
        VstateError: The file cannot be read, or a line is no JSON object.
    """
    for number, line in enumerate(trace_lines(path), 1):
        if line.strip():
            try:
                values = json.loads(line)
            except ValueError as error:
                raise VstateError(f"{path}:{number}: not JSON: {error}") from error
            if not isinstance(values, dict):
                raise VstateError(f"{path}:{number}: not a JSON object")
            yield Fields(f"{path}:{number}", values)


def csv_rows(path: Path) -> Iterator[Fields]:
    """Read a CSV file whose first line names the columns.

    Raises:
        VstateError: The file cannot be read or is empty, or a line has another number of columns than the first.
    """
    reader = csv.reader(trace_lines(path))
    try:
        names = next(reader, None)
        if names is None:
            raise VstateError(f"{path} is empty; it should begin with a line of column names")
        for values in reader:
            if values and len(values) != len(names):
                raise VstateError(f"{path}:{reader.line_num}: {len(values)} columns; the first line names {len(names)}")
            if values:
                yield Fields(f"{path}:{reader.line_num}", dict(zip(names, values, strict=True)))
    except csv.Error as error:
        raise VstateError(f"{path}:{reader.line_num}: not CSV: {error}") from error
