"""The benchmark of calibration runs, and its table is complete; not that its numbers are good."""

import itertools
import math
import sys
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


@pytest.mark.slow
def test_the_quick_table_is_complete_and_its_numbers_are_possible(benchmark, tmp_path):
    path = tmp_path / "table.md"
    lines = benchmark.main(["--quick", "--markdown", str(path)])
    quick = benchmark.QUICK
    cells = itertools.product(quick["models"], quick["sizes"], quick["epsilons"])
    assert [(each.model, each.size, each.epsilon) for each in lines] == list(cells)
    for each in lines:
        assert each.repeats == each.references == quick["repeats"]
        assert 0 <= each.cover_50 <= each.cover_90 <= 1
        numbers = each.width, each.error, each.over_exact, each.over_ideal, each.seconds
        assert all(math.isfinite(number) and number > 0 for number in numbers)
        assert each.over_ideal <= each.over_exact
        assert each.unconverged == 0
    written = path.read_text().splitlines()
    assert len([line for line in written if line.startswith("| ")]) == len(lines) + 2
    assert written[0].split(", ")[2][:2] == "20"  # a date


def test_every_model_draws_a_table_its_schema_takes_and_a_truth_that_is_scored(benchmark):
    for name, make in benchmark.CASES.items():
        case, rng = make(), np.random.default_rng(0)
        truth, table = case.draw(rng, 40)
        encoded, *_ = case.schema.encode(table, case.schema.names)
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
