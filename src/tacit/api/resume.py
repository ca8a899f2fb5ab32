"""Runs: how a fit is keyed, charged and finished.

Most fits are charged and run at once. A fit in a folder is stored there until it is finished, and goes on after
an interruption: its charge carries the random name of the run, so that it is found again and paid once, and one
posterior leaves for it. A fit that stops after its count has that as its result instead. Of several processes, the first one charges and stores the run. `open_run` chooses.
"""

import hashlib
import json
import os
import platform
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import jax

from tacit._files import (
    DRAFT_PREFIX,
    POSTERIOR_FILE,
    SETTINGS_FILE,
    STOPPED_FILE,
    sync_folder,
    write_atomically,
)
from tacit._format import format_epsilon, format_number
from tacit.accounting.ledger import Ledger, Receipt
from tacit.api.plan import Plan
from tacit.errors import (
    DISTRIBUTION,
    InvalidArgument,
    LedgerError,
    TacitError,
    TooFewUnits,
    Unsaved,
    error_location,
    os_error_reason,
)
from tacit.privacy.checkpoint import (
    Checkpoint,
    arithmetic_settings,
    checkpointed,
    combined_digest,
    destroy_checkpoint,
    is_resumable,
    num_threads,
    read_notes,
    strip_addresses,
)
from tacit.privacy.distributed import PartitionedRows
from tacit.privacy.gate import Gate, Session
from tacit.privacy.mechanisms import NoisySums, Stages, stopped_event
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows
from tacit.results.posterior import Posterior

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


class Run:
    """One fit as it is keyed, charged and finished: at once, in one process.

    Attributes:
        is_charged: Whether the run counts as spent.
        name: A random name, by which the ledger finds its charge.
        stop: Why the run stopped after its count, if it did.
    """

    def __init__(
        self, plan: Plan, ledger: Ledger | None, seed: int | None = None, note: str | None = None
    ) -> None:
        self._plan, self._ledger, self._seed, self._note = plan, ledger, seed, note
        self._receipt: Receipt | None = None
        # Of a run that is not kept, only that it stopped may have to be recorded.
        self.name = secrets.token_hex(8) if stopped_event(plan.mechanism) else ""
        self.is_charged = False
        self.stop: TooFewUnits | None = None

    @property
    def hint(self) -> str:
        """How to go on after an interruption; empty if that is not possible."""
        return ""

    def randomness(self) -> Randomness:
        """The random numbers that protect the rows."""
        return Randomness(self._seed)

    def checkpoint(self) -> Callable[[Session], Session] | None:
        """What stores the states of the gate, if the run can be resumed."""
        return None

    def charge(self) -> None:
        """Charges the ledger, if there is one, before the gate is used."""
        if self._ledger is not None:
            self._receipt = self._charge(self._ledger)
        self.is_charged = True

    def _charge(self, ledger: Ledger) -> Receipt:
        """Charges a ledger for all that may be executed."""
        mechanism, label = self._plan.mechanism, self._plan.label(self._note)
        stopped = stopped_event(mechanism)
        return ledger.charge(
            mechanism.event, self._plan.budget, label, run_id=self.name, stopped=stopped
        )

    def receipt(self) -> Receipt | None:
        """The receipt of the charge, or None without a ledger."""
        return self._receipt

    def finish(self, posterior: Posterior) -> Posterior:
        """The posterior that leaves."""
        return posterior

    @contextmanager
    def recorded_stop(self, gate: Gate) -> Iterator[None]:
        """Records that the gate's run stopped after its count, before that leaves as an error. [stop-recorded]"""
        try:
            yield
        except TooFewUnits as found:
            if not gate.stopped:
                raise
            self.stop = self._stop(refusal(self._plan, found, seeded=gate.seeded))
            gate.agree(0)  # of several processes, none ends before the first one has recorded it
            raise self.stop from None

    def _stop(self, found: TooFewUnits) -> TooFewUnits:
        """Records that the run stopped; what leaves."""
        if self._ledger is not None:
            try:
                self._ledger.finish(self.name, _digest(_refusal_json(found)), stopped=True)
            except LedgerError as error:
                raise LedgerError(
                    f"The fit stopped after its count, but stays charged in full: {error}"
                ) from None
        return found


class ResumableRun(Run):
    """A run that is stored in a folder until it is finished, and goes on there after an interruption.

    The gate charges it, when it has stored its question (`CheckpointedSession.ask`).
    """

    def __init__(
        self, stored: Checkpoint, plan: Plan, ledger: Ledger | None, note: str | None, *, new: bool
    ) -> None:
        super().__init__(plan, ledger, note=note)
        self._stored, self._new, self.name = stored, new, stored.name

    def randomness(self) -> Randomness:
        """The random numbers that protect the rows: the same again when the run goes on."""
        return self._stored.randomness()

    def checkpoint(self) -> Callable[[Session], Session]:
        """What stores the states of the gate, and charges the run when its question is stored."""
        return checkpointed(self._stored, self.charge_once)

    def charge(self) -> None:
        """Nothing: the gate charges the run."""

    def receipt(self) -> Receipt | None:
        """The receipt of the charge, or None without a ledger."""
        return self.charge_once()

    def charge_once(self) -> Receipt | None:
        """Charges the run, or finds the charge that was made for it. Once for all gates of the run."""
        if self.is_charged:
            return self._receipt
        receipt = self._find_receipt()
        if receipt is None and self._ledger is not None:
            if self._stored.started:
                raise LedgerError(
                    f"{self._ledger.path} has no charge for the run in {self._stored.folder}, which was begun "
                    "under one; restore the newest copy of the ledger."
                )
            receipt = self._charge(self._ledger)
        self._receipt, self.is_charged = receipt, True
        return receipt

    def _find_receipt(self) -> Receipt | None:
        if self._ledger is None:
            return None
        return self._ledger.receipt(self._plan.mechanism.event, self.name)

    @property
    def hint(self) -> str:
        """How to go on."""
        folder = self._stored.folder
        if (folder / SETTINGS_FILE).exists():  # which the command line has written
            return f" To continue without another charge, run: tacit resume {folder}."
        call = f"call tacit.fit with the same arguments and run={str(folder)!r}"
        return f" To continue without another charge, {call}."

    def check_not_released(self) -> None:
        """Raises if a result has left for the run's charge, and it is not the one that waits here."""
        if self._ledger is None or any(map(Path.exists, self._pending_files)):
            return
        if self._ledger.finished_digest(self.name) is not None:
            raise InvalidArgument(self._released_elsewhere)

    def renew_keys(self, seed: int | None) -> None:
        """Takes new keys for a run that has no question yet; raises if it was charged nevertheless."""
        if self._find_receipt() is not None:
            raise InvalidArgument(
                f"{self._stored.folder} does not say what was computed from the rows, although the run was charged: "
                "this is a copy from before the charge, or lost a file. Go on in the folder that was charged."
            )
        self._stored.renew(Randomness(seed))
        self.name = self._stored.name

    def finish(self, posterior: Posterior) -> Posterior:
        """Saves the posterior, records that it leaves, and then destroys the keys."""
        with self._unsaved_errors():
            posterior = self._save(posterior)
        self._release(self._pending_files[0], stopped=False)
        return posterior

    def _stop(self, found: TooFewUnits) -> TooFewUnits:
        """Saves why the run stopped, records that it has, and then destroys the keys."""
        pending = self._pending_files[1]
        with self._unsaved_errors():
            if not pending.exists():
                write_atomically(pending, _refusal_json(found))
            found = _read_refusal(pending)
        self._release(pending, stopped=True)
        return found

    def _release(self, pending: Path, *, stopped: bool) -> None:
        """Lets a result leave, which is on disk, and destroys the keys. [kept-finish]

        It waits beside the keys until the ledger has recorded it. If the process ends there, it is this
        file that leaves when the run goes on, and not one that was computed anew.
        """
        with self._unsaved_errors():
            digest = _digest(pending.read_bytes())
        first = digest
        if self._ledger is not None:
            first = self._ledger.finish(self.name, digest, stopped=stopped)
        if first != digest:
            pending.unlink()
            raise Unsaved(self._released_elsewhere)
        with self._unsaved_errors():
            pending.replace(self._stored.folder / pending.name)
            sync_folder(self._stored.folder)
        self._stored.destroy()

    def _save(self, posterior: Posterior) -> Posterior:
        """The posterior that waits, on disk; this one if there was none."""
        pending, plan = self._pending_files[0], self._plan
        if pending.exists():
            return replace(Posterior.load(pending), model=plan.model, schema=plan.schema)
        # A loss of power must not leave half a file under its name: it would be the one that leaves.
        draft = pending.with_name(f"{DRAFT_PREFIX}{pending.name}")
        posterior.save(draft)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.replace(pending)
        sync_folder(pending.parent)
        return posterior

    @contextmanager
    def _unsaved_errors(self) -> Iterator[None]:
        """Says how to go on if the result cannot be written: whatever it is, the run is stored."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            reason = (
                os_error_reason(error.__cause__) or os_error_reason(error) or error_location(error)
            )
            raise Unsaved(
                f"The fit was charged, but its result cannot be written to {self._stored.folder} "
                f"({reason}). Nothing is lost.{self.hint}"
            ) from None

    @property
    def _pending_files(self) -> tuple[Path, Path]:
        """The posterior before it leaves, and why the run stopped; there is one of them at most."""
        return self._stored.place / POSTERIOR_FILE, self._stored.place / STOPPED_FILE

    @property
    def _released_elsewhere(self) -> str:
        assert self._ledger is not None
        return (
            f"A result has left for the charge of the run in {self._stored.folder}, from another copy of it; "
            f"{self._ledger.path} pays for one. Fit again in another folder, with a charge of its own."
        )

    def discard_uncharged(self) -> None:
        """Removes a new run that was not charged; where that is not known, it is kept."""
        if not self._new or self.is_charged:
            return
        try:
            charged = self._find_receipt() is not None
        except TacitError:
            return
        if not charged:
            self._stored.destroy()


@contextmanager
def open_run(
    plan: Plan,
    rows: Rows,
    data: object,
    ledger: Ledger | None,
    seed: int | None,
    note: str | None,
    folder: Path | None,
) -> Iterator[Run]:
    """How a fit is keyed, charged and finished: at once, resumable in a folder, or after the first process.

    Args:
        plan: What is fitted, and how.
        rows: The private rows.
        data: The data as they were passed; of files, the paths are noted.
        ledger: The ledger.
        seed: The seed, or None.
        note: What the label of the charge says beside the model and the method.
        folder: A folder that stores the run until it is finished, or None.

    Yields:
        The run.

    Raises:
        InvalidArgument: If the folder cannot be used, has a finished run, or has one that was begun
            otherwise; or if processes of one run differ.
        Unsaved: If the fit fails after it was charged.
    """
    if isinstance(rows, PartitionedRows):
        rows.check_same(agreed_facts(plan, seed, kept=folder is not None))
        if not rows.is_first:
            if folder is not None:
                rows.follow_digest()
            yield Run(plan, None, seed)
            if folder is not None:
                rows.processes.meet()  # the first one has recorded that the posterior leaves
            return
    elif jax.process_count() > 1:
        raise InvalidArgument(
            f"This is one of {jax.process_count()} processes: pass a list of files, of which each reads "
            "its own."
        )
    if folder is None:
        yield Run(plan, ledger, seed, note)
        return
    with _resumable_run(plan, rows, data, ledger, seed, note, folder) as run:
        yield run
    if isinstance(rows, PartitionedRows):
        rows.processes.meet()  # nothing leaves in another process before


@contextmanager
def _resumable_run(
    plan: Plan,
    rows: Rows,
    data: object,
    ledger: Ledger | None,
    seed: int | None,
    note: str | None,
    folder: Path,
) -> Iterator[ResumableRun]:
    """A run in a folder: a new one, or the one that was begun there."""
    check_not_stopped(folder)
    if is_finished(folder):
        raise InvalidArgument(
            f"The run in {folder} is finished: {folder / POSTERIOR_FILE} has its posterior, for "
            "tacit.Posterior.load. Pass another folder to fit again."
        )
    bound, new = _fingerprint(plan, ledger, seed), not is_resumable(folder)
    if new:
        notes, size = _run_notes(data, ledger), _required_bytes(plan)
        stored = Checkpoint.begin(folder, Randomness(seed), rows, bound, notes, size)
    else:
        stored = Checkpoint.open(folder)
    run = ResumableRun(stored, plan, ledger, note, new=new)
    try:
        if not new:
            stored.check_same(rows, bound)
            run.check_not_released()
            if not stored.has_question:
                run.renew_keys(seed)
        yield run
    except BaseException as error:
        run.discard_uncharged()
        known = isinstance(error, Unsaved | TooFewUnits)
        if isinstance(error, TacitError) and not known and run.is_charged:
            raise Unsaved(f"The fit was charged and then failed: {error}{run.hint}") from None
        raise
    finally:
        stored.close()


def agreed_facts(plan: Plan, seed: int | None, *, kept: bool) -> bytes:
    """What must be the same in all processes of a fit; ``kept`` says whether the run is resumable.

    Processes with other numbers of threads could round differently (PROOFS.md, Theorem 11).
    """
    method, rounding = strip_addresses(repr(plan.method)), (num_threads(), arithmetic_settings())
    model = model_fingerprint(plan)
    return repr((method, plan.mechanism, plan.schema, model, rounding, seed, kept)).encode()


def is_finished(folder: Path) -> bool:
    """Whether a folder has a finished run, whose posterior has left. What is left of its keys is removed."""
    if not (folder / POSTERIOR_FILE).exists():
        return False
    destroy_checkpoint(folder)
    return True


def refusal(plan: Plan, found: TooFewUnits, *, seeded: bool) -> TooFewUnits:
    """The error of a fit that stopped after its count: what was found, what was spent, and what to do."""
    spent = plan.stopped_cost
    assert spent is not None
    units = "complete rows" if plan.unit == "row" else "people with complete rows"
    cost = f"epsilon {format_epsilon(spent.epsilon)} (delta {format_number(spent.delta)})"
    begin = "Seeded, so not private: a" if seeded else "A"
    return TooFewUnits(
        f"{begin} noisy count found about {max(round(found.count), 0):,} {units} (standard deviation "
        f"{float(f'{found.sd:.2g}'):,g}), too few to learn anything, so the fit stopped and spent only {cost} of epsilon "
        f"{format_number(plan.budget.epsilon)}; to see why rows cannot be read, run: tacit schema check SCHEMA "
        "DATA --rows.",
        found.count,
        found.sd,
        spent.epsilon,
        spent.delta,
    )


def _refusal_json(found: TooFewUnits) -> bytes:
    said = {name: vars(found)[name] for name in ("count", "sd", "epsilon", "delta")}
    return json.dumps({"message": str(found), **said}, indent=1).encode()


def _read_refusal(file: Path) -> TooFewUnits:
    try:
        return TooFewUnits(**json.loads(file.read_bytes()))
    except (ValueError, TypeError):
        raise TacitError(f"{file} is damaged: it is not as Tacit wrote it.") from None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def check_not_stopped(folder: Path) -> None:
    """Raises why the run in a folder stopped after its count, if it did. What is left of its keys is removed."""
    if (folder / STOPPED_FILE).exists():
        destroy_checkpoint(folder)
        raise _read_refusal(folder / STOPPED_FILE)


def check_charged(folder: Path, plan: Plan, ledger: Ledger | None) -> None:
    """Raises if a run that was begun under a ledger was not charged to it."""
    name, _ = read_notes(folder)
    if ledger is not None and not ledger.receipt(plan.mechanism.event, name):
        raise InvalidArgument(
            f"{ledger.path} has no charge for the run in {folder}: it ended before it was charged, or this "
            "is not its ledger. If nothing was charged, resume it without --ledger."
        )


def _run_notes(data: object, ledger: Ledger | None) -> dict[str, str]:
    """Where the data and the ledger are, for whoever goes on."""
    notes = {}
    if isinstance(data, str | os.PathLike):
        notes["data"] = _absolute_location(os.fspath(data))
    if isinstance(data, list):
        notes["files"] = json.dumps([_absolute_location(os.fspath(each)) for each in data])
        notes["processes"] = str(jax.process_count())
    if ledger is not None:
        notes["ledger"] = _absolute_location(ledger.backend.reopen_text)
    return notes


def _absolute_location(where: str) -> str:
    """A path that holds in every folder; an address is one already."""
    return where if "://" in where else str(Path(where).absolute())


def _fingerprint(plan: Plan, ledger: Ledger | None, seed: int | None) -> dict[str, str]:
    """What a run is bound to, beside its rows and steps, by the words of the message if it differs."""
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
    return plan.model.digest(plan.dummy)


def _required_bytes(plan: Plan) -> int:
    """About how many bytes the run will need on disk: its releases and places, twice, and a report."""
    mechanism = plan.mechanism
    several = mechanism.mechanisms if isinstance(mechanism, Stages) else (mechanism,)
    numbers = 0
    for each in several:
        released = each.dimension if isinstance(each, NoisySums) else 0
        numbers += each.num_steps * (released + plan.model.dimension + 16)
    return 2 * 4 * numbers + _REPORT_BYTES
