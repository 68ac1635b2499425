"""Reads the files of a simulation: CSV with a header, or a JSON object a line."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import final

from reactant_cli.failure import USAGE, CommandFailure
from reactant_cli.shown import shown
from reactant_policy.simulate.catalogue import SimulatedModel, sizes_up_to
from reactant_policy.simulate.fleet import by_name
from reactant_policy.simulate.trace import Trace, recorded

TRACE_COLUMNS = "time (seconds), model, and items (1 when left out)"
CATALOGUE_COLUMNS = (
    "model, fixed_ms, per_item_ms, and max_batch_size (1 when left out) and weight_bytes (0 when left out)"
)


@final
class Record:
    """The fields of one line."""

    def __init__(self, where: str, fields: Mapping[str, object], columns: str) -> None:
        self._where = where
        self._fields = fields
        self._columns = columns

    def fail(self, message: str) -> CommandFailure:
        """A failure that names the file and the line."""
        return CommandFailure(f"{self._where}: {message}", USAGE)

    def text(self, name: str) -> str:
        """A field that must be there and not empty."""
        value = self._fields.get(name)
        if not isinstance(value, str) or not value:
            raise self._fault(name, "a text that is not empty")
        return value

    def number(self, name: str) -> float:
        """A finite number of at least 0 that must be there."""
        value = self._fields.get(name)
        try:
            number = float(value) if isinstance(value, str | int | float) else math.nan
        except ValueError:
            number = math.nan
        if isinstance(value, bool) or not 0 <= number < math.inf:
            raise self._fault(name, "a number of 0 or more")
        return number

    def count(self, name: str, default: int) -> int:
        """A whole number of at least `default`, which it is when it is left out."""
        if self._fields.get(name) in (None, ""):
            return default
        number = self.number(name)
        if number != int(number) or number < default:
            raise self._fault(name, f"a whole number of {default} or more")
        return int(number)

    def _fault(self, name: str, accepted: str) -> CommandFailure:
        value = self._fields.get(name)
        if value is None or value == "":
            return self.fail(f"{name} is missing; accepted are {self._columns}")
        return self.fail(f"{name} is {shown(value)}; accepted is {accepted}")


def read_trace(path: Path) -> Trace:
    """The arrivals in a file, in any order; CommandFailure names the first line that is not one."""
    arrivals = [
        (record.number("time"), record.text("model"), record.count("items", 1))
        for record in _records(path, TRACE_COLUMNS)
    ]
    if len(arrivals) < 2:
        raise CommandFailure(f"{path} has {len(arrivals)} arrivals; a trace has two or more", USAGE)
    return recorded(arrivals)


def read_catalogue(path: Path) -> Mapping[str, SimulatedModel]:
    """The models in a file; CommandFailure names the first line that is not one."""
    models = []
    for record in _records(path, CATALOGUE_COLUMNS):
        costs = record.number("fixed_ms") / 1e3, record.number("per_item_ms") / 1e3
        sizes = sizes_up_to(record.count("max_batch_size", 1))
        weights = record.count("weight_bytes", 0)
        try:
            models.append(SimulatedModel(record.text("model"), *costs, sizes, weights))
        except ValueError as error:
            raise record.fail(str(error)) from None
    try:
        return by_name(models)
    except ValueError as error:
        raise CommandFailure(f"{path}: {error}", USAGE) from None


def _records(path: Path, columns: str) -> Iterator[Record]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            begin = file.read(1)
            file.seek(0)
            lines = _json_lines(path, file, columns) if begin == "{" else _csv_lines(path, file, columns)
            yield from lines
    except OSError as error:
        raise CommandFailure(f"{path} cannot be read: {error.strerror}", USAGE) from None
    except UnicodeDecodeError:
        raise CommandFailure(f"{path} is not UTF-8 text", USAGE) from None


def _json_lines(path: Path, lines: Iterator[str], columns: str) -> Iterator[Record]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except json.JSONDecodeError as error:
            fields = error.msg
        if not isinstance(fields, dict):
            raise CommandFailure(
                f"{path} line {number}: {shown(line.strip())} is no JSON object; accepted are objects with "
                f"{columns}",
                USAGE,
            )
        yield Record(f"{path} line {number}", fields, columns)


def _csv_lines(path: Path, lines: Iterator[str], columns: str) -> Iterator[Record]:
    reader = csv.reader(lines)
    header: list[str] | None = None
    try:
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            if header is None:
                header = [cell.strip() for cell in row]
                if "model" not in header:
                    raise CommandFailure(
                        f"{path} line {reader.line_num}: the header is {shown(','.join(row))}; accepted are "
                        f"the columns {columns}",
                        USAGE,
                    )
                continue
            where = f"{path} line {reader.line_num}"
            if len(row) > len(header):
                raise CommandFailure(
                    f"{where}: {len(row)} values under {len(header)} columns ({','.join(header)})", USAGE
                )
            yield Record(where, dict(zip(header, map(str.strip, row), strict=False)), columns)
    except csv.Error as error:
        raise CommandFailure(f"{path} line {reader.line_num}: {error}", USAGE) from None
