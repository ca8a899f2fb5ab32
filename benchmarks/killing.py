"""Commands of Tacit in processes that kill one of them at a chosen event; for `kills.py`.

A process is a fork of one that has imported everything, as imports would take most of the time. Named
functions are wrapped, so that a process can count events, and send SIGKILL to itself, to another process or
to the one that started them at a certain one. States are stored after every block of steps rather than every
two seconds, and numbers of the accountant are remembered between runs.
"""

import hashlib
import json
import os
import pickle
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

from tacit.accounting import accountants
from tacit.accounting.ledger import Ledger
from tacit.accounting.ledger_chain import MarkFile
from tacit.api import fit as fits
from tacit.api.resume import ResumableRun
from tacit.cli import distributed
from tacit.cli.distributed import ProcessInfo
from tacit.cli.main import main
from tacit.cli.runs import Request, RunFolder
from tacit.privacy import checkpoint
from tacit.privacy.distributed import DistributedRunner, Processes
from tacit.results.posterior import Posterior

STARTER = "starter"


class Event(NamedTuple):
    """A call of a function: before or after it, in the first process or in any."""

    holder: Any
    name: str
    after: bool = False
    anywhere: bool = False
    target: str = ""  # of a file that is moved, or a folder that is removed


STAGES: dict[str, dict[str, Event]] = {
    "before the keys of the run are written": {
        "before the plan": Event(Request, "plan", anywhere=True),
        "after the rows are read": Event(fits, "read_files", after=True, anywhere=True),
        "before the keys": Event(checkpoint, "_write_new_keys"),
        "keys beside their place": Event(Path, "replace", target="keys"),
    },
    "between the keys and the charge": {
        "before the charge": Event(ResumableRun, "charge_once"),
        "charge written, not committed": Event(Ledger, "append_charge", after=True),
    },
    "between the charge and the first state": {
        "charge committed, mark not in place": Event(MarkFile, "_move_into_place"),
        "after the charge": Event(ResumableRun, "charge_once", after=True),
    },
    "while a state is written": {
        "state beside its place": Event(Path, "replace", target="state"),
        "state in its place": Event(Path, "replace", after=True, target="state"),
    },
    "during a step": {
        "before the sum of a process": Event(DistributedRunner, "_noisy_sum", anywhere=True),
        "before sums are added": Event(Processes, "add", anywhere=True),
    },
    "between two states": {
        "after a block of steps": Event(DistributedRunner, "run", after=True, anywhere=True),
    },
    "after the last step": {
        "before the posterior": Event(fits, "_posterior", anywhere=True),
        "after the posterior": Event(fits, "_posterior", after=True, anywhere=True),
    },
    "while the posterior is saved": {
        "before it is written": Event(Posterior, "save"),
        "posterior beside its place": Event(Path, "replace", target="posterior.nc"),
        "before it is recorded": Event(Ledger, "finish"),
        "after it is recorded": Event(Ledger, "finish", after=True),
    },
    "while the keys are destroyed": {
        "before they are overwritten": Event(checkpoint, "overwrite_with_zeros"),
        "after they are overwritten": Event(checkpoint, "overwrite_with_zeros", after=True),
        "before their folder is removed": Event(Path, "rmdir", target="unfinished"),
    },
    "while the report is written": {"before the report": Event(RunFolder, "write_report")},
}
EVENTS = {name: event for events in STAGES.values() for name, event in events.items()}


class Shot(NamedTuple):
    """At which call of an event, in the process of which number, which one is killed."""

    event: str
    call: int
    rank: int
    victim: str  # the number of a process, or STARTER


class Range:
    """A folder with what processes say of themselves, and the shot of this attempt."""

    def __init__(self, folder: Path, shot: Shot | None) -> None:
        self.folder, self.shot, self.counts = folder, shot, Counter[str]()
        folder.mkdir()

    def enter(self, who: str) -> None:
        """Says the id of this process."""
        self.who = who
        (self.folder / who).write_text(str(os.getpid()))

    def happened(self, name: str) -> None:
        """Counts an event, and fires if it is the one."""
        self.counts[name] += 1
        shot = self.shot
        if shot is None or (name, self.counts[name], self.who) != (
            shot.event,
            shot.call,
            str(shot.rank),
        ):
            return
        with suppress(ProcessLookupError):  # it may have ended before
            os.kill(int((self.folder / shot.victim).read_text()), 0)
            (self.folder / "fired").touch()
            os.kill(int((self.folder / shot.victim).read_text()), signal.SIGKILL)

    @property
    def fired(self) -> bool:
        """Whether it was reached."""
        return (self.folder / "fired").exists()

    def leave(self) -> None:
        """Writes what was counted, and what was imported."""
        held = {"counts": self.counts, "modules": list(sys.modules)}
        (self.folder / f"seen by {self.who}").write_text(json.dumps(held))

    def seen(self, who: str) -> dict[str, Any]:
        """What a process wrote when it ended."""
        found: dict[str, Any] = json.loads((self.folder / f"seen by {who}").read_text())
        return found


def run(arguments: list[str], folder: Path, here: Range) -> tuple[int, str]:
    """Runs a command in a fork of this process, until it and all processes that it started have ended."""
    said = folder / "said"
    reader, writer = os.pipe()
    with said.open("w+b") as file:
        nowhere = os.open(os.devnull, os.O_RDWR)
        pid = _forked(
            lambda: _started(arguments, folder, here),
            reader,
            stdin=nowhere,
            stdout=nowhere,
            stderr=file.fileno(),
        )
        os.close(nowhere)
    os.close(writer)
    while os.read(reader, 1):  # nothing is written: it ends when the last process has ended
        pass
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), said.read_text(errors="replace")


def _forked(work: Callable[[], int], *closed: int, **streams: int) -> int:
    """The id of a process that does this work, and ends."""
    sys.stdout.flush()
    sys.stderr.flush()
    if pid := os.fork():
        return pid
    code = 70
    try:
        for each in closed:
            os.close(each)
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            if name in streams:
                os.dup2(streams[name], number)
        code = work()
    except BaseException:  # noqa: BLE001 (a fork must end here, whatever happens)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _started(arguments: list[str], folder: Path, here: Range) -> int:
    os.chdir(folder)
    vars(checkpoint).update(_SECONDS=0.0, _TIMES=0.0)
    _remember(folder / "accounted")
    several = int(arguments[arguments.index("--workers") + 1]) > 1
    here.enter(STARTER if several else "0")
    if several:
        distributed.subprocess = _Forks(here)  # type: ignore[assignment]
        return main(arguments)
    _wrap(here)
    return _ended(main(arguments), here)


def _ended(code: int, here: Range) -> int:
    here.leave()
    return code


class _Forks:
    """Stands for the module ``subprocess`` where processes are started."""

    DEVNULL = -3

    def __init__(self, here: Range) -> None:
        self._here = here

    def Popen(self, command: list[str], env: dict[str, str], **streams: Any) -> "_Fork":  # noqa: N802
        """A fork that runs the command."""
        return _Fork(command[3:], env, streams, self._here)  # without python -m tacit


class _Fork:
    """What is used of ``subprocess.Popen``."""

    def __init__(
        self, command: list[str], env: dict[str, str], streams: dict[str, Any], here: Range
    ) -> None:
        self._code: int | None = None
        nowhere = os.open(os.devnull, os.O_RDWR)
        given = {
            name: nowhere if where == _Forks.DEVNULL else where.fileno()
            for name, where in streams.items()
        }

        def work() -> int:
            os.environ.update(env)
            place = ProcessInfo.here()
            assert place is not None
            here.enter(str(place.rank))
            _wrap(here)
            return _ended(main(command), here)

        self.pid = _forked(work, **given)
        os.close(nowhere)

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        if self._code is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if found else None
        return self._code

    def wait(self) -> int:
        """The exit code."""
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code

    def kill(self) -> None:
        """Ends it."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def _wrap(here: Range) -> None:
    for name, event in EVENTS.items():
        setattr(event.holder, event.name, _wrapped(here, name, event))


def _wrapped(here: Range, name: str, event: Event) -> Any:
    usual = getattr(event.holder, event.name)

    @wraps(usual)
    def counted(*arguments: Any, **more: Any) -> Any:
        touched = [Path(each).name for each in arguments[:2] if isinstance(each, str | Path)]
        ours = not event.target or touched[-1:] == [event.target]
        if ours and not event.after:
            here.happened(name)
        found = usual(*arguments, **more)
        if ours and event.after:
            here.happened(name)
        return found

    return counted


def _remember(folder: Path) -> None:
    """Keeps numbers of the accountant, which follow from their arguments, for the next run."""
    folder.mkdir(exist_ok=True)
    for name in ("composed_epsilon", "composed_delta"):
        setattr(accountants, name, _remembered(folder, getattr(accountants, name)))


def _remembered(
    folder: Path, usual: Callable[[Any, float], float]
) -> Callable[[Any, float], float]:
    def found(parts: Any, at: float) -> float:
        asked = pickle.dumps((usual.__name__, list(parts), at))
        path = folder / hashlib.sha256(asked).hexdigest()
        if not path.exists():
            draft = path.with_suffix(f".{os.getpid()}")
            draft.write_text(repr(usual(parts, at)))
            os.rename(draft, path)  # noqa: PTH104 (Path.replace is counted)
        return float(path.read_text())

    return found
