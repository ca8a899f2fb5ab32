"""The fault table: what a federated run makes of every fault, tried on real processes.

    python tests/federated/fault_table.py
    python tests/federated/fault_table.py --only "SuperLink" --keep /tmp/faults

A SuperLink with TLS, keys of nodes and a database, three SuperNodes, and a guard process for every site run on
127.0.0.1. Between each node and its guard, this process passes messages on, records them, and spoils them where a
fault says so. Each fault has sites of its own, with new ledgers. Prints a line for each fault, and ends with 1
if something was lost, charged twice or told.
"""

# ruff: noqa: T201 (it prints a table)

import argparse
import contextlib
import os
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from flower_processes import BIN, HANGS, Deployment, make_app, wait_for
from sites_on_disk import NAMES, copy_study, make_sites

from tacit.federated.deploy import load_study
from tacit.federated.guard import Guard, ask
from tacit.federated.method import prepare_site
from tacit.federated.protocol import task_fields
from tacit.federated.server import run_schedule

ROUNDS, SEED = 2, 7
# What only a site knows: the total of its ledger, and a number in its table.
# A total that no time of day has in it.
TOTAL, VALUE = 271.8281828, 1.2345678


class Passes(Guard):
    """Passes messages of a node on to a site's guard, and keeps what the site said."""

    def __init__(self, path):
        self.to, self.said, self.spoil = None, [], lambda _, reply: reply
        super().__init__(path, self._passed)

    def _passed(self, fields):
        reply = self.spoil(fields, ask(self.to, fields))
        self.said.append(reply)
        return reply

    def handle_error(self, request, client_address):
        """A node or a guard was killed on purpose."""


class Bench:
    """The processes that all faults share."""

    def __init__(self, folder):
        self.folder, self.deployment = folder, Deployment(folder)
        self.passing = {name: Passes(folder / f"{name}.socket") for name in NAMES}
        for each in self.passing.values():
            threading.Thread(target=each.serve_forever, daemon=True).start()
        self.deployment.start_link()
        self.pinned = []
        for name in NAMES:
            self.pinned.append(f"{name}={self.deployment.register(name)}")
            self.start_node(name)

    def start_node(self, name):
        self.deployment.start_node(name, self.folder / f"{name}.socket", "guard")

    def restart_node(self, name):
        self.deployment.restart_node(name, self.folder / f"{name}.socket", "guard")

    def stop(self):
        self.deployment.stop()
        for each in self.passing.values():
            each.shutdown()
            each.server_close()


@dataclass
class Trial:
    """Sites with new ledgers, their guards, and runs of their study."""

    bench: Bench
    name: str
    scheme: str = "statistics"
    rounds: int = ROUNDS
    total: object = TOTAL
    others: dict = field(default_factory=dict)  # settings of single sites that differ

    def __post_init__(self):
        self.folder = self.bench.folder / self.name.replace(" ", "-")
        settings = {"seed": SEED, "rounds": self.rounds}
        self.files = make_sites(self.folder / "sites", self.scheme, total=self.total, **settings)
        self.app = make_app(self.folder / "project", self.scheme, NAMES, **settings)
        self.result, self.streams = self.folder / "result.npz", []
        for name in NAMES:
            plant(self.home(name) / "data.csv")
        for name, differs in self.others.items():
            copy_study(self.home(name), self.scheme, NAMES, **{**settings, **differs})

    def __enter__(self):
        for name in NAMES:
            self.start_guard(name)
        return self

    def __exit__(self, *_):
        for name in NAMES:
            self.stop_guard(name)
            self.bench.passing[name].spoil = lambda _, reply: reply

    def home(self, name):
        return self.files[name].parent

    def ledger(self, name):
        return self.home(name) / "site.db"

    def start_guard(self, name, largest=None):
        place = self.folder / f"{name}.guard"
        command = (f"guard-{name}", "tacit", "federated", "guard", self.files[name], place)
        self.bench.deployment.start(*command, largest=largest)
        wait_for(place.is_socket, self.bench.deployment.log(f"guard-{name}"))
        self.bench.passing[name].to = place

    def stop_guard(self, name):
        if f"guard-{name}" in self.bench.deployment.running:
            self.bench.deployment.kill(f"guard-{name}")
        (self.folder / f"{name}.guard").unlink(missing_ok=True)

    def start(self, timeout=300.0, patience=900.0):
        """Starts the run; its log is `said`."""
        log = self.folder / f"run{len(self.streams)}.log"
        config = f"result='{self.result}' timeout={timeout} patience={patience}"
        config += f" nodes='{' '.join(self.bench.pinned)}'"
        command = [BIN / "flwr", "run", self.app, "local", "--stream", "--run-config", config]
        with log.open("wb") as file:
            process = subprocess.Popen(
                command, env=self.bench.deployment.environment, stdout=file, stderr=file
            )
        self.streams.append((process, log))

    def end(self):
        """Waits until the run has ended."""
        self.streams[-1][0].wait(HANGS)

    def fit(self, **settings):
        self.start(**settings)
        self.end()

    @property
    def said(self):
        """What the server says, in all runs of this trial."""
        return "".join(log.read_text() for _, log in self.streams)

    def until(self, condition):
        wait_for(condition, self.streams[-1][1])

    # What is checked at the end.

    def is_as_expected(self, absent=lambda *_: False):
        """Whether the result is that of the same sites in one process, without those that are absent."""
        if not self.result.exists():
            return False
        with np.load(self.result) as found:
            return np.array_equal(found["trace"], expected(self.files, absent))

    def sentences(self):
        """What the result says."""
        with np.load(self.result) as found:
            return str(found["said"])

    def counts(self, name):
        """The numbers of charges and of answers in a ledger."""
        return tuple(counted(self.ledger(name), table) for table in ("charges", "answers"))

    def charged_once(self, names=NAMES):
        return all(self.counts(name) == (1, self.rounds) for name in names)

    def tells_nothing(self):
        """Whether nothing that the server got or wrote has a path, a budget or a value of a site."""
        secrets = [str(self.folder / "sites").encode(), b"271.8", b"1.23456"]
        secrets += [struct.pack(form, VALUE) for form in ("<f", "<d")]
        folder = self.bench.folder
        files = [
            *folder.glob("link.*"),
            *self.folder.glob("run*.log"),
            *self.folder.glob("*.state"),
        ]
        written = [path.read_bytes() for path in (*files, self.result) if path.exists()]
        said = [repr(each).encode() for sent in self.bench.passing.values() for each in sent.said]
        return not any(secret in each for secret in secrets for each in (*written, *said))


def plant(path):
    """Writes a number into a table that can be looked for."""
    lines = path.read_text().splitlines()
    path.write_text("\n".join([f"{VALUE},{VALUE},{VALUE}", *lines[1:]]) + "\n")


def counted(path, table):
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        there = "select count(*) from sqlite_master where name = ?"
        if not connection.execute(there, [table]).fetchone()[0]:
            return 0
        return connection.execute(f"select count(*) from {table}").fetchone()[0]  # noqa: S608


class Present:
    """Sites in this process, without those that are absent in a round, or leave in its middle."""

    def __init__(self, clients, absent):
        self.sites, self.refused, self._clients, self._absent = tuple(clients), {}, clients, absent
        self.sent = True

    def exchange(self, tasks):
        gone = {name: self._absent(name, task.round) for name, task in tasks.items()}
        members = tuple(name for name in tasks if gone[name] in (False, "middle"))
        return {
            name: replace(self._clients[name].answer(task), members=members)
            for name, task in tasks.items()
            if not gone[name]
        }


def expected(files, absent):
    study = load_study(files["north"].parent / "study.py")
    run = {"run": study.run, "sites": len(NAMES), "budget": study.budget, "seed": study.seed}
    clients = {
        name: prepare_site(
            name, study.read(path.parent / "data.csv"), study.method, study.target, **run
        )
        for name, path in files.items()
    }
    server = study.server()
    run_schedule(server, Present(clients, absent), study.method.rounds(len(NAMES)))
    return np.array(server.trace)


@dataclass(frozen=True)
class Line:
    """A line of the table."""

    fault: str
    expected: str
    checks: dict

    def __str__(self):
        wrong = [what for what, true in self.checks.items() if not true]
        found = f"NOT: {', '.join(wrong)}" if wrong else ", ".join(self.checks)
        return f"| {self.fault} | {self.expected} | {found} | {'no' if wrong else 'ok'} |"


UNDISTURBED = "the undisturbed posterior"


def whole(trial):
    """The checks of a run that is to end as if nothing had happened."""
    return {
        "same posterior, bit for bit": trial.is_as_expected(),
        "each ledger charged once": trial.charged_once(),
        "nothing told": trial.tells_nothing(),
    }


def without(trial, *names, **more):
    """The checks of a run that is to end without some sites, which are not charged."""
    rest = [name for name in NAMES if name not in names]
    return {
        "posterior of the other sites": trial.is_as_expected(lambda name, _: name in names),
        "others charged once": trial.charged_once(rest),
        **more,
        "nothing told": trial.tells_nothing(),
    }


def ledgers(bench):
    with Trial(bench, "ledgers") as trial:
        older = trial.folder / "older.db"
        shutil.copy(trial.ledger("west"), older)
        trial.fit()
        yield Line("none", UNDISTURBED, whole(trial))
        kept = next(trial.folder.glob("*.state"))
        kept.write_bytes(kept.read_bytes()[: kept.stat().st_size // 2])
        trial.result.unlink()
        trial.fit()
        damaged = "state of the server, is damaged" in trial.said and "Traceback" not in trial.said
        kept.unlink()
        saved = {name: trial.folder / f"{name}.db" for name in NAMES}
        for name in NAMES:
            shutil.copy(trial.ledger(name), saved[name])
        trial.ledger("north").unlink()
        with trial.ledger("south").open("r+b") as file:
            file.truncate(trial.ledger("south").stat().st_size // 2)
        shutil.copy(older, trial.ledger("west"))
        trial.fit()
        ended = "No answer could be used" in trial.said and not trial.result.exists()
        # At hello, where the server also names the node.
        refused = {name: bool(re.search(rf"{name}.*? refuses", trial.said)) for name in NAMES}
        again = not trial.ledger("north").exists()
        for name in NAMES:
            shutil.copy(saved[name], trial.ledger(name))
        trial.fit()
        yield Line(
            "state of the server truncated, then moved away",
            f"one sentence; then {UNDISTURBED}",
            {"one sentence": damaged, **whole(trial)},
        )
        for fault, name, more in (
            ("ledger deleted", "north", {"not opened anew": again}),
            ("ledger truncated", "south", {}),
            ("ledger replaced by an older copy", "west", {}),
        ):
            checks = {"the site refuses": refused[name], "the run ends": ended, **more}
            restored = {f"restored: {what}": true for what, true in whole(trial).items()}
            yield Line(f"{fault}, then restored", f"refused; then {UNDISTURBED}", checks | restored)


class Keeps:
    """Keeps the answer of one round back."""

    def __init__(self, number):
        self.number, self.answered, self.goes_on = number, threading.Event(), threading.Event()

    def __call__(self, fields, reply):
        if fields["kind"] == "task" and fields["round"] == self.number:
            self.answered.set()
            self.goes_on.wait(HANGS)
        return reply


def killed_nodes(bench):
    with Trial(bench, "nodes killed") as trial:
        (trial.home("north") / "hold-read").touch()
        os.utime(trial.home("north") / "data.csv")  # the guard has read it, and reads it again
        (trial.home("south") / "hold").touch()
        keeps = bench.passing["west"].spoil = Keeps(1)
        trial.start(timeout=60.0)
        trial.until((trial.home("north") / "reached-read").exists)
        trial.until((trial.home("south") / "reached").exists)
        trial.until(keeps.answered.is_set)
        before = {name: trial.counts(name) for name in NAMES}
        for name in NAMES:
            bench.deployment.kill(name)
        trial.stop_guard("south")  # a site that loses power
        for path in (trial.home("north") / "hold-read", trial.home("south") / "hold"):
            path.unlink()
        keeps.goes_on.set()
        trial.start_guard("south")
        for name in NAMES:
            bench.restart_node(name)
        trial.end()
        yield Line(
            "node killed before an answer",
            UNDISTURBED,
            {"nothing charged before": before["north"] == (0, 0), **whole(trial)},
        )
        yield Line(
            "node and guard killed during an answer",
            UNDISTURBED,
            {"charged before": before["south"] == (1, 1), **whole(trial)},
        )
        yield Line(
            "node killed after an answer, before it was sent",
            UNDISTURBED,
            {"charged before": before["west"] == (1, 1), **whole(trial)},
        )


def killed_link(bench):
    with Trial(bench, "link killed") as trial:
        (trial.home("south") / "hold").touch()
        trial.start(timeout=60.0)
        trial.until((trial.home("south") / "reached").exists)
        bench.deployment.kill("link")
        trial.end()
        (trial.home("south") / "hold").unlink()
        bench.deployment.start_link()
        trial.fit(timeout=60.0)
        yield Line(
            "SuperLink killed, restarted, and the run started again", UNDISTURBED, whole(trial)
        )


def late(bench):
    with Trial(bench, "late") as trial:
        (trial.home("west") / "hold").touch()
        trial.start(timeout=5.0)
        trial.until((trial.home("west") / "reached").exists)
        trial.until(lambda: "No answer yet from" in trial.said)
        (trial.home("west") / "hold").unlink()
        trial.end()
        tasks = [each for each in bench.passing["west"].said if each.get("round") == 1]
        once = len({repr(each) for each in tasks[-2:]}) == 1
        yield Line(
            "an answer later than the timeout, and the same task delivered twice",
            UNDISTURBED,
            {"repeated answers are the same": once, **whole(trial)},
        )


def late_site(bench):
    with Trial(bench, "late site") as trial:
        node = bench.deployment.running["west"]
        node.terminate()  # it says goodbye to the server
        node.wait(HANGS)
        bench.deployment.kill("west")
        bench.deployment.make_key("stranger")
        bench.start_node("stranger")
        stranger, log = bench.deployment.running["stranger"], bench.deployment.log("stranger")
        wait_for(lambda: stranger.poll() is not None, log)
        yield Line(
            "node with a key that is not registered",
            "it ends and says why",
            {
                "not let in": stranger.returncode > 0,
                "its log says why": "does not take this node's key" in log.read_text(),
            },
        )
        trial.start(timeout=60.0)
        trial.until(lambda: "No node of west is connected" in trial.said)
        bench.restart_node("west")
        trial.end()
        yield Line("site that starts after the run", UNDISTURBED, whole(trial))


def malformed(bench):
    total = dict.fromkeys(NAMES, TOTAL) | {"west": 5.0}

    def spoil(fields, reply):
        if fields["kind"] != "task" or "change" not in reply:
            return reply
        return {**reply, "change": reply["change"][:-3]} if fields["round"] == 1 else {"x": 1}

    with Trial(bench, "malformed", total=total) as trial:
        bench.passing["south"].spoil = spoil
        trial.fit()
        seen = "south sent an invalid reply" in trial.said
        untouched = trial.counts("west") == (0, 0)
        checks = without(trial, "south", "west", **{"named in the server's log": seen})
        yield Line("malformed answers", "left out; the posterior of the others", checks)
        neutral = (
            "The site's budget does not allow an answer" in trial.said and "5.0" not in trial.said
        )
        checks = without(
            trial,
            "south",
            "west",
            **{"nothing charged": untouched, "told without amounts": neutral},
        )
        yield Line("ledger exhausted", "left out; the posterior of the others", checks)


def garbage(bench):
    def spoil(fields, reply):
        if fields["kind"] != "task" or "change" not in reply:
            return reply
        return {**reply, "change": (1e6 * np.frombuffer(reply["change"])).tobytes()}

    with Trial(bench, "garbage", scheme="scored", rounds=4) as trial:
        bench.passing["south"].spoil = spoil
        trial.fit()
        seen = "The answer of south is not of the expected form" in trial.said
        checks = without(trial, "south", **{"named in the server's log": seen})
        yield Line("finite garbage", "left out; the posterior of the others", checks)


def other_terms(bench):
    cases = (
        (
            "south",
            {"bounds": [[-6, 6], [-6, 6], [-30, 20]]},
            "other bounds",
            "another schema",
        ),
        ("west", {"noise_sd": 0.25}, "another model", "another model or prior"),
        ("south", {"epsilon": 10}, "another budget", "another budget"),
        ("west", {"pretends": {"tacit": "0.0.1"}}, "another version", "another version of Tacit"),
    )
    for pair in (cases[:2], cases[2:]):
        others = {name: differs for name, differs, _, _ in pair}
        with Trial(bench, pair[0][2], others=others) as trial:
            trial.fit(patience=60.0)
            for name, _, what, sentence in pair:
                lines = trial.said.splitlines()
                said = any(sentence in each and f"than {name}." in each for each in lines)
                more = {"said what differs": said, "nothing charged": trial.counts(name) == (0, 0)}
                yield Line(
                    f"site with {what}",
                    "refused, with a sentence",
                    without(trial, "south", "west", **more),
                )


def full(bench):
    with Trial(bench, "disk full") as trial:
        for name in NAMES:
            trial.stop_guard(name)
            trial.start_guard(name, largest=2**14)  # less than the ledger has already
        trial.fit()
        ended = "No answer could be used" in trial.said and not trial.result.exists()
        nothing = all(trial.counts(name)[0] <= 1 for name in NAMES)
        for name in NAMES:
            trial.stop_guard(name)
            trial.start_guard(name)
        trial.fit()
        yield Line(
            "disk full at all sites, then room again",
            f"refused; then {UNDISTURBED}",
            {"the run ends": ended, "no charge twice": nothing, **whole(trial)},
        )


def absurd(bench):
    with Trial(bench, "absurd") as trial:
        study = load_study(trial.home("north") / "study.py")
        task = study.server().tasks(NAMES)["north"]
        said = []
        for value in (1e38, 1e300, np.inf, np.nan):
            strange = replace(task, posterior=np.full_like(task.posterior, value))
            fields = task_fields(strange, agreed=study.agreement.text)
            said.append(ask(trial.folder / "north.guard", fields)["error"])
        checks = {
            "refused": all("finite numbers, each below" in each for each in said),
            "nothing charged": trial.counts("north") == (0, 0),
        }
        yield Line(
            "posteriors of 1e38, 1e300, infinity and NaN", "refused before the charge", checks
        )


def leaving(bench):
    def absent(name, number):
        return name == "west" and number > 1 and ("middle" if number == 2 else True)

    with Trial(bench, "leaving", scheme="scored, one may leave", rounds=4) as trial:
        keeps = bench.passing["west"].spoil = Keeps(2)
        trial.start(timeout=30.0, patience=120.0)
        trial.until(keeps.answered.is_set)
        bench.deployment.kill("west")
        keeps.goes_on.set()
        trial.end()
        bench.restart_node("west")
        yield Line(
            "site with shared noise gone for good, in the middle of a round (dropouts=1)",
            "the others go on, with one spare answer",
            {
                "posterior of the other sites": trial.is_as_expected(absent),
                "the result says so": "without the rows of west" in trial.sentences(),
                "all charged once": all(trial.counts(name)[0] == 1 for name in NAMES),
                "one spare answer used": trial.counts("north")[1] == trial.rounds + 1,
                "nothing told": trial.tells_nothing(),
            },
        )


FAULTS = (
    ledgers,
    killed_nodes,
    killed_link,
    late,
    late_site,
    malformed,
    garbage,
    other_terms,
    full,
    absurd,
    leaving,
)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=[each.__name__ for each in FAULTS])
    parser.add_argument("--keep", type=Path, help="a folder for everything, which is kept")
    given = parser.parse_args()
    folder = given.keep or Path(tempfile.mkdtemp(prefix="faults"))
    folder.mkdir(exist_ok=True)
    bench, lines, begun = Bench(folder), [], time.monotonic()
    try:
        print("| fault | expected | found | |\n|---|---|---|---|", flush=True)
        for fault in FAULTS:
            if given.only and fault.__name__ not in given.only:
                continue
            for line in fault(bench):
                lines.append(line)
                print(line, flush=True)
    finally:
        bench.stop()
        if given.keep is None:
            shutil.rmtree(folder)
    print(f"{len(lines)} faults in {(time.monotonic() - begun) / 60:.0f} minutes.", file=sys.stderr)
    return int(any(not all(line.checks.values()) for line in lines))


if __name__ == "__main__":
    raise SystemExit(main())
