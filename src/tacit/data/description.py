"""Schemas as YAML files and as plain text tables."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from attrs import NOTHING, asdict, fields

from tacit.data.columns import KINDS, Category, Kind
from tacit.data.encoded import DROP
from tacit.data.paths import path_of
from tacit.errors import InvalidArgument, reason_of

# Marks what somebody has to fill in, in a drafted file.
TO_FILL_IN = "TO FILL IN"
_KEYS = ("columns", "person", "most_rows", "released")


def read(path: str | Path) -> tuple[dict[str, Kind], dict[str, Any]]:
    """Reads the columns of a schema file, and its declarations of persons and releases."""
    path = path_of(path, "A schema", (".yaml", ".yml"))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = reason_of(error) or "it is not text in UTF-8"
        raise InvalidArgument(f"The schema {path} cannot be read: {reason}.") from None
    return parsed(text, path)


def parsed(text: str, path: str | Path) -> tuple[dict[str, Kind], dict[str, Any]]:
    """The same from text, which errors say to be at ``path``."""
    content = _load(text, path)
    if not isinstance(content, dict) or not isinstance(content.get("columns"), dict):
        raise InvalidArgument(
            f"{path} must be a mapping with a key 'columns' that maps names to kinds, as in "
            "'columns: {age: {kind: number, low: 18, high: 100}}'."
        )
    _check_keys(f"{path}", content, _KEYS)
    columns = {
        name: _kind(f"{path}, column {name!r}", of) for name, of in content["columns"].items()
    }
    more = {key: content[key] for key in _KEYS[1:] if key in content}
    if TO_FILL_IN in map(str, more.values()):
        raise InvalidArgument(f"{path}: person and most_rows are not filled in yet.")
    return columns, more


def text_of(columns: Mapping[str, Kind], more: Mapping[str, Any]) -> str:
    """Text that `parsed` reads, without the settings that have their default value."""
    content: dict[str, Any] = {name: _declaration(kind) for name, kind in columns.items()}
    content = {"columns": content, **more}
    style: dict[str, Any] = {"sort_keys": False, "default_flow_style": None}
    text = yaml.safe_dump(content, allow_unicode=True, **style)
    if not text.replace("\n", "").isprintable():  # unusual line breaks must be written as escapes
        return str(yaml.safe_dump(content, **style))
    return str(text)


def cells(columns: Mapping[str, Kind], *, whole: bool = False) -> list[tuple[str, ...]]:
    """A table of the columns, with a header; if ``whole``, with all levels of categories."""
    lines: list[tuple[str, ...]] = [("column", "kind", "public facts", "if missing")]
    for name, kind in columns.items():
        missing = "row left out" if kind.missing == DROP else f"{_plain(kind.missing)}"
        facts = kind.listed() if whole and isinstance(kind, Category) else kind.describe()
        lines.append((name, kind.kind, facts, missing))
    return lines


def table(columns: Mapping[str, Kind]) -> str:
    """The columns as a plain text table."""
    lines = cells(columns)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (
        "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True))
        for line in lines
    )
    return "\n".join(line.rstrip() for line in padded)


def _load(text: str, path: str | Path) -> Any:
    try:
        _refuse_repeats(path, yaml.compose(text, Loader=yaml.SafeLoader))
        return yaml.safe_load(text)
    except RecursionError:
        raise InvalidArgument(f"{path} is nested too deeply to be a schema.") from None
    except yaml.YAMLError as error:
        marked = isinstance(error, yaml.MarkedYAMLError)
        mark, problem = (error.problem_mark, error.problem) if marked else (None, None)
        where = "" if mark is None else f" in line {mark.line + 1}"
        raise InvalidArgument(
            f"{path} must be valid YAML; found an error{where}: {problem or 'it cannot be parsed'}."
        ) from None


def _refuse_repeats(path: str | Path, node: Any, depth: int = 0) -> None:
    """Raises if a key is repeated, of which YAML would use the last."""
    if node is None or isinstance(node.value, str) or depth > 3:  # file, columns, column, levels
        return
    pairs = [part if isinstance(part, tuple) else (None, part) for part in node.value]
    keys = [key.value for key, _ in pairs if key is not None and isinstance(key.value, str)]
    for key in keys:
        if keys.count(key) > 1:
            raise InvalidArgument(f"{path} must have each key once; found {key!r} repeated.")
    for _, value in pairs:
        _refuse_repeats(path, value, depth + 1)


def _kind(where: str, declared: Any) -> Kind:
    if isinstance(declared, dict) and TO_FILL_IN in map(str, declared.values()):
        raise InvalidArgument(
            f"{where} is not filled in yet: replace every {TO_FILL_IN}, or delete the column."
        )
    if not isinstance(declared, dict) or declared.get("kind") not in list(KINDS):
        raise InvalidArgument(
            f"{where} must be a mapping with a key 'kind' that is one of {', '.join(KINDS)}."
        )
    # YAML reads the words yes and no as Booleans, also where they are keys.
    named = {True: "yes", False: "no"}
    declared = {named.get(k, k) if isinstance(k, bool) else k: v for k, v in declared.items()}
    kind = KINDS[declared["kind"]]
    names = [field.name for field in fields(kind)]
    _check_keys(where, declared, ["kind", *names])
    for field in fields(kind):
        if field.default is NOTHING and field.name not in declared:
            raise InvalidArgument(f"{where} must have a key {field.name!r}; add it.")
    settings = {key: _number(key, value) for key, value in declared.items() if key != "kind"}
    try:
        return kind(**settings)
    except InvalidArgument as error:
        raise InvalidArgument(f"{where}: {error}") from None


def _check_keys(where: str, found: Mapping[Any, Any], known: Any) -> None:
    for key in found:
        if key not in known:
            raise InvalidArgument(
                f"{where} must have keys among {', '.join(known)}; found {key!r}."
            )


def _number(key: str, value: Any) -> Any:
    """YAML reads 1e5, unlike 1.0e+5, as text."""
    if key not in {"low", "high", "centre", "spread"} or not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value


def _declaration(kind: Kind) -> dict[str, Any]:
    declared: dict[str, Any] = {"kind": kind.kind}
    usual = {field.name: field.default for field in fields(type(kind))}
    for name, value in asdict(kind, recurse=False).items():
        if value != usual[name]:  # what has no default differs from it
            declared[name] = list(value) if isinstance(value, tuple) else _plain(value)
    return declared


def _plain(value: Any) -> Any:
    """Whole floats as integers, which are read the same and look better."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
