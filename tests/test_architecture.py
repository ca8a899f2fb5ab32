"""What docs/development/architecture.md names is where it says."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "development/architecture.md").read_text()
PLACES = (ROOT / "src" / "tacit", ROOT, ROOT / "src" / "tacit" / "privacy")
FILES = sorted(set(re.findall(r"`((?:[\w.]+/)*\w+\.(?:py|md))`", PAGE)))
# A file, and a name that it defines, one after the other.
NAMES = sorted(set(re.findall(r"`((?:\w+/)+\w+\.py)` `([\w.]+)`", PAGE)))
NAMES += [(file, name) for name, file in re.findall(r"`([\w.]+)` in `((?:\w+/)+\w+\.py)`", PAGE)]
NAMES += [
    (files.split("`")[1], name)
    for name, files in re.findall(r"^\| `(\w+)` \|[^|]*\| ([^|]*) \|$", PAGE, flags=re.MULTILINE)
]


@pytest.mark.parametrize("file", FILES)
def test_the_file_exists(file):
    assert any((place / file).exists() for place in PLACES)


@pytest.mark.parametrize(("file", "name"), NAMES)
def test_the_name_is_defined_there(file, name):
    body = ast.parse((ROOT / "src" / "tacit" / file).read_text()).body
    for part in name.split("."):
        targets = {
            target.id: each
            for each in body
            if isinstance(each, (ast.Assign, ast.AnnAssign))
            for target in (each.targets if isinstance(each, ast.Assign) else [each.target])
            if isinstance(target, ast.Name)
        }
        defined = {each.name: each for each in body if hasattr(each, "name")} | targets
        assert part in defined
        body = getattr(defined[part], "body", [])


def test_names_were_found():
    assert len(FILES) > 40
    assert len(NAMES) > 20
