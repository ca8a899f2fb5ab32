"""Models in Python files, for the command line.

Such a file is code of the user's own, and runs with the user's rights, before any row is read.
"""

import hashlib
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any

from tacit.errors import InvalidArgument, TacitError, os_error_reason

_DEFAULT_NAME = "model"
# Their messages are about code. Those of other errors could contain a value.
_ERRORS_ABOUT_CODE = (AttributeError, ImportError, NameError)


@dataclass(frozen=True)
class ModelFile:
    """A file, the name of the model in it, and the SHA-256 of the file.

    The file runs when `written` is first asked for, if it still has this digest.
    """

    path: Path
    name: str
    digest: str

    @classmethod
    def named(cls, text: str) -> "ModelFile":
        """The model that was typed as ``model.py`` or ``model.py:name``.

        Args:
            text: What was typed. Without a name, the model is what the file calls ``model``.

        Raises:
            InvalidArgument: If there is no such file.
        """
        file, _, name = text.partition(".py:")
        path = Path(f"{file}.py" if name else text)
        if path.suffix != ".py" or (name and not name.isidentifier()):
            raise InvalidArgument(
                "--model takes a Python file, such as model.py or model.py:name, where name is that of "
                "the model in the file."
            )
        return cls(path, name or _DEFAULT_NAME, hashlib.sha256(_read_model_file(path)).hexdigest())

    def __str__(self) -> str:
        return f"{self.path}:{self.name}"

    def facts(self) -> dict[str, str]:
        """What the settings of a run record."""
        return {"model": str(self), "model_sha256": self.digest}

    @classmethod
    def recorded(cls, facts: Any) -> "ModelFile | None":
        """The file that the settings of a run record, if any."""
        if facts.get("model") is None:
            return None
        path, _, name = facts["model"].rpartition(":")
        return cls(Path(path), name, facts["model_sha256"])

    @cached_property
    def written(self) -> object:
        """The model as it is written in the file, which runs now.

        Raises:
            InvalidArgument: If the file has changed, fails, or has no model of this name.
        """
        source = _read_model_file(self.path)
        if hashlib.sha256(source).hexdigest() != self.digest:
            raise InvalidArgument(f"{self.path} has changed since it was first read; run again.")
        found = vars(self._run(source))
        if self.name not in found:
            raise InvalidArgument(
                f"{self.path} has no {self.name!r}; call the model {_DEFAULT_NAME!r}, or pass its name as "
                f"--model {self.path}:name."
            )
        return found[self.name]

    def _run(self, source: bytes) -> ModuleType:
        module = ModuleType(f"_tacit_model_{self.digest[:16]}")
        module.__file__ = str(self.path)
        sys.modules[module.__name__] = module  # where Python looks for what classes refer to
        try:
            exec(compile(source, str(self.path), "exec"), vars(module))  # noqa: S102 (the user's own)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 (whatever the file does)
            raise InvalidArgument(f"{self.path} cannot be used: {self._reason(error)}") from None
        return module

    def _reason(self, error: BaseException) -> str:
        """What went wrong and where, without a message that could contain a value."""
        if isinstance(error, TacitError):
            return str(error)
        if isinstance(error, SyntaxError):
            return f"{error.msg} in line {error.lineno}."
        lines = [f.lineno for f in extract_tb(error.__traceback__) if f.filename == str(self.path)]
        where = f" in line {lines[-1]}" if lines else ""
        said = f": {error}" if isinstance(error, _ERRORS_ABOUT_CODE) else ""
        return f"{type(error).__name__}{where}{said}."


def _read_model_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = os_error_reason(error) or "it cannot be opened"
        raise InvalidArgument(f"The model file {path} cannot be read: {reason}.") from None
