"""Folders of sites for tests: settings, data, study and keys, as a deployment has them."""

import json

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.federated.deploy import SiteSettings, open_ledger

NAMES = ("north", "south", "west")
STUDY = '''"""A study of three sites, as a site's own file: the same for all tests of a deployment."""

import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tacit import Budget, Rows, conjugate
from tacit.federated import Partitioned
from tacit.federated.deploy import Study
from tacit.federated.schemes import ClippedChanges, ClippedStatistics
from tacit.federated.schemes.base import Prepared
from tacit.federated.target import conjugate_target

SETTINGS = json.loads(Path(__file__).with_name("settings.json").read_text())
TARGET = conjugate_target(
    conjugate.LinearRegression(
        "y",
        ("a", "b"),
        noise_sd=0.5,
        intercept_sd=3.0,
        coefficient_sd=3.0,
        bounds=((-6, 6), (-6, 6), (-20, 20)),
    )
)


def read(path):
    table = np.loadtxt(path, delimiter=",", dtype=np.float32)
    return Rows({"a": table[:, 0], "b": table[:, 1], "y": table[:, 2]})


def finish(server, path):
    np.savez(path, posterior=server.posterior, trace=np.array(server.trace))


HOLD = Path(__file__).with_name("hold")


@dataclass(frozen=True)
class Held:
    """Work that stops in its middle, after the charge, for as long as a file is there."""

    work: object

    size = property(lambda self: self.work.size)
    grid = property(lambda self: self.work.grid)

    def change(self, *arguments):
        while HOLD.exists():
            HOLD.with_name("reached").touch()
            time.sleep(0.1)
        return self.work.change(*arguments)


@dataclass(frozen=True, kw_only=True)
class HeldStatistics(ClippedStatistics):
    def prepare(self, setting):
        prepared = super().prepare(setting)
        return Prepared(work=Held(prepared.work), event=prepared.event)


@dataclass(frozen=True, kw_only=True)
class HeldChanges(ClippedChanges):
    def prepare(self, setting):
        prepared = super().prepare(setting)
        return Prepared(work=Held(prepared.work), event=prepared.event)


SCHEMES = {
    "statistics": HeldStatistics(clip=20.0),
    "masked": HeldChanges(clip=50.0, noise="split"),
    "server": ClippedChanges(clip=50.0, noise="server"),
}
study = Study(
    run=SETTINGS.get("run", "study"),
    target=TARGET,
    method=Partitioned(
        scheme=SCHEMES[SETTINGS["scheme"]],
        num_rounds=SETTINGS.get("rounds", 3),
        spare_answers=2,
        damping=0.6,
    ),
    sites=tuple(SETTINGS["sites"]),
    budget=Budget(20, 1e-5),
    read=read,
    example=Rows({name: np.zeros(1, np.float32) for name in ("a", "b", "y")}),
    finish=finish,
    seed=SETTINGS.get("seed"),
)
'''


def data_of(count=3):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(30 * count, 2))
    y = x @ [1.0, -2.0] + 0.5 * rng.normal(size=30 * count)
    table = np.column_stack([x, y]).astype(np.float32)
    return [table[i::count] for i in range(count)]


def make_sites(folder, scheme="statistics", names=NAMES, **settings):
    """The settings file of every site, each in a folder of its own with all that it needs."""
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
        files[name].write_text(
            f'name = "{name}"\nstudy = "study.py"\ndata = "data.csv"\nledger = "site.db"\n'
            f'identity = "identity"\nbudget = {{epsilon = 20.0, delta = 1e-5}}\n'
            f"[members]\n{members}\n"
        )
        open_ledger(SiteSettings.from_file(files[name]))
    return files


def copy_study(home, scheme, names, **settings):
    (home / "study.py").write_text(STUDY)
    (home / "settings.json").write_text(
        json.dumps({"scheme": scheme, "sites": list(names), **settings})
    )
