"""A hook of the build: the README as the package's long description.

A package index shows the README without the repository around it. Pictures that lie in the repository are
left out, links into it become the names of files, and the package is installed from the index.
"""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n\n?", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:)([^)]*)\)")
_TRY = re.compile(r"^On a machine with .*?\n(```sh\n).*?(?=\n```)", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"^<!-- .* -->\n", re.MULTILINE)
_LAST = "\nThe source distribution contains the files that are named here. Its folder `docs` is the documentation.\n"


class LongDescription(MetadataHookInterface):
    """Sets the field `readme`."""

    def update(self, metadata: dict[str, object]) -> None:
        """Adds the text to the metadata."""
        text = Path(self.root, "README.md").read_text("utf-8")
        text = _MARK.sub("", _PICTURE.sub("", text)).replace("the picture above", "a picture")
        text = _TRY.sub(r"\1pip install 'tacit-bayes[demo]' && tacit demo", text)
        text = _LINK.sub(
            lambda link: link[1] if link[1] == link[2] else f"{link[1]} ({link[2]})", text
        )
        metadata["readme"] = {"content-type": "text/markdown", "text": text + _LAST}
