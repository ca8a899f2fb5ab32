"""A hundred sites in Flower's simulation engine."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sites_on_disk import make_sites

from tacit.federated.deploy import load_study
from tacit.federated.method import run_in_process

pytestmark = [pytest.mark.slow, pytest.mark.processes]

SCRIPT = """
import sys
from pathlib import Path

from flwr.simulation import run_simulation

from tacit.federated.deploy import load_study
from tacit.federated.settings import SiteSettings
from tacit.federated.flower import client_app, server_app

folder = Path(sys.argv[1])
names = sorted(path.name for path in folder.iterdir())


def settings(context):
    place = names[int(context.node_config["partition-id"])]
    return SiteSettings.from_file(folder / place / "site.toml")


study = load_study(folder / names[0] / "study.py")
run_simulation(
    server_app=server_app(study, pinned=False),
    client_app=client_app(settings),
    num_supernodes=len(names),
    backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
)
"""


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs flwr[simulation]")
def test_a_hundred_sites_find_the_same_as_in_process(tmp_path):
    names = tuple(f"site-{i:03d}" for i in range(100))
    files = make_sites(tmp_path / "sites", names=names, seed=11, rounds=2)
    script = tmp_path / "simulate.py"
    script.write_text(SCRIPT)
    environment = {
        **os.environ,
        "FLWR_HOME": str(tmp_path / "flower"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run(
        [sys.executable, script, tmp_path / "sites"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    result = tmp_path / "posterior.nc.npz"  # NumPy adds its own ending
    assert result.exists(), (done.stdout + done.stderr)[-5000:]
    study = load_study(files[names[0]].parent / "study.py")
    rows = {name: study.read(Path(path).parent / "data.csv") for name, path in files.items()}
    expected = run_in_process(
        study.method,
        study.target,
        rows,
        dict.fromkeys(rows, study.budget),
        run=study.run,
        seed=study.seed,
    )
    with np.load(result) as found:
        assert np.array_equal(found["posterior"], expected.server.posterior)
