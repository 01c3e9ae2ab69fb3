"""Entries of YAML files that lie beside a module: each becomes a dataclass, or is refused with its place."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from importlib import resources
from typing import Any, TypeVar, get_origin, get_type_hints

import yaml

from amp_lessons._base.text.nearest import did_you_mean
from amp_lessons._base.text.words import listed

Kind = TypeVar("Kind")
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as quick, where it was built


def read_entries(package: str, files: Iterable[str], kind: type[Kind]) -> tuple[Kind, ...]:
    """Return the entries of some files of ``package``, in their order, as dataclasses of a ``kind``.

    A file is a list of mappings whose keys are the fields of ``kind``: text, lists of text for tuples, and
    mappings; one field is ``name``. Raises ValueError with file, line and name for an unknown, doubled or
    missing key, for another type than the field's, for a name that comes twice, and for what ``kind`` itself
    refuses.
    """
    made: dict[str, Kind] = {}
    folder = resources.files(package)
    for file in files:
        for where, entry in _entries(folder.joinpath(file).read_text("utf-8"), file):
            _check(entry, kind, where)
            if entry["name"] in made:
                raise ValueError(f"{where}: there is an entry of this name already")
            try:
                made[entry["name"]] = kind(
                    **{
                        key: tuple(value) if isinstance(value, list) else value
                        for key, value in entry.items()
                    }
                )
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from error
    return tuple(made.values())


def _entries(text: str, file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each entry of a file with the place where it begins."""
    loader = LOADER(text)
    try:
        for node in _items(loader, file):
            where = f"{file}, line {node.start_mark.line + 1}"
            if not isinstance(node, yaml.MappingNode):
                raise ValueError(f"{where}: an entry is a mapping, such as `- name: …`")
            keys = [key.value for key, _ in node.value]
            entry = loader.construct_mapping(node, deep=True)
            where += f", {entry['name']!r}" if "name" in entry else ""
            if twice := [key for key in entry if keys.count(key) > 1]:
                raise ValueError(f"{where}: {listed(twice)} stands there twice")
            yield where, entry
    except yaml.YAMLError as error:
        raise ValueError(f"{file} is no YAML: {error}") from error
    finally:
        loader.dispose()


def _items(loader: Any, file: str) -> list[yaml.Node]:
    root = loader.get_single_node()
    if not isinstance(root, yaml.SequenceNode):
        raise ValueError(f"{file}: the file is a list of entries")
    return root.value


def _check(entry: dict[str, Any], kind: type, where: str) -> None:
    """Raise ValueError unless an entry has the keys of ``kind``, and under each what belongs there."""
    fields = _fields(kind)
    if unknown := [key for key in entry if key not in fields]:
        raise ValueError(f"{where}: unknown key {unknown[0]!r}; {did_you_mean(unknown[0], fields)}")
    if missing := [name for name, (_, needed) in fields.items() if needed and name not in entry]:
        raise ValueError(f"{where}: {listed(missing)} is missing")
    for key, value in entry.items():
        wanted = _SAID[get_origin(fields[key][0]) or fields[key][0]]
        if not isinstance(value, wanted[0]) or not all(isinstance(each, str) for each in value):
            raise ValueError(f"{where}: {key} is {wanted[1]}, not {value!r}")


# what stands in a file for a field of a type
_SAID = {
    str: (str, "text (in quotes, if it looks like a number or a date)"),
    tuple: (list, "a list of text"),
    dict: (dict, "a mapping whose keys are text"),
}


@functools.cache
def _fields(kind: type) -> dict[str, tuple[Any, bool]]:
    """Return of each field of a dataclass its type, and whether an entry has to have it."""
    types = get_type_hints(kind)
    return {
        field.name: (types[field.name], field.default is field.default_factory is dataclasses.MISSING)
        for field in dataclasses.fields(kind)
    }
