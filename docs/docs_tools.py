"""What the pages need while they are built: functions that their blocks import, and hooks for MkDocs.

``scripts/docs.py`` puts this folder on the path, and ``mkdocs.yml`` names this file under ``hooks``.
"""

import base64
import functools
import html
import io
import posixpath
import re
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# Files of the repository that are pages too.
PAGES = {
    "src/tacit/privacy/PROOFS.md": "evidence/proofs.md",
    "src/tacit/federated/PROOFS.md": "evidence/proofs_federated.md",
    "benchmarks/RESULTS.md": "evidence/measurements.md",
    "experiments/RESULTS.md": "evidence/reproduction.md",
    "CHANGELOG.md": "development/changelog.md",
    "CONTRIBUTING.md": "development/contributing.md",
    "SECURITY.md": "development/security.md",
}
# Pages whose tables are wide, and what is not shown beside them.
WIDE = {
    "evidence/measurements.md": ["navigation"],
    "evidence/papers.md": ["navigation", "toc"],
    "evidence/reproduction.md": ["navigation"],
}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_EMPTY_BLOCK = re.compile(
    r'<div class="[^"]*highlight[^"]*"><pre><span></span><code>\s*</code></pre>\s*</div>'
)
# What a block printed has no colours.
_OUTPUT = re.compile(r"(<pre>(?:<span></span><code>)?)([^<]+)(?=</code></pre>|</pre>)")
_FACTORY = (
    (r"\(lambda: ", r"\)\)\(\)(?=</code>)"),
    (
        r'<span class="p">\(</span><span class="k">lambda</span><span class="p">:</span> ',
        r"\)\)\(\)",
    ),
)
_SHELL = re.compile(r"^( *)```sh exec=.*\n", re.MULTILINE)
_WIDTH = 88  # characters beside the navigation, as `extra.css` has them
_DRAWING = re.compile(
    r"^(?:from docs_tools import \w+|print\(figure\((.+?)((?:, alt=\"[^\"]*\")?)\)\))$",
    re.MULTILINE,
)


def figure(fig: Any, alt: str = "") -> str:
    """The picture as an ``<img>`` with its data in it, for a block with ``html="1"``. Closes the figure.

    It has a white background of its own, so that it is readable on a dark page too.
    """
    import matplotlib.pyplot as plt

    data = io.BytesIO()
    fig.savefig(data, format="png", dpi=160, bbox_inches="tight", facecolor="white")
    plt.close(fig)
    source = base64.b64encode(data.getvalue()).decode("ascii")
    return (
        f'<img class="figure" style="width: 100%" alt="{html.escape(alt)}" '
        f'src="data:image/png;base64,{source}">'
    )


def report(path: str) -> str:
    """The page of a report in a frame, for a block with ``html="1"``."""
    page = html.escape(Path(path).read_text("utf-8"))
    style = "width: 100%; height: 40rem; border: 1px solid #8888"
    return f'<iframe title="The report" srcdoc="{page}" style="{style}"></iframe>'


def command_line() -> str:
    """Every command with its arguments and options, as the parser has them."""
    import typer
    import typer.core

    from tacit.cli.main import COMMANDS, make_app

    typer.core.HAS_RICH = False  # as in `tacit.cli.main`
    root = typer.main.get_command(make_app([each.name for each in COMMANDS]))
    return "\n".join(_command_lines(root, "tacit", 1))


def _command_lines(command: Any, path: str, level: int) -> list[str]:
    """A heading, the first lines of the help, and a list of parameters; of a group, its commands."""
    import typer

    lines = []
    if level > 1:
        lines = [
            "",
            f"{'#' * level} {path}",
            "",
            _plain(command.help or command.get_short_help_str(999)),
            "",
        ]
    if hasattr(command, "commands"):
        for name, each in command.commands.items():
            lines += _command_lines(each, f"{path} {name}", level + 1)
        return lines
    context = typer.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    lines += ["```text", usage, "```", ""]
    for parameter in command.get_params(context):
        name, words = parameter.get_help_record(context) or ("", "")
        if name and name != "--help":
            lines.append(f"- `{name}`: {_plain(words)}")
    return lines


def _plain(words: str) -> str:
    """Help as Markdown that shows it as it is."""
    return re.sub(r"([\\`*_<\[\]|])", r"\\\1", words)


def on_files(files: Any, config: Any) -> Any:
    """Adds the files of the repository that are pages, and their pictures."""
    from mkdocs.structure.files import File

    for source, page in PAGES.items():
        text = (ROOT / source).read_text("utf-8")
        files.append(File.generated(config, page, content=text))
        for bang, _, target in _LINK.findall(text):
            if bang:
                picture = posixpath.join(posixpath.dirname(source), target)
                uri = posixpath.join(posixpath.dirname(page), target)
                files.append(
                    File.generated(config, uri, abs_src_path=str(ROOT / picture))
                )
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turns links to files of the repository into links to their pages, or into plain text.

    And shows a bar in the code of a table's cell as it is, and wide tables on wide pages.
    """
    page.meta.setdefault("hide", WIDE.get(page.file.src_uri, []))
    # A bar in a cell of a table, which GitHub wants escaped and Python-Markdown does not.
    markdown = re.sub(r"`[^`\n]*`", lambda code: code[0].replace("\\|", "|"), markdown)
    uri = page.file.src_uri
    sources = {name: source for source, name in PAGES.items()}
    source = sources.get(uri, f"docs/{uri}")

    def replace(match: re.Match[str]) -> str:
        bang, text, target = match.groups()
        path, hash_sign, anchor = target.partition("#")
        if bang or not path or re.match(r"\w+:", path):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        name = PAGES.get(
            path, path.removeprefix("docs/") if path.startswith("docs/") else ""
        )
        if name:
            relative = posixpath.relpath(name, posixpath.dirname(uri) or ".")
            return f"[{text}]({relative}{hash_sign}{anchor})"
        if not (ROOT / path).exists():
            return match[0]  # MkDocs warns of it
        return text if "`" in text else f"`{text}`"

    # Every command of a block must succeed, not only the last.
    markdown = _SHELL.sub(r"\g<0>\g<1>set -e  # markdown-exec: hide\n", markdown)
    return _DRAWING.sub(_hide_drawing, _LINK.sub(replace, markdown))


def _hide_drawing(match: re.Match[str]) -> str:
    """Shows what is drawn, and not that the page contains it as a picture."""
    if match[1] is None or match[1].isidentifier():
        return f"{match[0]}  # markdown-exec: hide"
    return f"fig = {match[1]}\nprint(figure(fig{match[2]}))  # markdown-exec: hide"


def on_page_content(content: str, page: Any, files: Any, **_: Any) -> str:
    """Mends what other tools rendered: notebooks, and docstrings that name pages and objects."""
    uri = page.file.src_uri
    # Blocks that print nothing, or whose source is hidden.
    content = re.sub(_EMPTY_BLOCK, "", content)
    content = _OUTPUT.sub(_wrapped_output, content)
    if uri.endswith(".py"):
        content = _with_alternatives(_without_loading_scripts(content))
        content = re.sub(
            r'href="(?!\w+:|#)([^"]+)"',
            lambda match: (
                f'href="{_address(posixpath.join(posixpath.dirname(uri), match[1]), page, files)}"'
            ),
            content,
        )
    if uri.startswith("reference/python/"):
        content = re.sub(
            r'"([A-Z][\w ]+)" in the\s+documentation',
            lambda match: (
                f'<a href="{_address(titles()[match[1]], page, files)}">{match[1]}</a>'
            ),
            content,
        )
        content = re.sub(r"(?<!<b>)<code>([\w.]+)</code>", _object_link, content)
        for (
            begin,
            end,
        ) in _FACTORY:  # a default that a function makes, as the value it makes
            content = re.sub(begin + "(.*?)" + end, r"\1)", content)
    return content


def _wrapped_output(match: re.Match[str]) -> str:
    """Output whose sentences are wrapped, as a terminal does it. Lines of tables stay as they are."""
    lines = []
    for line in html.unescape(match[2]).split("\n"):
        gaps = list(re.finditer(r"\S {2,}(?=\S)", line))
        table = len(gaps) > 1 or re.search(r"──|^ {9}", line)
        indent = " " * gaps[0].end() if gaps else "  " if line.startswith("- ") else ""
        wrapped = textwrap.wrap(
            line, _WIDTH, subsequent_indent=indent, break_on_hyphens=False
        )
        lines += [line] if table or len(line) <= _WIDTH else wrapped
    return match[1] + html.escape("\n".join(lines), quote=False)


def _with_alternatives(content: str) -> str:
    """A notebook whose pictures have the texts of its comments ``<!-- alt: ... -->``, in their order."""
    texts = iter(re.findall(r"<!-- alt: (.*?) -->", content))
    return re.sub(
        r'alt="No description has been provided for this image"',
        lambda _: f'alt="{html.escape(next(texts))}"',
        content,
    )


def _without_loading_scripts(content: str) -> str:
    """A notebook without the scripts that fetch MathJax and Mermaid from elsewhere."""
    for name in ("MathJax", "mermaid"):
        script = rf"<script[^>]*>(?:(?!</script>).)*?{name}.*?</script>"
        content = re.sub(script, "", content, flags=re.DOTALL)
    return content.replace('<script src=""> </script>', "")


def _address(target: str, page: Any, files: Any) -> str:
    """The address of a page by its path in `docs/`. `scripts/docs.py` finds what stays broken."""
    path, hash_sign, anchor = target.partition("#")
    found = files.get_file_from_path(posixpath.normpath(path))
    return f"{found.url_relative_to(page.file)}{hash_sign}{anchor}" if found else target


@functools.cache
def titles() -> dict[str, str]:
    """The pages by their titles in the navigation; of equal titles the first counts."""
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    found = re.findall(r"^ +- ([^:\n]+): (\S+\.(?:md|py))$", text, re.MULTILINE)
    return dict(reversed(found))


@functools.cache
def directives() -> list[str]:
    """The objects of the reference, as its pages name them."""
    pages = sorted((ROOT / "docs" / "reference" / "python").glob("*.md"))
    return [
        each
        for page in pages
        for each in re.findall(r"^::: (\S+)", page.read_text("utf-8"), re.MULTILINE)
    ]


def _object_link(match: re.Match[str]) -> str:
    """The name of a class, or a whole name with dots, as a link if the reference has it."""
    known = {each.rpartition(".")[2]: each for each in directives()}
    first, *rest = match[1].removeprefix("tacit.").split(".")
    if first in ("accounting", "errors", "federated", "methods", "models") and rest:
        first, *rest = rest
    if first not in known or not (first[0].isupper() or match[1].startswith("tacit.")):
        return match[0]
    identifier = ".".join([known[first], *rest])
    return (
        f'<autoref identifier="{identifier}" optional><code>{match[1]}</code></autoref>'
    )
