"""A hook of the build: the README as the package's long description.

A package index shows the README without the repository around it. Pictures that lie in the repository are
left out, and links into it become plain text.
"""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n\n?", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:)[^)]*\)")
_MARK = re.compile(r"^<!-- .* -->\n", re.MULTILINE)
_LAST = "\nThe source distribution contains the files that are named here, and the documentation in its folder `docs`.\n"


class LongDescription(MetadataHookInterface):
    """Sets the field `readme`."""

    def update(self, metadata: dict[str, object]) -> None:
        """Adds the text to the metadata."""
        text = Path(self.root, "README.md").read_text("utf-8")
        text = _LINK.sub(r"\1", _MARK.sub("", _PICTURE.sub("", text)))
        text = text.replace("the picture above", "a picture")
        metadata["readme"] = {"content-type": "text/markdown", "text": text + _LAST}
