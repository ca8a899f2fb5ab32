"""What the pages need while they are built: functions that their blocks import, and hooks for MkDocs.

``scripts/docs.py`` puts this folder on the path, and ``mkdocs.yml`` names this file under ``hooks``.
"""

import base64
import html
import io
import posixpath
import re
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
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


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
                files.append(File.generated(config, uri, abs_src_path=str(ROOT / picture)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turns links to files of the repository into links to their pages, or into plain text."""
    uri = page.file.src_uri
    sources = {name: source for source, name in PAGES.items()}
    source = sources.get(uri, f"docs/{uri}")

    def replace(match: re.Match[str]) -> str:
        bang, text, target = match.groups()
        path, hash_sign, anchor = target.partition("#")
        if bang or not path or re.match(r"\w+:", path):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        name = PAGES.get(path, path.removeprefix("docs/") if path.startswith("docs/") else "")
        if name:
            relative = posixpath.relpath(name, posixpath.dirname(uri) or ".")
            return f"[{text}]({relative}{hash_sign}{anchor})"
        if not (ROOT / path).exists():
            return match[0]  # MkDocs warns of it
        return text if "`" in text else f"`{text}`"

    return _LINK.sub(replace, markdown)


def on_page_content(content: str, page: Any, files: Any, **_: Any) -> str:
    """Mends a notebook: links lead to pages, and scripts that could load something are left out."""
    uri = page.file.src_uri
    if not uri.endswith(".py"):
        return content
    for script in ("MathJax", "mermaid"):
        content = re.sub(
            rf"<script[^>]*>(?:(?!</script>).)*?{script}.*?</script>", "", content, flags=re.DOTALL
        )
    content = content.replace('<script src=""> </script>', "")

    def replace(match: re.Match[str]) -> str:
        path, hash_sign, anchor = match[1].partition("#")
        target = files.get_file_from_path(
            posixpath.normpath(posixpath.join(posixpath.dirname(uri), path))
        )
        if not path or target is None:
            return match[0]  # `scripts/docs.py` checks it
        return f'href="{target.url_relative_to(page.file)}{hash_sign}{anchor}"'

    return re.sub(r'href="(?!\w+:)([^"]*)"', replace, content)
