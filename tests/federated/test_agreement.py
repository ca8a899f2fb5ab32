"""The server and its sites agree on the study, or say what differs before anything is charged."""

import json

import pytest
from sites_on_disk import NAMES, make_sites

import tacit
from tacit.accounting.ledger import Ledger
from tacit.errors import Refused
from tacit.federated.agreement import Agreement
from tacit.federated.deploy import OpenSite, answer_message, load_study
from tacit.federated.protocol import task_fields
from tacit.federated.settings import SiteSettings

AGREED = Agreement.of(run="r", budget="epsilon 1", schema="a1", method="M()", model="b2", sites="x")


@pytest.mark.parametrize(
    ("part", "value", "said"),
    [
        ("budget", "epsilon 2", "another budget (epsilon 2 instead of epsilon 1)"),
        ("schema", "a9", "another schema (a9 instead of a1)"),
        ("method", "N()", "another method (N() instead of M())"),
        ("model", "b9", "another model or prior"),
        ("sites", "x, y", "another list of sites (x, y instead of x)"),
        ("jax", "0.1", "another version of JAX (0.1 instead of"),
        ("tacit", None, "another version of Tacit (none instead of"),
    ],
)
def test_what_differs_is_named(part, value, said):
    other = json.loads(AGREED.text) | {part: value}
    if value is None:
        del other[part]
    with pytest.raises(Refused) as refused:
        AGREED.check_same(json.dumps(other), "north", "The server")
    assert said in str(refused.value)
    assert str(refused.value).count("another") == 1


def test_columns_that_differ_are_named_without_the_model_that_follows_from_them():
    low = tacit.Schema(
        {"y": tacit.Binary(), "age": tacit.Number(0, 90), "w": tacit.Category(["a", "b"])}
    )
    high = tacit.Schema(
        {"y": tacit.Binary(), "age": tacit.Number(0, 99), "w": tacit.Category(["a", "c"])}
    )
    made = [
        tacit.federated_study(
            "y ~ age", schema=schema, sites=["a", "b"], run="r", epsilon=1
        ).agreement
        for schema in (low, high)
    ]
    found = list(made[0].differences(dict(made[1].parts)))
    ages = [f"age: {{kind: number, low: 0, high: {high}}}" for high in (90, 99)]
    assert found == [
        f"another schema ({ages[1]}, w: levels: [a, c] instead of {ages[0]}, w: levels: [a, b])"
    ]


@pytest.mark.parametrize("text", [None, "", "[1]", "3", b"x"])
def test_an_end_that_says_nothing_is_refused(text):
    with pytest.raises(Refused, match="does not say what it agreed to"):
        AGREED.check_same(text, "north", "The server")


def test_the_same_is_accepted_whatever_the_order():
    AGREED.check_same(AGREED.text, "north", "The server")
    assert AGREED.digest == Agreement.of(**dict(AGREED.parts)).digest


def test_a_site_refuses_a_task_on_other_terms_and_is_not_charged(tmp_path):
    files = make_sites(tmp_path)
    settings = SiteSettings.from_file(files["north"])
    study, site = load_study(settings.study), OpenSite(settings)
    task = study.server().tasks(NAMES)["north"]
    other = json.loads(study.agreement.text) | {"budget": "epsilon 3"}
    for kind in ("task", "offer"):
        fields = {**task_fields(task, agreed=json.dumps(other)), "kind": kind}
        with pytest.raises(Refused, match="The server has another budget"):
            answer_message(site, fields)
    refusal = answer_message(site, {"kind": "hello", "agreed": json.dumps(other)})
    assert refusal["site"] == "north"  # so that nobody waits for it
    assert refusal["error"].startswith("The server has another budget")
    hello = answer_message(site, {"kind": "hello", "agreed": study.agreement.text})
    assert hello == {"site": "north", "agreed": study.agreement.text}
    assert not Ledger(settings.ledger).charges
