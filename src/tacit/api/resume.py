"""Fits that are kept in a folder until they are finished, and go on there after an interruption.

The charge of such a fit carries the random name of its run, so that it is found again and paid once. One
posterior leaves for it.
"""

import hashlib
import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
from attrs import evolve

from tacit import _validate
from tacit._files import DRAFT_PREFIX, sync_folder
from tacit.accounting.ledger import Ledger, Receipt
from tacit.api.plan import Plan, check_ledger
from tacit.errors import (
    DISTRIBUTION,
    InvalidArgument,
    LedgerError,
    TacitError,
    Unsaved,
    error_location,
    os_error_reason,
)
from tacit.privacy.checkpoint import (
    Checkpoint,
    GateCheckpoint,
    combined_digest,
    destroy_checkpoint,
    is_resumable,
    model_digest,
    read_notes,
    strip_addresses,
)
from tacit.privacy.mechanisms import NoisySums, Stages
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows
from tacit.privacy.trace import arithmetic_settings, num_threads
from tacit.results.posterior import Posterior

POSTERIOR_FILE, SETTINGS_FILE = "posterior.nc", "settings.yaml"
# Libraries whose versions decide on the last bits of a step or of its noise.
_NUMERICAL_LIBRARIES = (
    DISTRIBUTION,
    "jax",
    "jaxlib",
    "numpy",
    "scipy",
    "mpmath",
    "cryptography",
    "numpyro",
)
# Bytes for the posterior and a report.
_REPORT_BYTES = 2**22


class ResumableRun:
    """A fit that is kept in a folder."""

    def __init__(
        self, run: Checkpoint, plan: Plan, ledger: Ledger | None, note: str | None, *, new: bool
    ) -> None:
        self._run, self._plan, self._ledger, self._note = run, plan, ledger, note
        self._new, self.is_charged = new, False
        self._held: Receipt | None = None

    def randomness(self) -> Randomness:
        """What protects the rows: the same again when the run goes on."""
        return self._run.randomness()

    def keeper(self) -> GateCheckpoint:
        """What keeps the gate, and charges the run when its question is stored."""
        return GateCheckpoint(self._run, self.charged)

    def charged(self) -> Receipt | None:
        """Charges the run, or finds the charge that was made for it. Once for all gates of the run."""
        if self.is_charged:
            return self._held
        receipt = self._receipt()
        if receipt is None and self._ledger is not None:
            if self._run.started:
                raise LedgerError(
                    f"{self._ledger.path} has no charge for the run in {self._run.folder}, which was begun "
                    "under one; restore the newest copy of the ledger."
                )
            event, budget = self._plan.mechanism.event, self._plan.budget
            label = self._plan.label(self._note)
            receipt = self._ledger.charge(event, budget, label, run_id=self._run.name)
        self._held, self.is_charged = receipt, True
        return receipt

    def _receipt(self) -> Receipt | None:
        if self._ledger is None:
            return None
        return self._ledger.receipt(self._plan.mechanism.event, self._run.name)

    @property
    def hint(self) -> str:
        """How to go on."""
        folder = self._run.folder
        if (folder / SETTINGS_FILE).exists():  # which the command line has written
            return f" To go on without another charge, run: tacit resume {folder}."
        call = f"call tacit.fit with the same arguments and run={str(folder)!r}"
        return f" To go on without another charge, {call}."

    def check_unfinished(self) -> None:
        """Raises if a posterior has left for the run's charge, and it is not the one that waits here."""
        if self._ledger is None or self._waiting.exists():
            return
        if self._ledger.finish_of(self._run.name) is not None:
            raise InvalidArgument(self._left_before())

    def begin_anew(self, seed: int | None) -> None:
        """Takes new keys for a run that has no question yet; raises if it was charged nevertheless."""
        if self._receipt() is not None:
            raise InvalidArgument(
                f"{self._run.folder} does not say what was asked of the rows, although the run was charged: "
                "this is a copy from before the charge, or lost a file. Go on in the folder that was charged."
            )
        self._run.renew(Randomness(seed))

    def finished(self, posterior: Posterior) -> Posterior:
        """Saves the posterior, records that it leaves, and then destroys the keys. [kept-finish]

        It waits beside the keys until the ledger has recorded it. If the process ends there, it is this
        file that leaves when the run goes on, and not one that was computed anew.
        """
        with self._saving():
            posterior = self._kept(posterior)
            digest = hashlib.sha256(self._waiting.read_bytes()).hexdigest()
        first = digest
        if self._ledger is not None:
            first = self._ledger.finish(self._run.name, digest)
        if first != digest:
            self._waiting.unlink()
            raise Unsaved(self._left_before())
        with self._saving():
            self._waiting.replace(self._run.folder / POSTERIOR_FILE)
            sync_folder(self._run.folder)
        self._run.destroy()
        return posterior

    def _kept(self, posterior: Posterior) -> Posterior:
        """The posterior that waits, on disk; this one if there was none."""
        waiting, plan = self._waiting, self._plan
        if waiting.exists():
            return evolve(Posterior.load(waiting), model=plan.model, schema=plan.schema)
        # A loss of power must not leave half a file under its name: it would be the one that leaves.
        draft = waiting.with_name(f"{DRAFT_PREFIX}{waiting.name}")
        posterior.save(draft)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.replace(waiting)
        sync_folder(waiting.parent)
        return posterior

    @contextmanager
    def _saving(self) -> Iterator[None]:
        """Says how to go on if the posterior cannot be written: whatever it is, the run is kept."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            reason = (
                os_error_reason(error.__cause__) or os_error_reason(error) or error_location(error)
            )
            raise Unsaved(
                f"The fit was charged, but its posterior cannot be written to {self._run.folder} "
                f"({reason}). Nothing is lost.{self.hint}"
            ) from None

    @property
    def _waiting(self) -> Path:
        """The posterior before it leaves."""
        return self._run.place / POSTERIOR_FILE

    def _left_before(self) -> str:
        assert self._ledger is not None
        return (
            f"A posterior has left for the charge of the run in {self._run.folder}, from another copy of it; "
            f"{self._ledger.path} pays for one. Fit again in another folder, with a charge of its own."
        )

    def give_up(self) -> None:
        """Removes a new run that was not charged; where that is not known, it is kept."""
        if not self._new or self.is_charged:
            return
        try:
            charged = self._receipt() is not None
        except TacitError:
            return
        if not charged:
            self._run.destroy()


@contextmanager
def resumable_run(
    folder: Path,
    plan: Plan,
    rows: Rows,
    data: Any,
    ledger: Ledger | None,
    seed: int | None,
    note: str | None = None,
) -> Iterator[ResumableRun]:
    """A run in a folder: a new one, or the one that was begun there.

    Args:
        folder: The folder.
        plan: What is fitted, and how.
        rows: The private rows.
        data: The data as they were passed; of files, the paths are noted.
        ledger: The ledger.
        seed: The seed, or None.
        note: What the label of the charge says beside the model and the method.

    Yields:
        The run.

    Raises:
        InvalidArgument: If the folder cannot be used, has a finished run, or has one that was begun
            otherwise.
        Unsaved: If the fit fails after it was charged.
    """
    if seed is not None:
        _validate.count("seed", seed, least=0)
    if ledger is not None:
        check_ledger(ledger, [plan.budget], [rows])
    if is_finished(folder):
        raise InvalidArgument(
            f"The run in {folder} is finished: {folder / POSTERIOR_FILE} has its posterior, for "
            "tacit.Posterior.load. Pass another folder to fit again."
        )
    bound, new = _fingerprint(plan, ledger, seed), not is_resumable(folder)
    if new:
        notes = _run_notes(data, ledger)
        run = Checkpoint.begin(folder, Randomness(seed), rows, bound, notes, _required_bytes(plan))
    else:
        run = Checkpoint.open(folder)
    kept = ResumableRun(run, plan, ledger, note, new=new)
    try:
        if not new:
            run.refuse_other(rows, bound)
            kept.check_unfinished()
            if not run.has_question:
                kept.begin_anew(seed)
        yield kept
    except BaseException as error:
        kept.give_up()
        if isinstance(error, TacitError) and not isinstance(error, Unsaved) and kept.is_charged:
            raise Unsaved(f"The fit was charged and then failed: {error}{kept.hint}") from None
        raise
    finally:
        run.close()


def is_finished(folder: Path) -> bool:
    """Whether a folder has a finished run, whose posterior has left. What is left of its keys is removed."""
    if not (folder / POSTERIOR_FILE).exists():
        return False
    destroy_checkpoint(folder)
    return True


def check_charged(folder: Path, plan: Plan, ledger: Ledger | None) -> None:
    """Raises if a run that was begun under a ledger was not charged to it."""
    name, _ = read_notes(folder)
    if ledger is not None and not ledger.receipt(plan.mechanism.event, name):
        raise InvalidArgument(
            f"{ledger.path} has no charge for the run in {folder}: it ended before it was charged, or this "
            "is not its ledger. If nothing was charged, resume it without --ledger."
        )


def _run_notes(data: Any, ledger: Ledger | None) -> dict[str, str]:
    """Where the data and the ledger are, for whoever goes on."""
    notes = {}
    if isinstance(data, str | os.PathLike):
        notes["data"] = _absolute_location(os.fspath(data))
    if isinstance(data, list):
        notes["files"] = json.dumps([_absolute_location(os.fspath(each)) for each in data])
        notes["processes"] = str(jax.process_count())
    if ledger is not None:
        notes["ledger"] = _absolute_location(ledger.place.reopened)
    return notes


def _absolute_location(where: str) -> str:
    """A path that holds in every folder; an address is one already."""
    return where if "://" in where else str(Path(where).absolute())


def _fingerprint(plan: Plan, ledger: Ledger | None, seed: int | None) -> dict[str, str]:
    """What a run is bound to, beside its rows and steps, by what is said if it differs."""
    method = strip_addresses(repr(plan.method))
    machine = platform.python_version(), platform.machine(), jax.default_backend()
    versions = [f"{name} {version(name)}" for name in _NUMERICAL_LIBRARIES]
    return {
        "another version of Tacit or of a library": ", ".join([*versions, *machine]),
        "another number of threads": str(num_threads()),
        "other settings of JAX, XLA or BLAS": arithmetic_settings(),
        "another schema": combined_digest(repr(plan.schema).encode()),
        "another model": model_fingerprint(plan),
        "another method": combined_digest(method.encode(), repr(plan.mechanism).encode()),
        "another budget": repr(plan.budget),
        "another seed, or none": repr(seed),
        "a ledger, or without one": str(ledger is not None),
    }


@lru_cache(maxsize=32)
def model_fingerprint(plan: Plan) -> str:
    """A digest of a plan's model; traced once for all runs of the plan."""
    return model_digest(plan.model, plan.blank)


def _required_bytes(plan: Plan) -> int:
    """About how many bytes the run will need on disk: its releases and places, twice, and a report."""
    mechanism = plan.mechanism
    several = mechanism.mechanisms if isinstance(mechanism, Stages) else (mechanism,)
    numbers = 0
    for each in several:
        released = each.dimension if isinstance(each, NoisySums) else 0
        numbers += each.num_steps * (released + plan.model.dimension + 16)
    return 2 * 4 * numbers + _REPORT_BYTES
