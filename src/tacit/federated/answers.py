"""What a site answers to one message."""

import importlib
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tacit.errors import Refused
from tacit.federated.compiled import written_to
from tacit.federated.deploy import OpenSite, SiteSettings, Study, load_study
from tacit.federated.masks import Session
from tacit.federated.messages import Fields, reply_fields, task_of
from tacit.privacy.rows import Rows
from tacit.privacy.settings import programs_stored_in

# Where JAX stores compiled programs is one setting of the whole process.
_TURN = threading.Lock()
_TACIT = Path(__file__).parents[1]
# Endings of files beside the study that it may read.
_STUDY_FILES = (".py", ".yaml", ".yml", ".toml", ".json")


def answered(site: OpenSite, fields: Mapping[str, Any]) -> Fields:
    """The answer of a site to one message, if the server agrees with the site on the study."""
    kind, agreement = fields.get("kind"), site.study.agreement
    if kind == "hello" and "agreed" not in fields:
        return {"site": site.name, "agreed": agreement.text}
    if kind in {"hello", "offer", "task"}:
        agreement.refuse_other(fields.get("agreed"), site.name, "The server")
    return {**_answered(site, fields), "agreed": agreement.text}


def _answered(site: OpenSite, fields: Mapping[str, Any]) -> Fields:
    kind = fields.get("kind")
    if kind == "hello":
        return {"site": site.name}
    if kind == "offer":
        session = Session(str(fields["run"]), int(fields["round"]), int(fields["attempt"]))
        offer = site.offer(session)
        return {"site": offer.site, "key": offer.key, "signature": offer.signature}
    if kind == "task":
        return reply_fields(site.answer(*task_of(fields)))
    raise Refused("The server sent a message that this version of Tacit does not know.")


class WarmSite:
    """A site whose study and rows stay in memory from one message to the next.

    Programs that were compiled then serve again. The study is loaded and the rows are read anew when one of
    their files has changed, or one of a module that the study imports. (Installed packages are not watched.)
    The ledger is opened for every message, so that one that was deleted or replaced
    is noticed.

    Args:
        settings: The settings of the site.
    """

    def __init__(self, settings: SiteSettings) -> None:
        self._settings = settings
        self._stamp: tuple[object, ...] = ()
        self._study: Study | None = None
        self._rows: Rows | None = None
        self._imported: dict[str, Path] = {}  # modules that came with the study

    def opened(self) -> OpenSite:
        """The site, open for one message."""
        if self._study is None or self._stamp != self._stamped():
            self._load()
        return OpenSite(self._settings, self._study, self._read)

    def warmed(self) -> Fields:
        """Loads the study and calibrates its noise, before the first message. Nothing is charged."""
        with _TURN, written_to(self._settings.ledger.with_suffix(".cache")):
            self.opened().prepare()
        return {}

    def _load(self) -> None:
        self._study, self._rows = None, None
        for name in self._imported:
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        before = set(sys.modules)
        self._study = load_study(self._settings.study)
        self._imported = dict(_own(set(sys.modules) - before))
        self._stamp = self._stamped()

    def _stamped(self) -> tuple[object, ...]:
        """What shows that a file of the study or the data has changed."""
        study, data = self._settings.study, self._settings.data
        beside = [path for path in study.parent.iterdir() if path.suffix in _STUDY_FILES]
        return tuple(_stamps({*beside, *self._imported.values(), data}))

    def answered(self, fields: Fields) -> Fields:
        """The answer of the site to one message."""
        return _answered_by(self.opened, self._settings, fields)

    def _read(self, path: Path) -> Rows:
        if self._study is not None and self._rows is None:
            self._rows = self._study.read(path)
        assert self._rows is not None
        return self._rows


def _own(names: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """The files of those modules that are neither installed nor of Tacit."""
    installed = [Path(each) for each in (*sysconfig.get_paths().values(), str(_TACIT))]
    for name in names:
        file = getattr(sys.modules[name], "__file__", None)
        if file and not any(Path(file).is_relative_to(each) for each in installed):
            yield name, Path(file)


def _stamps(paths: Iterable[Path]) -> Iterator[tuple[str, int, int]]:
    for path in sorted(paths):
        with suppress(OSError):  # whoever reads it says what is missing
            found = path.stat()
            yield str(path), found.st_mtime_ns, found.st_size


def answered_once(settings: SiteSettings, fields: Fields) -> Fields:
    """The answer of a site that is opened for one message."""
    return _answered_by(lambda: OpenSite(settings), settings, fields)


def _answered_by(opened: Callable[[], OpenSite], settings: SiteSettings, fields: Fields) -> Fields:
    # Every message may be a process of its own, so programs of the study are stored for the next one.
    # Programs that take rows are not stored.
    with _TURN:
        with written_to(settings.ledger.with_suffix(".cache")):
            site = opened()
            if fields.get("kind") == "task":
                site.prepare()
        with programs_stored_in(None):
            return answered(site, fields)
