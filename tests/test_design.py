"""docs/design.md lists every module that exists, and no other."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "tacit"
DESIGN = (ROOT / "docs" / "design.md").read_text()
SECTIONS = dict(re.findall(r"### ([^\n]+)\n(.*?)(?=\n##)", DESIGN, flags=re.DOTALL))


def packages():
    """Packages with modules of their own."""
    for folder in sorted({path.parent for path in SOURCE.rglob("*.py")}):
        if any(path.name != "__init__.py" for path in folder.glob("*.py")):
            yield folder


@pytest.mark.parametrize("folder", list(packages()), ids=lambda folder: folder.name)
def test_every_module_is_listed(folder):
    inside = folder.relative_to(SOURCE).as_posix()
    section = SECTIONS["Top level" if inside == "." else f"`{inside}/`"]
    listed = re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)
    assert sorted(listed) == sorted(p.stem for p in folder.glob("*.py") if p.stem != "__init__")
