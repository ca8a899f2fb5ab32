"""Studies with real sites: what all agree on, what each site keeps on its disk, and how it answers a message.

A site's process may answer one message and end. The site is therefore opened from a settings file of its
own, which names its copy of the study, its data and its ledger. The ledger also holds the tasks, the answers
and the secrets in between. Nothing of this comes by message.

Compiled JAX programs are kept on the site's disk from one process to the next. A program contains the shapes of
its arguments, so a program that takes rows reveals their number. Only programs that are compiled before rows are
opened are stored. The folder is private to its owner, because whoever can write into it decides what the site runs.
"""

import importlib
import importlib.util
import logging
import os
import stat
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Generic

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit._precision import in_32_bits
from tacit.accounting import Budget
from tacit.accounting.ledger import Ledger
from tacit.errors import InvalidArgument, LedgerError, Refused, TacitError
from tacit.federated.agreement import Agreement, short_digest
from tacit.federated.guard import answer_or_error
from tacit.federated.masks import LedgerMaskKeys, MaskedSite, Masker, Roster
from tacit.federated.method import FederatedMethod, prepare_site, study_about
from tacit.federated.protocol import (
    Fields,
    Offer,
    Reply,
    Session,
    Task,
    reply_fields,
    task_from_fields,
)
from tacit.federated.schemes import Prepared, RunSetting, WithoutPrivacy
from tacit.federated.server import Server
from tacit.federated.settings import SiteSettings
from tacit.federated.site import Client
from tacit.federated.targets import T, Target, study_digest
from tacit.models.base import UnitModel
from tacit.privacy.checkpoint import strip_addresses
from tacit.privacy.gate import compilation_cache_in
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows

_LOG = logging.getLogger(__name__)
# With more sites, keys of masks take tens of megabytes in a round, and hardly a round would be complete.
MAX_MASKED_SITES = 300
# Endings of the files that JAX writes.
_CACHE_SUFFIXES = ("-cache", "-atime")


@contextmanager
def compilation_cache(folder: Path) -> Iterator[None]:
    """Stores programs that any thread compiles meanwhile in a private folder."""
    _make_private(folder)
    with compilation_cache_in(folder):
        yield


def _make_private(folder: Path) -> None:
    """Makes a folder private; removes programs from a folder that others could access."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise InvalidArgument(
            f"The folder of compiled programs, {folder}, must belong to the user who runs the site."
        )
    if stat.S_IMODE(found.st_mode) != 0o700:
        folder.chmod(0o700)
        for each in folder.iterdir():
            if each.name.endswith(_CACHE_SUFFIXES):
                each.unlink()


Finish = Callable[[Server, Path], None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Study(Generic[T]):
    """What the server and the sites agree on. It is public, and each has its own copy.

    Args:
        run: The name of the run.
        target: What sites fit together, or are asked once.
        method: Settings of the run.
        sites: Names of the sites.
        budget: The budget of every site.
        read: Reads the rows of a site from its data file.
        example: Simulated rows with the same columns, to know the unit of privacy before data are read.
        finish: Is called with the server at the end of the run, and the path of the result.
        seed: Makes the run reproducible, and not private.
        schema: The public facts about columns, as text; all sites must have the same.
    """

    run: str
    target: T
    method: FederatedMethod[T]
    sites: tuple[str, ...]
    budget: Budget
    read: Callable[[Path], Rows]
    example: Rows
    finish: Finish | None = None
    seed: int | None = None
    schema: str = ""

    def __post_init__(self) -> None:
        if not self.run or len(set(self.sites)) != len(self.sites) or not self.sites:
            raise InvalidArgument(
                "A study needs the name of its run, and one or more sites with different names."
            )
        if not isinstance(self.budget, Budget) or isinstance(self.method.scheme, WithoutPrivacy):
            raise InvalidArgument(
                "A study with real sites needs a budget and a private scheme. For comparisons without "
                "privacy use tacit.fit_federated on simulated data."
            )
        if self.masked and len(self.sites) > MAX_MASKED_SITES:
            raise InvalidArgument(
                f"Split noise is for at most {MAX_MASKED_SITES} sites: every site gets a key of every other in each round, "
                'and one site that is absent costs a round. Use noise="site", or join sites into fewer.'
            )
        _ = self.setting

    @property
    def masked(self) -> bool:
        """Whether sites send masked numbers, because only their sum has enough noise."""
        return self.method.scheme.split

    @cached_property
    @in_32_bits
    def about(self) -> str:
        """A digest that identifies the study."""
        return study_about(self.method, self.target, len(self.sites), self.example, self.schema)

    @cached_property
    def agreement(self) -> Agreement:
        """What every site and the server must have in common."""
        return Agreement.of(
            run=self.run if self.seed is None else f"{self.run}, seeded",
            sites=", ".join(self.sites),
            budget=str(self.budget),
            schema=self.schema,
            method=strip_addresses(repr(self.method)),
            **self._asked,
        )

    @property
    @in_32_bits
    def _asked(self) -> dict[str, str]:
        """The model that is fitted, or the question that is answered once."""
        digest = short_digest(study_digest(self.target.family, self.target, self.example))
        model = self.target.model
        if isinstance(model, UnitModel):
            return {"model": digest}
        return {"question": f"{model.describe()}, {digest}"}

    @cached_property
    @in_32_bits
    def setting(self) -> RunSetting[T]:
        """What a site knows about the run."""
        return self.method.setting(self.target, self.budget, len(self.sites))

    @cached_property
    @in_32_bits
    def prepared(self) -> Prepared:
        """What a site does in this study, with the noise of its budget."""
        return self.method.scheme.prepare(self.setting)

    @property
    def unit(self) -> str:
        """The unit of privacy."""
        return "data set" if self.method.scheme.protects == "data set" else self.example.unit

    @in_32_bits
    def server(self) -> Server:
        """The server of this study."""
        return self.method.server(
            self.target,
            self.sites,
            run=self.run,
            budget=self.budget,
            source=Randomness(self.seed),
        )


def load_study(path: Path) -> Study[Target]:
    """The ``study`` that a Python file defines."""
    spec = importlib.util.spec_from_file_location("tacit_study", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InvalidArgument(f"There is no Python file at {path}.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise InvalidArgument(
            f"{error.filename}, line {error.lineno}, is not valid Python: {error.msg}."
        ) from None
    study = vars(module).get("study")
    if not isinstance(study, Study):
        raise InvalidArgument(f"{path} must define study = Study(...).")
    return study


def open_ledger(settings: SiteSettings) -> Ledger:
    """Creates the ledger of a site with the budget of its settings. Do this once."""
    if settings.total is None:
        raise InvalidArgument(
            f"The settings of {settings.name} need the total budget of all runs: budget = "
            "{epsilon = ..., delta = ...}."
        )
    return Ledger.new(settings.ledger, settings.total, unit=load_study(settings.study).unit)


class OpenSite:
    """A site that is open for one message.

    Args:
        settings: The settings of the site.
        study: Its study, if it was loaded before.
        read: Reads its rows; by default the study's function.
    """

    def __init__(
        self,
        settings: SiteSettings,
        study: Study[Target] | None = None,
        read: Callable[[Path], Rows] | None = None,
    ) -> None:
        self.settings, self.name = settings, settings.name
        self.study = study or load_study(settings.study)
        self._reads = read or self.study.read
        if self.name not in self.study.sites:
            raise InvalidArgument(f"{self.name} is not a site of the study at this site.")

    def prepare(self) -> None:
        """Prepares an answer without reading rows: calibrates noise and opens the ledger."""
        _ = self._client

    def check_readable(self) -> None:
        """Raises if the rows cannot be read, or are not of the study."""
        _ = self._read()

    def check_charge(self) -> None:
        """Raises if the ledger would refuse the run. Charges nothing."""
        self._client.check_charge()

    def check_ready(self) -> None:
        """Raises if this site could not answer: its ledger, its keys or its rows are not in order."""
        self.check_charge()
        self.check_keys()
        self.check_readable()

    def check_keys(self) -> None:
        """Raises if answers are masked and the keys for it are not in order."""
        if self.study.masked:
            _ = self._masker

    def offer(self, session: Session) -> Offer:
        """The key of this site for the masks of a round."""
        if session.run != self.study.run:
            raise Refused(f"{self.name} takes part in the run {self.study.run!r} only.")
        return self._masker.offer(session)

    def answer(self, task: Task, attempt: int = 1, offers: Sequence[Offer] = ()) -> Reply:
        """The reply to a task, masked if the study's noise is split."""
        if self.study.masked:
            return MaskedSite(self._client, self._masker).answer(task, attempt, offers)
        return self._client.answer(task)

    def _read(self) -> Rows:
        rows = self._reads(self.settings.data)
        if rows.unit != self.study.example.unit:
            raise InvalidArgument(
                f"The study protects a {self.study.example.unit}; the data are by {rows.unit}."
            )
        return rows

    @cached_property
    def _ledger(self) -> Ledger:
        return Ledger(self.settings.ledger, self.settings.total, unit=self.study.unit)

    @cached_property
    def _client(self) -> Client:
        study = self.study
        return prepare_site(
            self.name,
            self._read,
            study.method,
            study.target,
            run=study.run,
            sites=len(study.sites),
            budget=study.budget,
            ledger=self._ledger,
            prepared=study.prepared,
            about=study.about,
            seed=study.seed,
        )

    @cached_property
    def _masker(self) -> Masker:
        settings = self.settings
        if settings.identity is None or set(settings.members) != set(self.study.sites):
            raise InvalidArgument(
                f"The settings of {self.name} need a signing key (identity) and the public keys of all "
                "sites of the study (members)."
            )
        setting = self.study.setting
        roster = Roster(
            members=settings.members, together=setting.together, dropouts=setting.dropouts
        )
        try:
            key = bytes.fromhex(settings.identity.read_text("ascii"))
            secret = Ed25519PrivateKey.from_private_bytes(key)
        except (OSError, ValueError):
            raise InvalidArgument(
                f"{settings.identity} is no signing key, as tacit federated identity makes it."
            ) from None
        terms = self.study.agreement.text.encode()
        return Masker(self.name, secret, roster, LedgerMaskKeys(self._ledger), terms)


# What was looked at, what was found, and whether it is in order.
CheckLine = tuple[str, str, bool]


def study_checks(study: Study[Target]) -> Iterator[CheckLine]:
    """The lines of a check at the server. Nothing is charged."""
    yield from _agreement_lines(study)
    yield _noise_line(study)
    yield from _trial_round_lines(study, study.sites[0])


def site_checks(site: OpenSite) -> Iterator[CheckLine]:
    """The lines of a check of a site that is open. Of the rows it only says whether they can be read."""
    yield from _agreement_lines(site.study)
    yield _noise_line(site.study)
    yield from _ledger_lines(site)
    yield from _mask_key_lines(site)
    yield _data_line(site)
    yield from _trial_round_lines(site.study, site.name)


def _agreement_lines(study: Study[Target]) -> Iterator[CheckLine]:
    agreement = study.agreement
    for name, value in agreement.parts:
        yield name, short_digest(value) if name == "schema" else value, True
    yield "digest of all of these", agreement.digest, True


def _noise_line(study: Study[Target]) -> CheckLine:
    if study.seed is None:
        return "noise", "from a secret key of each answer", True
    return "noise", "NOT PRIVATE: from the seed in study.py; for simulated rows only", True


def _ledger_lines(site: OpenSite) -> Iterator[CheckLine]:
    settings, study = site.settings, site.study
    if not settings.ledger.exists():
        yield "ledger", f"there is none at {settings.ledger}: tacit federated open, once", False
        return
    try:
        left = Ledger(settings.ledger, settings.total, unit=study.unit).left
        site.check_charge()
    except TacitError as error:
        yield "ledger", str(error), False
        return
    yield "ledger", f"{settings.ledger}: {left} left; the run can be charged, or was", True


def _mask_key_lines(site: OpenSite) -> Iterator[CheckLine]:
    settings, study = site.settings, site.study
    if not study.masked:
        yield "keys of masks", "not needed: every answer is private by itself", True
        return
    missing = sorted(set(study.sites) - set(settings.members))
    if settings.identity is None or not settings.identity.is_file():
        yield "keys of masks", "no signing key: tacit federated identity", False
    elif missing:
        yield "keys of masks", f"no public key of {', '.join(missing)} under [members]", False
    else:
        try:
            site.check_keys()
        except LedgerError:
            pass  # the line of the ledger says so
        except TacitError as error:
            yield "keys of masks", str(error), False
            return
        yield "keys of masks", "the signing key, and the public keys of all sites", True


def _data_line(site: OpenSite) -> CheckLine:
    try:
        site.check_readable()
    except (TacitError, OSError) as error:
        said = str(error) if isinstance(error, InvalidArgument) else type(error).__name__
        return "data", said, False
    return "data", "can be read, and have the study's columns and unit", True


def _trial_round_lines(study: Study[Target], name: str) -> Iterator[CheckLine]:
    """A round on a simulated row, with the noise of the study, and without a ledger."""
    try:
        server = study.server()
        task = server.tasks(study.sites)[name]
        site = prepare_site(
            name,
            study.example,
            study.method,
            study.target,
            run=study.run,
            sites=len(study.sites),
            budget=study.budget,
        )
        reply = site.answer(task)
    except TacitError as error:
        yield "a round on a simulated row", str(error), False
        return
    yield "a round on a simulated row", f"an answer of {len(reply.change):,} numbers", True


# Where JAX stores compiled programs is one setting of the whole process.
_COMPILATION_LOCK = threading.Lock()
_TACIT_FOLDER = Path(__file__).parents[1]
# Endings of files beside the study that it may read.
_STUDY_SUFFIXES = (".py", ".yaml", ".yml", ".toml", ".json", ".nc")


def answer_message(site: OpenSite, fields: Fields) -> Fields:
    """The answer of a site to one message, if the server agrees with the site on the study."""
    kind, agreement = fields.get("kind"), site.study.agreement
    said: Fields = {"site": site.name, "agreed": agreement.text}
    if kind == "hello" and "agreed" not in fields:
        return said

    def greet() -> Fields:
        agreement.check_same(fields.get("agreed"), site.name, "The server")
        site.check_ready()
        return {}

    if kind == "hello":
        # The server must know which site it is that refuses, so as not to wait for it, and before others are charged.
        return said | answer_or_error(greet)
    if kind in {"offer", "task"}:
        agreement.check_same(fields.get("agreed"), site.name, "The server")
    return {**_dispatch_message(site, fields), "agreed": agreement.text}


def _dispatch_message(site: OpenSite, fields: Fields) -> Fields:
    kind = fields.get("kind")
    if kind == "offer":
        session = Session(str(fields["run"]), int(fields["round"]), int(fields["attempt"]))
        offer = site.offer(session)
        return {"site": offer.site, "key": offer.key, "signature": offer.signature}
    if kind == "task":
        return reply_fields(site.answer(*task_from_fields(fields)))
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
        self._study: Study[Target] | None = None
        self._rows: Rows | None = None
        self._imported: dict[str, Path] = {}  # modules that came with the study

    def open(self) -> OpenSite:
        """The site, open for one message."""
        if self._study is None or self._stamp != self._current_stamp():
            self._load()
        return OpenSite(self._settings, self._study, self._read)

    def prepare(self) -> Fields:
        """Loads the study and calibrates its noise, before the first message. Nothing is charged."""
        with _COMPILATION_LOCK, compilation_cache(self._settings.ledger.with_suffix(".cache")):
            self.open().prepare()
        return {}

    def _load(self) -> None:
        self._study, self._rows = None, None
        for name in self._imported:
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        before = set(sys.modules)
        self._study = load_study(self._settings.study)
        self._imported = dict(_project_modules(set(sys.modules) - before))
        self._stamp = self._current_stamp()

    def _current_stamp(self) -> tuple[object, ...]:
        """What shows that a file of the study or the data has changed."""
        study, data = self._settings.study, self._settings.data
        beside = [path for path in study.parent.iterdir() if path.suffix in _STUDY_SUFFIXES]
        return tuple(_file_stamps({*beside, *self._imported.values(), data}))

    def answer(self, fields: Fields) -> Fields:
        """The answer of the site to one message."""
        return _answer_with(self.open, self._settings, fields)

    def _read(self, path: Path) -> Rows:
        if self._study is not None and self._rows is None:
            self._rows = self._study.read(path)
        assert self._rows is not None
        return self._rows


def _project_modules(names: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """The files of those modules that are neither installed nor of Tacit."""
    installed = [Path(each) for each in (*sysconfig.get_paths().values(), str(_TACIT_FOLDER))]
    for name in names:
        file = getattr(sys.modules[name], "__file__", None)
        if file and not any(Path(file).is_relative_to(each) for each in installed):
            yield name, Path(file)


def _file_stamps(paths: Iterable[Path]) -> Iterator[tuple[str, int, int]]:
    for path in sorted(paths):
        with suppress(OSError):  # whoever reads it says what is missing
            found = path.stat()
            yield str(path), found.st_mtime_ns, found.st_size


def answer_once(settings: SiteSettings, fields: Fields) -> Fields:
    """The answer of a site that is opened for one message."""
    return _answer_with(lambda: OpenSite(settings), settings, fields)


def _answer_with(
    open_site: Callable[[], OpenSite], settings: SiteSettings, fields: Fields
) -> Fields:
    # Every message may be a process of its own, so programs of the study are stored for the next one.
    # Programs that take rows are not stored.
    with _COMPILATION_LOCK:
        with compilation_cache(settings.ledger.with_suffix(".cache")):
            site = open_site()
            if fields.get("kind") == "task":
                site.prepare()
        with compilation_cache_in(None):
            return answer_message(site, fields)
