"""The usual words in what people read, and references to pages that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PHRASES = (
    "as said",
    "asked for",
    "lie within",
    "lies within",
    "made up",
    "made-up",
    "numbers of it",
    "told apart",
    "told from zero",
    "what is said",
)
# Words may be on two lines, also of a comment.
WRITTEN = re.compile(rf"\b({'|'.join(PHRASES)})\b".replace(" ", r"[\s#]+"), re.IGNORECASE)
KINDS = {".css", ".html", ".md", ".py", ".txt"}
FILES = sorted(
    path
    for folder in ("src", "docs", "examples")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in KINDS
)
FILES += [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")]
TITLES = re.findall(r"^ *- (.+): \S+\.(?:md|py)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
NAMED = [
    (path.name, title)
    for path in FILES
    for title in re.findall(
        r"[\"']([A-Z][\w ]+)[\"'] in (?:the|Tacit's)\s+documentation", path.read_text("utf-8")
    )
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_unusual_phrases_do_not_occur(path):
    text = path.read_text("utf-8")
    found = [
        f"line {text.count(chr(10), 0, each.start()) + 1}: {each[0]}"
        for each in WRITTEN.finditer(text)
    ]
    assert not found


def test_a_phrase_over_two_lines_is_found():
    assert WRITTEN.search("the table that was asked\n    # for in it")


@pytest.mark.parametrize(("file", "title"), NAMED)
def test_messages_name_pages_of_the_documentation(file, title):
    assert title in TITLES


def test_no_message_names_a_file_of_the_documentation():
    sources = [path for path in FILES if ROOT / "src" in path.parents]
    assert len(NAMED) > 10
    assert not [
        path for path in sources if re.search(r"\bdocs/[\w/]+\.md", path.read_text("utf-8"))
    ]
