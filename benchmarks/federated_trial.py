"""From `tacit federated new` to the posterior on this machine, with TLS: seconds, and where they go.

    python benchmarks/federated_trial.py [--port 8000]

It makes a project of three sites in a temporary folder, makes its keys and runs its trial. Each round is printed
with the seconds of the clock since the one before, and the CPU seconds of all processes in them. At the end
are the CPU seconds of each program. Processes are found by their folder, so it needs Linux.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


class Watch:
    """CPU seconds of all processes that work in a folder, also of those that have ended."""

    def __init__(self, folder):
        self.folder, self.seconds, self.names = folder, {}, {}
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def watch(self):
        """Looks until the end."""
        while not self.ended.wait(0.1):  # programs for messages are short
            self.look()

    def look(self):
        """Notes what each process has used so far."""
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if not (process / "cwd").readlink().is_relative_to(self.folder):
                    continue
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                words = (process / "cmdline").read_text().split("\0")
            except OSError:  # it has ended
                continue
            key = process.name, fields[19]  # its number, and when it began
            self.seconds[key] = (int(fields[11]) + int(fields[12])) / TICKS
            program = [Path(word).name for word in words[1:4] if not word.startswith("-")]
            if any(program):  # it has not ended
                self.names[key] = " ".join(program[: 3 if program[0] == "tacit" else 1])

    @property
    def total(self):
        """CPU seconds of all."""
        return sum(self.seconds.values())

    def table(self):
        """CPU seconds of each program, most first."""
        parts = defaultdict(float)
        for key, seconds in self.seconds.items():
            parts[self.names.get(key, "others")] += seconds
        return sorted(parts.items(), key=lambda part: -part[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", default="8000", help="port of the server; nodes have others")
    port = parser.parse_args().port
    with tempfile.TemporaryDirectory() as home, Watch(home) as watch:
        begun, study = time.monotonic(), Path(home) / "study"
        for command, where in ((["new", "study"], home), (["keys"], study)):
            tacit = [sys.executable, "-m", "tacit", "federated", *command]
            subprocess.run(tacit, check=True, cwd=where)  # noqa: S603 (of this file)
        trial = subprocess.Popen(
            ["/bin/sh", "trial.sh"],
            cwd=study,
            env={**os.environ, "PORT": port},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        at, spent = time.monotonic(), 0.0
        for line in trial.stdout:
            print(line, end="")
            if line.startswith("Round") and " of " in line.partition(":")[0]:
                watch.look()
                now, total = time.monotonic(), watch.total
                print(f"    {now - at:.1f} s of the clock, {total - spent:.1f} s of CPU")
                at, spent = now, total
        code = trial.wait()
        print(f"exit code {code}; {time.monotonic() - begun:.0f} s of the clock in all")
        print(
            f"{watch.total:7.1f} s of CPU; load of the machine {os.getloadavg()[1]:.0f} on {os.cpu_count()} cores"
        )
        for name, seconds in watch.table():
            if seconds >= 0.5:
                print(f"{seconds:7.1f} {name}")


if __name__ == "__main__":
    main()
