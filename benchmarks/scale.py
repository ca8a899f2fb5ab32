"""How a fit grows with rows and processes: seconds, processor seconds and peak memory.

Makes Parquet files of made-up rows, and fits a logistic regression of three columns to them by the default
settings for their declared number, at epsilon 1:

    python benchmarks/scale.py --rows 1e5 1e6 1e7 1e8 --processes 1 2 4
    python benchmarks/scale.py --rows 1e6 --processes 1 2 --everyone   # every step reads all rows
    python benchmarks/scale.py --step    # processor time and bytes of one step of one process
    python benchmarks/scale.py --quick

Each fit has processes of its own, which read the same four files. Columns are of the process that takes
longest: seconds of processor time to plan, to read the files, to compile, and for all steps together. The
forecast that goes with a declared size is left out unless asked for (``--forecast``): it takes the same time
from 1e5 rows on. ``wall`` and ``cpu`` are of the whole, imports included. The ratios leave reading out.
Processor time hardly depends on what else the machine does; seconds on the clock do. Peak memory is what Linux
says of the largest process (VmHWM, mapped pages included).
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NAMES = ["x0", "x1", "x2"]
FILES, CHUNK, STEPS = 4, 500_000, 20


def main(arguments=None):
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rows", type=float, nargs="+", default=[1e5, 1e6, 1e7])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--everyone", action="store_true", help="every step reads all rows")
    parser.add_argument("--forecast", action="store_true", help="with the forecast of the plan")
    parser.add_argument("--quick", action="store_true", help="10,000 rows, one and two processes")
    parser.add_argument("--folder", type=Path, default=None, help="where to put the files")
    parser.add_argument("--step", action="store_true", help="measure a step of one process")
    given = parser.parse_args(arguments)
    if given.step:
        return one_step()
    if given.quick:
        given.rows, given.processes = [1e4], [1, 2]
    lines = []
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        for rows in map(int, given.rows):
            paths = make(Path(name), rows)
            for count in given.processes:
                lines.append(measured(paths, rows, count, given.everyone, given.forecast))
                show(lines)
            for path in paths:
                path.unlink()
    return lines


def make(folder, rows):
    """Files of made-up rows, written in pieces."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    generator = np.random.default_rng(0)
    kinds = pa.schema([(name, pa.float32()) for name in NAMES] + [("y", pa.int8())])
    paths = [folder / f"rows{i}.parquet" for i in range(FILES)]
    for path in paths:
        with parquet.ParquetWriter(path, kinds) as writer:
            for start in range(0, rows // FILES, CHUNK):
                size = min(CHUNK, rows // FILES - start)
                x = generator.standard_normal((len(NAMES), size), np.float32)
                y = generator.random(size, np.float32) < 1 / (1 + np.exp(0.3 - x[0] + 0.5 * x[1]))
                columns = dict(zip(NAMES, x, strict=True)) | {"y": y.astype(np.int8)}
                writer.write_table(pa.table(columns, schema=kinds))
    return paths


def measured(paths, rows, count, everyone, forecast):
    """One fit in so many processes: a line of the table."""
    from tacit.cli.distributed import WORKER_VARIABLE, _free_port

    port, settings = _free_port(), json.dumps([[*map(str, paths)], rows, everyone, forecast])
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    started = [
        subprocess.Popen(  # noqa: S603
            [sys.executable, __file__, "--worker", settings],
            env=os.environ
            | {WORKER_VARIABLE: f"{rank} {count} {port}", "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    found = [json.loads(each.communicate()[0].splitlines()[-1]) for each in started]
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - began
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    worst = {name: max(each[name] for each in found) for name in found[0]}
    return {"rows": rows, "processes": count, "wall": wall, "cpu": used} | worst


def work(settings):
    """What one process does: plans, reads its files, fits, and prints how long that took."""
    from tacit.cli import distributed
    from tacit.cli.distributed import ProcessInfo

    place = ProcessInfo.here()
    if place.size > 1:
        distributed.join_processes(place.size)
    import tacit
    from tacit.api import fit as fits
    from tacit.privacy.distributed import DistributedRunner

    paths, rows, everyone, forecast = json.loads(settings)
    schema = tacit.Schema({name: tacit.Number(-4, 4) for name in NAMES} | {"y": tacit.Binary()})
    fits.read_files, reading = timed(fits.read_files)
    DistributedRunner.run, steps = timed(DistributedRunner.run)
    whole = tacit.Scoring(sampling_rate=1.0, num_steps=STEPS) if everyone else None
    model, size = tacit.glm("y ~ x0 + x1 + x2", schema=schema), None if everyone else rows
    began = time.process_time()
    plan = tacit.plan(model, schema, budget=tacit.Budget(1, 1e-9), method=whole, size=size)
    if not forecast:
        vars(plan)["forecast"] = None
    elif place.rank == 0:
        print(*plan.warnings)  # which asks for it
    planned = time.process_time()
    tacit.fit(plan, paths)
    took = time.process_time() - planned
    usual = sum(steps[1:]) * len(steps) / (len(steps) - 1)  # the first block compiles
    found = {"plan": planned - began, "read": reading[0], "compile": took - reading[0] - usual}
    print(json.dumps(found | {"steps": usual, "peak": peak()}))


def timed(usual):
    """A function that also notes the processor time of each call, and the notes."""
    took = []

    def found(*arguments):
        began = time.process_time()
        result = usual(*arguments)
        took.append(time.process_time() - began)
        return result

    return found, took


def one_step(rows=200_000, steps=100):
    """Prints the processor time of a step on a tenth of the rows, and what a process sends in it."""
    import numpy as np

    import tacit
    from tacit.inference.score_contributions import contribution_size
    from tacit.privacy.distributed import DistributedRunner

    schema = tacit.Schema({name: tacit.Number(-4, 4) for name in NAMES} | {"y": tacit.Binary()})
    DistributedRunner.run, used = timed(DistributedRunner.run)
    method = tacit.Scoring(sampling_rate=0.1, num_steps=steps)
    model = tacit.glm("y ~ x0 + x1 + x2", schema=schema)
    with tempfile.TemporaryDirectory() as name:
        path = make(Path(name), FILES * rows)[0]
        plan = tacit.plan(model, schema, budget=tacit.Budget(1, 1e-9), method=method)
        tacit.fit(plan, [str(path)])
    seconds = float(np.median(used[2:])) * len(used) / steps  # the first block compiles
    print(
        f"{1000 * seconds:.1f} ms of processor time for {rows // 10} rows, {1e6 * seconds / (rows / 10):.2f} us each"
    )
    sent = {size: 16 * contribution_size(size) for size in (4, 10, 30, 64)}
    print(f"bytes that a process sends in a step, by parameters: {sent}")
    return seconds


def peak():
    """Peak resident memory of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def show(lines):
    """Prints the newest line, beside the smallest fit of as many processes."""
    line = lines[-1]
    least = next(each for each in lines if each["processes"] == line["processes"])
    names = ("wall", "cpu", "plan", "read", "compile", "steps")
    if len(lines) == 1:
        head = ["rows", "processes", *names, "peak MB", "plan to steps, over the least", "steps"]
        print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    ratio = sum(line[name] for name in names[2:] if name != "read")
    ratio /= sum(least[name] for name in names[2:] if name != "read")
    cells = [f"{line[name]:.1f}" for name in names] + [f"{line['peak'] / 1e6:.0f}", f"{ratio:.2f}"]
    cells += [f"{line['steps'] / least['steps']:.2f}"]
    print(f"| {line['rows']:.0e} | {line['processes']} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        work(sys.argv[2])
    else:
        main()
