"""Folders of sites for tests: settings, data, study and keys, as a deployment has them."""

import json

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.federated.deploy import open_ledger
from tacit.federated.settings import SiteSettings

NAMES = ("north", "south", "west")
STUDY = '''"""A study of three sites, as a site's own file: the same for all tests of a deployment."""

import json
import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpyro.distributions as dist

from tacit import Budget, Rows, conjugate
from tacit.federated import Partitioned, PooledScoring
from tacit.federated.agreement import Agreement
from tacit.federated.deploy import Study
from tacit.federated.schemes import ClippedChanges, ClippedStatistics
from tacit.federated.targets import conjugate_target
from tacit.models.jax_model import Model, Parameter

SETTINGS = json.loads(Path(__file__).with_name("settings.json").read_text())
BOUNDS = SETTINGS.get("bounds", [[-6, 6], [-6, 6], [-20, 20]])
NOISE = SETTINGS.get("noise_sd", 0.5)
SCHEMES = {
    "statistics": ClippedStatistics(clip=20.0),
    "masked": ClippedChanges(clip=50.0, noise="split"),
    "server": ClippedChanges(clip=50.0, noise="server"),
}
SCORED = {
    "scored": {},
    "scored, split": {"noise": "split"},
    "scored, one may leave": {"noise": "split", "dropouts": 1, "spare_answers": 1, "dishonest": 0},
}


def read(path):
    held("hold-read")
    table = np.loadtxt(path, delimiter=",", dtype=np.float32)
    return Rows({"a": table[:, 0], "b": table[:, 1], "y": table[:, 2]})


def finish(server, path):
    said = () if not SETTINGS["scheme"].startswith("scored") else told(server)
    np.savez(path, posterior=server.trace[-1], trace=np.array(server.trace), said=" ".join(said))


def told(server):
    return server.fitted(np.random.default_rng(0)).messages


def held(name):
    """Stops here for as long as a file is there."""
    hold = Path(__file__).with_name(name)
    while hold.exists():
        hold.with_name(name.replace("hold", "reached")).touch()
        time.sleep(0.1)


@dataclass(frozen=True)
class Held:
    """Work that stops in its middle, after the charge."""

    work: object

    size = property(lambda self: self.work.size)
    grid = property(lambda self: self.work.grid)

    def change(self, *arguments):
        held("hold")
        return self.work.change(*arguments)


class HeldStudy(Study):
    """A study whose sites stop in the middle of an answer, and may pretend to have another version."""

    @cached_property
    def prepared(self):
        return replace(super().prepared, work=Held(super().prepared.work))

    @cached_property
    def agreement(self):
        parts = {**dict(super().agreement.parts), **SETTINGS.get("pretends", {})}
        return Agreement(tuple(parts.items()))


def chances(params, row):
    mean = params["w"][0] + params["w"][1] * row["a"] + params["w"][2] * row["b"]
    return dist.Normal(mean, NOISE)


def scored():
    given = {**SCORED[SETTINGS["scheme"]], **SETTINGS.get("scoring", {})}
    method = PooledScoring(num_rounds=SETTINGS.get("rounds", 4), **given)
    model = Model(
        parameters={"w": Parameter((3,))},
        log_prior=lambda params: dist.Normal(0, 3).log_prob(params["w"]).sum(),
        log_likelihood=lambda params, row: chances(params, row).log_prob(row["y"]),
        simulate=lambda key, params, row: {"y": chances(params, row).sample(key)},
    )
    return method, method.target(model.unit_model)


def partitioned():
    model = conjugate.LinearRegression(
        "y", ("a", "b"), noise_sd=NOISE, intercept_sd=3.0, coefficient_sd=3.0, bounds=BOUNDS
    )
    method = Partitioned(
        scheme=SCHEMES[SETTINGS["scheme"]],
        num_rounds=SETTINGS.get("rounds", 3),
        spare_answers=2,
        damping=0.6,
    )
    return method, conjugate_target(model)


METHOD, TARGET = scored() if SETTINGS["scheme"] in SCORED else partitioned()
study = HeldStudy(
    run=SETTINGS.get("run", "study"),
    target=TARGET,
    method=METHOD,
    sites=tuple(SETTINGS["sites"]),
    budget=Budget(SETTINGS.get("epsilon", 20), 1e-5),
    read=read,
    example=Rows({name: np.zeros(1, np.float32) for name in ("a", "b", "y")}),
    finish=finish,
    seed=SETTINGS.get("seed"),
    schema=str(BOUNDS),
)
'''


def data_of(count=3):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(30 * count, 2))
    y = x @ [1.0, -2.0] + 0.5 * rng.normal(size=30 * count)
    table = np.column_stack([x, y]).astype(np.float32)
    return [table[i::count] for i in range(count)]


def make_sites(folder, scheme="statistics", names=NAMES, total=20.0, **settings):
    """The settings file of every site, each in a folder of its own with all that it needs.

    ``total`` is the budget of all runs at a site, of all or by name.
    """
    secrets = {name: Ed25519PrivateKey.generate() for name in names}
    members = "\n".join(
        f'{name} = "{key.public_key().public_bytes_raw().hex()}"' for name, key in secrets.items()
    )
    files = {}
    for name, table in zip(names, data_of(len(names)), strict=True):
        home = folder / name
        home.mkdir(parents=True)
        copy_study(home, scheme, names, **settings)
        np.savetxt(home / "data.csv", table, delimiter=",", fmt="%.9g")
        (home / "identity").write_text(secrets[name].private_bytes_raw().hex())
        files[name] = home / "site.toml"
        budget = total if isinstance(total, float) else total[name]
        files[name].write_text(
            f'name = "{name}"\nstudy = "study.py"\ndata = "data.csv"\nledger = "site.db"\n'
            f'identity = "identity"\nbudget = {{epsilon = {budget}, delta = 1e-5}}\n'
            f"[members]\n{members}\n"
        )
        open_ledger(SiteSettings.from_file(files[name]))
    return files


def copy_study(home, scheme, names, **settings):
    (home / "study.py").write_text(STUDY)
    (home / "settings.json").write_text(
        json.dumps({"scheme": scheme, "sites": list(names), **settings})
    )
