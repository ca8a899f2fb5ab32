"""Builds the documentation in ``site/`` and checks it: ``python scripts/docs.py``.

The code of the pages runs while they are built, in folders that are empty at the start. The build fails
if a block fails, if MkDocs warns of anything, if a link or an anchor of a built page leads nowhere,
or if a page loads a script, style, picture, font or frame from another host. It needs the
extra ``docs`` and no network.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "site"
_LOADS = {
    "script",
    "img",
    "iframe",
    "source",
    "video",
    "audio",
    "embed",
    "object",
    "track",
    "input",
}
_LOADING_LINKS = {
    "stylesheet",
    "icon",
    "preload",
    "modulepreload",
    "prefetch",
    "manifest",
    "preconnect",
}
_STYLE_LOADS = re.compile(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')\s]+)")
_SCRIPT_LOADS = re.compile(r"(?:import\s*\(|\bfrom\s|\bsrc\s*=)\s*[\"'`]((?:https?:)?//[^\"'`\s]+)")


def main() -> int:
    """Builds and checks; the exit code is that of the first of them that fails."""
    start = time.monotonic()
    code = build()
    if code:
        return code
    problems = check(SITE)
    print("\n".join(problems), file=sys.stderr)
    pages = len(list(SITE.rglob("*.html")))
    result = f"{len(problems)} problems" if problems else "no problems"
    print(f"{pages} pages in {SITE}, {result}, {time.monotonic() - start:.0f} s")
    return 1 if problems else 0


def build() -> int:
    """Builds the site anew in a scratch folder, where the blocks of a page may write files."""
    shutil.rmtree(SITE, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        for page in (ROOT / "docs").rglob("*.md"):
            for name in re.findall(r'workdir="([\w-]+)"', page.read_text("utf-8")):
                (Path(scratch) / name).mkdir(exist_ok=True)
        paths = [str(ROOT / "docs"), os.environ.get("PYTHONPATH", "")]
        env = os.environ | {
            # Pages run `tacit` of this environment, and `from docs_tools import figure`.
            "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "NO_MKDOCS_2_WARNING": "1",
            "NO_COLOR": "1",
        }
        command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
        command += ["-f", str(ROOT / "mkdocs.yml"), "-d", str(SITE)]
        return subprocess.run(command, cwd=scratch, env=env, check=False).returncode


def check(site: Path) -> list[str]:
    """Links that lead nowhere, and what is loaded from elsewhere."""
    pages = {path: _Page(path) for path in sorted(site.rglob("*.html"))}
    problems = []
    for path, page in pages.items():
        where = path.relative_to(site)
        problems += [f"{where}: loads {address}" for address in page.loads if _elsewhere(address)]
        if path.name == "404.html":  # its links are of the root of the site
            continue
        for address in page.links:
            if _elsewhere(address) or urlsplit(address).scheme:
                continue
            target, anchor = urldefrag(address)
            file = (path.parent / unquote(target)).resolve() if target else path
            file = file / "index.html" if file.is_dir() else file
            if not file.is_file():
                problems.append(f"{where}: no file for {address}")
            elif anchor and file in pages and unquote(anchor) not in pages[file].anchors:
                problems.append(f"{where}: no anchor {address}")
    for path in sorted(site.rglob("*.css")):
        loads = _STYLE_LOADS.findall(path.read_text("utf-8"))
        problems += [f"{path.relative_to(site)}: loads {address}" for address in loads]
    return problems


def _elsewhere(address: str) -> bool:
    return address.startswith("//") or urlsplit(address).scheme in ("http", "https", "ftp")


class _Page(HTMLParser):
    """The anchors of a page, where its links lead, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors = {"", "__top"}
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in _LOADS:
            addresses = [values.get(name, "") for name in ("src", "data", "poster")]
            sets = [each.split()[0] for each in values.get("srcset", "").split(",") if each.strip()]
            found = [each for each in addresses + sets if each]
            self.loads += found
            self.links += [each for each in found if not each.startswith("data:")]
        if tag == "link" and _LOADING_LINKS & set(values.get("rel", "").split()):
            self.loads.append(values.get("href", ""))
        self.loads += _STYLE_LOADS.findall(values.get("style", ""))

    def handle_data(self, data: str) -> None:
        if self.lasttag == "style":
            self.loads += _STYLE_LOADS.findall(data)
        if self.lasttag == "script":
            self.loads += _SCRIPT_LOADS.findall(data)


if __name__ == "__main__":
    sys.exit(main())
