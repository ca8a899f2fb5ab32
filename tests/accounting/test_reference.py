"""Every record of reference.json: brackets for the tight accountants, formulas to 1e-3."""

import json
from pathlib import Path

import pytest

from tacit.accounting import PLD, Budget, Renyi, calibrate, convert, events
from tacit.papers.accountants import Advanced, AnalyticGaussian, Moments

RECORDS = json.loads(Path(__file__).with_name("reference.json").read_text())["records"]
SOURCES = {
    "sampled": [r for r in RECORDS if r["id"][:2] in {"AR", "RP"} or r["id"] in {"PVI13", "PVI15"}],
    "fixed": [r for r in RECORDS if r["id"].startswith("WOR")],
    "full": [r for r in RECORDS if r["config"].get("q") == 1],
    "truncated": [r for r in RECORDS if r["id"].startswith("TR_")],
    "thesis": [r for r in RECORDS if r["id"].startswith("THESIS")],
    "advi": [r for r in RECORDS if r["id"].startswith("DPADVI")],
    "subsampled barker": [r for r in RECORDS if r["id"].startswith("DPMCMC_cor2")],
    "full barker": [r for r in RECORDS if r["id"].startswith("DPMCMC_cor1")],
}


# The longest to compute. Of their kind, others are computed always.
SLOW = {r["id"] for r in RECORDS if r["id"][:2] in {"RP", "TR", "TH"}}
SLOW -= {
    "RP03_abalone",
    "RP13_dpadvi_abalone",
    "TR_3341_200",
    "THESIS_2.29_passes1",
    "THESIS_2.29_passes100",
}


def over(source):
    records = [
        pytest.param(r, id=r["id"], marks=[pytest.mark.slow] * (r["id"] in SLOW))
        for r in SOURCES[source]
    ]
    return pytest.mark.parametrize("record", records)


def near(value):
    return pytest.approx(value, rel=1e-3)


def in_bracket(epsilon, record):
    return record["lower"] <= epsilon <= record["upper"] * 1.005


def test_no_record_is_left_out():
    assert sorted(r["id"] for r in RECORDS) == sorted(r["id"] for s in SOURCES.values() for r in s)


def sampled(record):
    c = record["config"]
    return events.sampled_gaussian(c["s"], c["q"], c["T"]), c["delta"]


@over("sampled")
def test_poisson_sampling(record):
    (run, delta), values = sampled(record), record["values"]
    adjacency = "replace" if record["config"]["relation"] == "replace_one" else "add-remove"
    tight = PLD().epsilon(run, delta, adjacency)
    assert in_bracket(tight, record)
    if "dp_accounting_rdp" in values:
        rdp = Renyi().epsilon(run, delta, adjacency)
        assert record["lower"] <= rdp <= values["dp_accounting_rdp"] * 1.0001
        assert rdp == pytest.approx(values["dp_accounting_rdp"], rel=0.01)
    if "ma_abadi_lambda32" in values:
        assert Moments().epsilon(run, delta, adjacency) == near(values["ma_abadi_lambda32"])
    if "thesis_ma_2c(sigma=s/2)" in values:
        assert Moments().epsilon(run, delta, "replace") == near(values["thesis_ma_2c(sigma=s/2)"])
    if "thm2.15_unbounded_to_bounded" in values:
        by_theorem = convert.add_remove_curve_to_replace(
            lambda epsilon: PLD().delta(run, epsilon, "add-remove"), delta
        )
        assert by_theorem == near(values["thm2.15_unbounded_to_bounded"])
    if "fastpld_replace" in values:
        replace = PLD().epsilon(run, delta, "replace")
        assert replace == near(values["fastpld_replace"])


@over("fixed")
def test_fixed_batches(record):
    c = record["config"]
    run = events.fixed_batch_gaussian(c["s"], round(c["q"] * 10**6), 10**6, c["T"])
    epsilon = PLD().epsilon(run, c["delta"], "replace")
    assert in_bracket(epsilon, record)
    # dp-accounting's general bound for sampling without replacement is looser than ours.
    loosest = record["values"]["dp_accounting_rdp_wor(noise_mult=s/2!)"]
    assert epsilon <= Renyi().epsilon(run, c["delta"], "replace") <= loosest


@over("full")
def test_full_data_is_exact(record):
    (run, delta), values = sampled(record), record["values"]
    for accountant in (PLD(), AnalyticGaussian()):
        epsilon = accountant.epsilon(run, delta)
        assert epsilon == pytest.approx(values["exact_gaussian"], rel=1e-9)
        assert epsilon >= record["lower"]
    basic = Renyi(conversion="basic").epsilon(run, delta)
    assert basic == near(values["rdp_basic"])
    improved = values["dp_accounting_rdp(noise_mult=s/fac)"]
    assert Renyi().epsilon(run, delta) == near(improved)


@over("truncated")
def test_truncated_batches(record):
    c, values = record["config"], record["values"]
    step = events.TruncatedSubsampledGaussianDpEvent(c["N"], c["q"], c["B_max"], c["s"])
    run = events.repeat(step, c["T"])
    assert PLD().epsilon(run, c["delta"]) == near(values["dp_accounting_trunc_ADD_OR_REMOVE_ONE"])
    replace = PLD().epsilon(run, c["delta"], "replace")
    assert replace == near(values["dp_accounting_trunc_REPLACE_ONE"])
    whole, delta = sampled(record)
    assert PLD().epsilon(whole, delta) == near(values["untruncated_addremove"])
    assert PLD().epsilon(whole, delta, "replace") == near(values["untruncated_replace"])


@over("thesis")
def test_example_2_29(record):
    c = record["config"]
    setting = {"sampling_rate": c["q"], "num_steps": c["T"]}

    def sigma(adjacency, accountant=None):
        budget = Budget(c["eps"], c["delta"], adjacency)
        return calibrate.noise_multiplier(budget, accountant=accountant, **setting) / 2

    def wanted(name):
        return near(record["values"][f"sigma {name}"])

    assert sigma("replace", Advanced(check=False)) == wanted(
        "amplified_advanced_composition(delta_prime=delta/2)"
    )
    assert sigma("replace", Moments()) == wanted("moments_accountant_lambda32")
    assert sigma("replace") == wanted("pld_replace_poisson")
    assert sigma("add-remove") == wanted("pld_addremove_true(sens c)")
    assert 2 * sigma("add-remove") == wanted("pld_addremove_with_sens_2c")
    fixed = calibrate.calibrate(
        lambda s: events.fixed_batch_gaussian(s, round(c["q"] * c["N"]), c["N"], c["T"]),
        Budget(c["eps"], c["delta"], "replace"),
    )
    assert fixed / 2 == wanted("pld_replace_wor")


@over("advi")
def test_dp_advi_formula(record):
    c, values = record["config"], record["values"]
    (run, delta) = sampled(record)
    half = Advanced(check=False).epsilon(run, delta, "replace")
    assert half == near(values["dp_advi_formula(d'=d/2)"])
    best = Advanced(check=False, slack=None).epsilon(run, delta, "replace")
    assert best == near(values["dp_advi_formula(best d')"])
    assert Moments().epsilon(run, delta, "replace") == near(values["ma_abadi_2c"])
    assert PLD().epsilon(run, delta, "replace") == near(values["pld_replace_poisson"])
    assert PLD().epsilon(run, delta) == near(values["pld_addremove(sens c)"])
    fixed = events.fixed_batch_gaussian(c["s"], round(c["q"] * 10**6), 10**6, c["T"])
    assert PLD().epsilon(fixed, delta, "replace") == near(values["pld_wor_replace"])


@over("subsampled barker")
def test_subsampled_barker(record):
    c, values = record["config"], record["values"]
    for paper_bound, label in ((True, "paper(21)(22)"), (False, "tightened(21)")):
        test = events.SubsampledBarkerTest(
            batch_size=c["b"], dataset_size=c["N"], paper_bound=paper_bound
        )
        run = events.repeat(test, c["T"])
        basic = Renyi(conversion="basic").epsilon(run, c["delta"], "replace")
        name = "basic_conv" if paper_bound else "basic"
        assert basic == near(values[f"{label}+{name}"])
        name = "CKS_conv" if paper_bound else "CKS"
        improved = Renyi().epsilon(run, c["delta"], "replace")
        assert improved == near(values[f"{label}+{name}"])
        assert PLD().epsilon(run, c["delta"], "replace") == improved


@over("full barker")
def test_full_data_barker(record):
    c, values = record["config"], record["values"]
    noisy = events.GaussianBarkerTest(ratio_bound=c["B"], noise_variance=c["C"])
    run = events.repeat(noisy, c["T"])
    basic = Renyi(conversion="basic").epsilon(run, c["delta"], "replace")
    assert basic == near(values["paper_cor1+basic_conv"])
    assert Renyi().epsilon(run, c["delta"], "replace") == near(values["cor1+CKS"])
    exact = PLD().epsilon(run, c["delta"], "replace")
    assert exact == near(values["exact_gaussian_composition"])
    bits = events.repeat(events.BarkerTest(ratio_bound=c["B"]), c["T"])
    by_orders = Renyi().epsilon(bits, c["delta"], "replace")
    assert by_orders == near(values["barker_bit_bounded_range_zCDP"])
    assert PLD().epsilon(bits, c["delta"], "replace") <= by_orders
