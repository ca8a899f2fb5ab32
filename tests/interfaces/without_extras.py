"""Runs a part of Tacit as if only some of its extras were installed: ``without_extras.py JOB EXTRA ...``.

Whatever no requirement of the distribution with these extras leads to cannot be found. So a job fails as
soon as it imports a package that the installation would not have brought.
"""

import sys
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def brought(name, extras, found):
    """Collects the distributions that installing one with some extras brings."""
    if (name, extras) in found:
        return found
    found.add((name, extras))
    try:
        required = distribution(name).requires or []
    except PackageNotFoundError:  # for another system, or a test of an older Python
        return found
    for each in map(Requirement, required):
        wanted = each.marker is None or any(
            each.marker.evaluate({"extra": extra}) for extra in ("", *extras)
        )
        if wanted:
            brought(canonicalize_name(each.name), tuple(sorted(each.extras)), found)
    return found


def hide(extras):
    """No import finds what these extras do not bring."""
    kept = {name for name, _ in brought("tacit-bayes", tuple(extras), set())} | {"tacit-bayes"}
    hidden = {
        package
        for package, owners in packages_distributions().items()
        if not kept & {canonicalize_name(owner) for owner in owners}
    } - {"tacit"}
    assert hidden, "everything is brought, so that nothing would be tested"

    class Finder:
        def __init__(self, usual):
            self.usual = usual

        def find_spec(self, name, path=None, target=None):
            package = name.partition(".")[0]
            return None if package in hidden else self.usual.find_spec(name, path, target)

        def find_distributions(self, *context):
            found = getattr(self.usual, "find_distributions", lambda *_: ())(*context)
            return (each for each in found if canonicalize_name(each.name) in kept)

    sys.meta_path[:] = map(Finder, sys.meta_path)


def charges():
    import tacit

    return len(tacit.Ledger("l.db").charges)


def everything():
    """All that the bare package does."""
    import numpy as np
    import pandas as pd

    import tacit
    from tacit.cli.main import main
    from tacit.results.posterior import Posterior

    fit = "fit visits.csv --schema visits.yaml --epsilon .5 --delta 1e-6 --quiet --yes".split()
    fit += ["--formula", "readmitted ~ age", "--ledger", "l.db", "--set", "num_steps=8"]
    quick = ["--method", "variational", "--set", "sampling_rate=1"]
    Path("visits.csv").write_text(
        "age,readmitted\n" + "".join(f"{20 + i % 70},{i % 3 == 0:d}\n" for i in range(3000))
    )
    Path("visits.yaml").write_text(
        "columns:\n  age: {kind: number, low: 18, high: 100}\n  readmitted: {kind: binary}\n"
    )
    Path("new.csv").write_text("age\n30\n")
    assert main("ledger new l.db --epsilon 3 --delta 1e-4 --unit row".split()) == 0
    assert main("schema check visits.yaml visits.csv".split()) == 0
    assert main([*fit, "--dry-run"]) == 0
    assert main([*fit, "--out", "run"]) == 0
    for command in ("predict run new.csv", "report run", "explain run", "ledger show l.db"):
        assert main(command.split()) == 0, command
    assert main("budget epsilon --noise-multiplier 2 --steps 9 --delta 1e-6".split()) == 0
    # Killed before its posterior was saved, and resumed.
    usual = Posterior.save
    Posterior.save = lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
    try:
        code = main([*fit, *quick, "--out", "killed"])
    except KeyboardInterrupt:
        code = 130
    assert code == 130
    Posterior.save = usual
    assert main("resume killed --quiet".split()) == 0
    assert charges() == 2
    # Frames and arrays, and a forecast.
    schema = tacit.Schema.from_yaml("visits.yaml")
    model = tacit.glm("readmitted ~ age", schema=schema)
    frame = pd.DataFrame({"age": np.arange(20, 80), "readmitted": np.arange(60) % 2})
    method, budget = tacit.Variational(num_steps=4, sampling_rate=1), tacit.Budget(1, 1e-6)
    plan = tacit.plan(model, budget=budget, method=method)
    for data in (frame, {name: frame[name].to_numpy() for name in frame}):
        assert str(tacit.fit(plan, data).summary())
    assert str(tacit.forecast(model, size=200, budgets=budget, method=method, repeats=2))


def plain_fit():
    import tacit

    schema = tacit.Schema({"x": tacit.Number(0, 1), "y": tacit.Binary()})
    table = {"x": [0.1, 0.9, 0.4], "y": [0, 1, 1]}
    method = tacit.Variational(num_steps=2, sampling_rate=1)
    model = tacit.glm("y ~ x", schema=schema)
    return tacit.fit(model, table, budget=tacit.Budget(1, 1e-6), method=method)


def no_parquet():
    from tacit.cli.main import main

    Path("x.parquet").write_bytes(b"PAR1")
    Path("x.yaml").write_text(
        "columns:\n  x: {kind: number, low: 0, high: 1}\n  y: {kind: binary}\n"
    )
    assert main("ledger new l.db --epsilon 3 --delta 1e-4 --unit row".split()) == 0
    fit = "fit x.parquet --schema x.yaml --formula y~x --epsilon 1 --delta 1e-6 --ledger l.db"
    assert main(fit.split()) == 2
    assert charges() == 0
    assert main("shard x.parquet --into 2".split()) == 2


def no_tables():
    from tacit.cli.main import main

    Path("x.yaml").write_text("columns:\n  x: {kind: number, low: 0, high: 1}\n")
    for name in ("x.xlsx", "x.sav"):
        Path(name).write_bytes(b"x")
        assert main(["schema", "check", "x.yaml", name]) == 2


def no_plots():
    from tacit.errors import MissingPackage

    try:
        plain_fit().plot_forest()
    except MissingPackage as error:
        sys.stderr.write(str(error))


def no_pymc():
    import tacit
    from tacit.errors import MissingPackage

    try:
        tacit.plan(
            tacit.models.PyMC(object()),
            tacit.Schema({"x": tacit.Number(0, 1)}),
            budget=tacit.Budget(1, 1e-6),
        )
    except MissingPackage as error:
        sys.stderr.write(str(error))


def no_dp_accounting():
    from tacit.accounting import PLD, events
    from tacit.errors import MissingPackage

    truncated = events.TruncatedSubsampledGaussianDpEvent(1000, 0.01, 20, 1.5)
    for call in (events.to_dp_event, lambda event: PLD().epsilon(event, 1e-5)):
        try:
            call(truncated)
        except MissingPackage as error:
            sys.stderr.write(f"{error}\n")


def no_postgres():
    from tacit.cli.main import main

    assert main("ledger show postgresql://anna@127.0.0.1:1/registry".split()) == 2


def no_sklearn():
    try:
        import tacit

        tacit.PrivateBayesClassifier  # noqa: B018
    except ImportError as error:
        sys.stderr.write(str(error))


def no_federated():
    from tacit.cli.main import main

    Path("ca.crt").touch()
    node = "federated node guard --superlink 127.0.0.1:1 --root-certificates ca.crt --key ca.crt"
    assert main(node.split()) == 2


def no_demo():
    from tacit.cli.main import main

    assert main(["demo"]) == 2
    assert not Path("tacit-demo").exists()


if __name__ == "__main__":
    job, *extras = sys.argv[1:]
    hide(extras)
    globals()[job]()
    if job != "everything":
        plain_fit()
