"""What a reader meets is there: names, pages, links and anchors. The site is not built."""

import ast
import posixpath
import re
from functools import cache
from pathlib import Path

import docs_tools
import pytest
import yaml

import tacit
from tacit import accounting, errors, federated, methods, models

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SOURCES = {path.relative_to(DOCS).as_posix(): path for path in DOCS.rglob("*.md")}
SOURCES |= {"start/first_fit.py": DOCS / "start" / "first_fit.py"}
# By their names on the site, with the files of the repository that are pages.
PAGES = SOURCES | {page: ROOT / source for source, page in docs_tools.PAGES.items()}


def prose(text):
    """The text without its blocks of code."""
    return re.sub(r"^( *)(`{3,}|~{3,}).*?^\1\2", "", text, flags=re.DOTALL | re.MULTILINE)


@cache
def navigation():
    """The pages in the navigation, in their order."""
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    tree = yaml.safe_load(text[text.index("\nnav:") :])["nav"]

    def leaves(node):
        if isinstance(node, str):
            return [node]
        return [
            leaf
            for each in (node.values() if isinstance(node, dict) else node)
            for leaf in leaves(each)
        ]

    return leaves(tree)


def test_every_page_is_in_the_navigation_once_and_every_entry_is_a_page():
    assert sorted(navigation()) == sorted(PAGES)


@pytest.mark.parametrize("module", [tacit, accounting, federated, methods, models])
def test_the_reference_has_every_public_name(module):
    directives = docs_tools.directives()
    for name in set(module.__all__) - {"accounting", "federated", "methods", "models"}:
        places = {f"{module.__name__}.{name}", f"tacit.{name}"}
        assert places & set(directives), f"{module.__name__}.{name} is on no page"


def test_what_the_reference_names_exists():
    for name in docs_tools.directives():
        found = tacit
        for part in name.split(".")[1:]:
            found = getattr(found, part)
        assert found is not None, name


def public_errors():
    tree = ast.parse(Path(errors.__file__).read_text("utf-8"))
    return [each.name for each in tree.body if isinstance(each, ast.ClassDef)]


def test_the_page_of_errors_has_every_exception():
    page = SOURCES["reference/errors.md"].read_text("utf-8")
    directives = docs_tools.directives()
    for name in public_errors():
        assert f"`{name}`" in page or f"`tacit.{name}`" in page, name
        assert {f"tacit.{name}", f"tacit.errors.{name}"} & set(directives), name
    for name in re.findall(r"^### (\w+)$", page, re.MULTILINE):
        assert name in public_errors()


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= 700


@pytest.mark.parametrize(
    "name", [each for each in SOURCES if not each.startswith(("evidence/", "development/"))]
)
def test_pages_for_users_are_not_about_benchmarks(name):
    assert "benchmarks/" not in SOURCES[name].read_text("utf-8")


def pasted(text):
    """The blocks without a language, or of plain text, of a page: outputs that no build made."""
    fences = re.findall(r"^ *(`{3,}|~{3,})(.*)$", text, re.MULTILINE)
    return [words for _, words in fences[::2] if words.strip() in ("", "console", "text")]


@pytest.mark.parametrize("name", SOURCES)
def test_outputs_are_made_by_the_build(name):
    assert not pasted(SOURCES[name].read_text("utf-8"))


def test_a_pasted_output_is_found():
    assert pasted("```python\nprint(1)\n```\n\n```\n1\n```\n") == [""]


@cache
def anchors(path):
    """The anchors of a page: its headings, and those that it names itself."""
    text = prose(path.read_text("utf-8"))
    if path.suffix == ".py":
        text = re.sub(r"^# ?", "", text, flags=re.MULTILINE)
    found = set(re.findall(r"(?:\bid=\"|\{ *#)([\w-]+)", text))
    for heading in re.findall(r"^#{1,6} +(.+?)(?: *\{.*\})?$", text, re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", words).strip().lower())
        found.add(slug.encode("ascii", "ignore").decode())
    return found


def links(path):
    """Where the links of a page lead: files and anchors."""
    text = prose(path.read_text("utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"\w+:", target):
            file, _, anchor = target.partition("#")
            yield target, (path.parent / file) if file else path, anchor


@pytest.mark.parametrize(
    "name", [*(f"docs/{each}" for each in SOURCES), "README.md", *docs_tools.PAGES]
)
def test_links_lead_somewhere(name):
    for target, file, anchor in links(ROOT / name):
        uri = posixpath.normpath(file.resolve().relative_to(ROOT).as_posix()).removeprefix("docs/")
        file = PAGES.get(uri, file)  # noqa: PLW2901 (a page that is a file of the repository)
        assert file.exists(), target
        # Headings that blocks print, and those of docstrings, are there when the site is built.
        generated = uri == "reference/command_line.md" or uri.startswith("reference/python/")
        if anchor and not generated:
            assert anchor in anchors(file), target
