"""The benchmark of calibration runs, and its table is complete; not that its numbers are good."""

import itertools
import json
import math
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    import calibration

    yield calibration
    for name in ("calibration", "calibration_models"):
        sys.modules.pop(name)


@pytest.fixture
def line(benchmark):
    """A line that meets every bar."""
    found = dict.fromkeys((each.name for each in fields(benchmark.Line)), 1.0)
    found |= {"model": "linear", "size": 300, "epsilon": 1.0, "misfit": 0.0, "references": 6}
    return benchmark.Line(**found | {"cover_90": 0.9, "cover_50": 0.5})


@pytest.mark.slow
def test_the_quick_table_is_complete_and_its_numbers_are_possible(benchmark, tmp_path, monkeypatch):
    table, kept = tmp_path / "table.md", tmp_path / "lines.json"
    given = ["--quick", "--markdown", str(table), "--json", str(kept)]
    lines = benchmark.main(given)
    quick = benchmark.QUICK
    cells = itertools.product(quick["models"], quick["sizes"], quick["epsilons"])
    assert [each.cell for each in lines] == list(cells)
    for each in lines:
        assert each.repeats == each.references == quick["repeats"]
        assert 0 <= each.cover_50 <= each.cover_90 <= 1
        assert each.worst_90 <= each.cover_90
        numbers = each.width, each.narrowest, each.over_exact, each.over_ideal, each.seconds
        assert all(math.isfinite(number) and number > 0 for number in numbers)
        assert (each.over_ideal == each.over_exact) == (each.epsilon is None)
        assert each.unconverged == each.refused == 0
    written = table.read_text().splitlines()
    assert len([line for line in written if line.startswith("| ")]) == len(lines) + 2
    assert written[0][:2] == "20"  # a date
    monkeypatch.setattr(benchmark, "cell", None)  # nothing is left to compute
    assert benchmark.main(given) == lines


def test_lines_of_another_run_are_refused(benchmark, tmp_path):
    path = tmp_path / "lines.json"
    path.write_text(json.dumps({"about": benchmark.about(benchmark.arguments([])), "lines": []}))
    with pytest.raises(SystemExit, match="another run"):
        benchmark.main(["--json", str(path), "--seed", "1"])


@pytest.mark.parametrize("narrow", [1.0, 0.3])
def test_the_narrowest_direction_is_found_and_not_taken_from_chance(benchmark, narrow):
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(25, 25)))[0]
    scales = np.geomspace(1, 30, 25)
    exact = (rng.normal(size=(2000, 25)) * scales) @ turn
    scales[10] *= narrow
    draws = (rng.normal(size=(1000, 25)) * scales) @ turn
    assert benchmark.narrowest(draws, exact) == pytest.approx(narrow, rel=0.12)


def test_bars_count_cells_and_name_those_that_fail(benchmark, line):
    good = [replace(line, size=i) for i in range(1, 10)]
    for bar in benchmark.BARS:
        assert bar.verdict(good).startswith(("met", "not tried"))
    held = benchmark.BARS[0]
    assert held.verdict([*good, replace(line, cover_90=0.83)]).startswith("met")
    two = [replace(line, cover_90=0.83), replace(line, cover_90=float("nan"))]
    assert held.verdict([*good, *two]).startswith("NOT MET")
    assert "linear 300 1: 0.83" in held.verdict([*good, *two])
    assert held.verdict([*good, replace(two[1], references=0)]).startswith("met")


def test_a_wrong_model_meets_its_bar_if_intervals_hold_or_misfit_is_mentioned(benchmark, line):
    bar = benchmark.BARS[-1]
    low = replace(line, model="outliers", cover_90=0.5)
    assert bar.verdict([low]).startswith("NOT MET")
    assert bar.verdict([replace(low, misfit=0.9)]).startswith("met")
    assert bar.verdict([replace(low, cover_90=0.9)]).startswith("met")


def test_every_model_draws_a_table_its_schema_takes_and_a_truth_that_is_scored(benchmark):
    for name, make in benchmark.CASES.items():
        case, rng = make(), np.random.default_rng(0)
        truth, table = case.draw(rng, 40)
        encoded, *_ = case.schema.encode(table, case.schema.names, keep_missing=True)
        assert {len(column) for column in encoded.values()} == {40}, name
        score = np.asarray(case.score(truth))
        assert score.ndim == 1, name
        assert np.isfinite(score).all(), name


def test_scores_do_not_depend_on_which_part_is_called_the_first(benchmark):
    score = benchmark.CASES["mixture"]().score
    one, other = ({"centres": np.array(each)} for each in ([1.0, -2.0], [-2.0, 1.0]))
    assert np.array_equal(score(one), score(other))


@pytest.mark.parametrize("wrong", [["--sizes", "0"], ["--models", "nothing"], ["--seed", "-1"]])
def test_wrong_options_are_refused(benchmark, wrong):
    with pytest.raises(SystemExit):
        benchmark.main(wrong)
