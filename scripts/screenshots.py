"""Pictures of the pages of ``site/`` in headless Chromium, to be looked at.

``python scripts/screenshots.py pictures`` takes every page at the width of a desktop and of a phone, light and
dark. Parts of addresses choose pages: ``python scripts/screenshots.py pictures start reference/python``.
"""

import argparse
import functools
import shutil
import subprocess
import sys
import tempfile
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SITE = Path(__file__).resolve().parent.parent / "site"
WIDTHS = {"desktop": 1280, "phone": 390}
SCHEMES = {"light": 1, "dark": 0}  # of Blink's setting
QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class _Server(SimpleHTTPRequestHandler):
    """The site, and ``/frame/WIDTH/...``: a page in a frame, as windows have a least width."""

    def do_GET(self) -> None:
        if not self.path.startswith("/frame/"):
            super().do_GET()
            return
        _, _, width, address = self.path.split("/", 3)
        style = f"border: 0; width: {width}px; height: 100vh"
        text = f'<body style="margin: 0"><iframe style="{style}" src="/{address}"></iframe>'
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


def main() -> int:
    """Serves the site, and takes the pictures one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the pictures go")
    parser.add_argument("pages", nargs="*", help="parts of addresses; all pages by default")
    parser.add_argument("--height", type=int, default=1600)
    given = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    folders = [path.parent.relative_to(SITE) for path in SITE.rglob("index.html")]
    pages = [each.as_posix() if each.name else "index" for each in folders]
    pages = [each for each in pages if not given.pages or any(part in each for part in given.pages)]
    if browser is None or not pages:
        print("There is no such page." if browser else "Chromium is not installed.")
        return 2
    given.folder.mkdir(parents=True, exist_ok=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Server, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for page in sorted(pages):
        for device, width in WIDTHS.items():
            for scheme, setting in SCHEMES.items():
                name = f"{page.replace('/', '-')}-{device}-{scheme}.png"
                address = f"http://127.0.0.1:{server.server_port}/frame/{width}/{page}/"
                with tempfile.TemporaryDirectory() as profile:
                    command = [
                        *(browser, *QUIET, f"--user-data-dir={profile}"),
                        f"--blink-settings=preferredColorScheme={setting}",
                        f"--window-size={max(width, 500)},{given.height}",
                        *("--virtual-time-budget=3000", f"--screenshot={given.folder / name}"),
                        address.removesuffix("index/"),
                    ]
                    subprocess.run(command, check=True, capture_output=True, timeout=120)
                print(given.folder / name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
