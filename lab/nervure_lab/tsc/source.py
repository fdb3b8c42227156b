"""The folder with the stored data: logs in folders or `.tar.xz` archives, tables as CSV or `.csv.xz`."""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

MAX_MEMBERS = 20_000
MAX_BYTES = 256 << 20
"""Limit of the unpacked size of an archive or table; the evaluation's largest archive has 23 MB."""


class MissingData(Exception):
    """The folder lacks a part; the message names the expected files."""


class Source:
    def __init__(self, directory: Path) -> None:
        if not directory.is_dir():
            raise ValueError(f"{directory}: expected a folder with the data of the evaluation, got none")
        self.directory = directory

    def logs(self, names: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Returns path and text of each file of the first part that exists."""
        for name in names:
            path = self.directory / name
            if path.is_dir():
                return _of_directory(path)
            if path.is_file():
                return _of_archive(path)
        raise MissingData(f"no {' or '.join(names)} in {self.directory}")

    def table(self, names: Sequence[str], columns: Sequence[str]) -> pl.DataFrame:
        """Returns the first table that exists, and checks that it has the columns."""
        path = next((path for name in names if (path := self.directory / name).is_file()), None)
        if path is None:
            raise MissingData(f"no {' or '.join(names)} in {self.directory}")
        try:
            content = _unpacked(path) if path.suffix == ".xz" else path.read_bytes()
            table = pl.read_csv(io.BytesIO(content), infer_schema_length=None)
        except (OSError, lzma.LZMAError, EOFError, pl.exceptions.PolarsError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ValueError(f"{path}: expected a table in CSV, {reason}") from error
        if absent := [column for column in columns if column not in table.columns]:
            raise ValueError(f"{path}: expected a column {', '.join(absent)}, got {', '.join(table.columns)}")
        return table


def numbers(table: pl.DataFrame, column: str, path: str) -> pl.DataFrame:
    """Returns the table with a column of numbers; an error names the first row with something else."""
    cast = table[column].cast(pl.Float64, strict=False)
    bad = table.with_row_index("row").filter(cast.is_null() & table[column].is_not_null())
    if bad.height:
        row, value = bad["row"][0] + 2, bad[column][0]
        raise ValueError(f"{path}, row {row}, column {column}: expected a number, got {value!r}")
    return table.with_columns(cast)


def _unpacked(path: Path) -> bytes:
    with lzma.open(path) as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"{path}: unpacks to more than {MAX_BYTES} bytes")
    return content


def _of_directory(directory: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(directory.parent)), _text(path.read_bytes(), str(path))


def _of_archive(path: Path) -> Iterator[tuple[str, str]]:
    """Reads the members in sequence and writes none to the disk."""
    unpacked = 0
    try:
        with tarfile.open(path, mode="r|*") as archive:
            for count, member in enumerate(archive):
                if not member.isfile():
                    continue
                unpacked += member.size
                if count >= MAX_MEMBERS or unpacked > MAX_BYTES:
                    limit = f"{MAX_MEMBERS} files and {MAX_BYTES} bytes"
                    raise ValueError(f"{path}: expected at most {limit}, got more")
                file = archive.extractfile(member)
                assert file is not None, "a regular file has content"
                yield member.name, _text(file.read(), f"{path}: {member.name}")
    except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
        raise ValueError(f"{path}: expected an archive of logs, {error}: corrupt or truncated") from error


def _text(content: bytes, source: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{source}: expected text, {error.reason} at byte {error.start}") from error
