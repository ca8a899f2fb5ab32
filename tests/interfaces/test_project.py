"""`tacit federated new` and `identity`: what they write is what sites and servers read."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from cryptography.x509 import DNSName, IPAddress, SubjectAlternativeName, load_pem_x509_certificate
from typer.main import get_group

import tacit
from tacit import Ledger
from tacit.api.federated import site_part
from tacit.cli import federated
from tacit.cli.main import main
from tacit.errors import InvalidArgument
from tacit.federated.deploy import OpenSite, load_study
from tacit.federated.protocol import InProcess
from tacit.federated.server import run_schedule
from tacit.federated.settings import SiteSettings
from tacit.results.posterior import Posterior

DOCS = Path(__file__).parents[2] / "docs/guides/sites.md"


def test_a_new_project_fits_as_it_is(tmp_path, capsys):
    folder = tmp_path / "study"
    assert main(["federated", "new", str(folder), "--site", "a", "--site", "b"]) == 0
    assert "README.md" in capsys.readouterr().out
    study = load_study(folder / "app" / "study_app" / "study.py")
    assert study.sites == ("a", "b")
    settings = tomllib.loads((folder / "app" / "pyproject.toml").read_text())
    parts = settings["tool"]["flwr"]["app"]["components"]
    for component in parts.values():
        module = component.partition(":")[0].replace(".", "/")
        assert (folder / "app" / f"{module}.py").is_file()
    sites = [SiteSettings.from_file(folder / "sites" / name / "site.toml") for name in "ab"]
    for name in "ab":
        assert main(["federated", "open", str(folder / "sites" / name / "site.toml")]) == 0
    assert "epsilon 3, delta 1e-5 (add-remove) in total for every row" in capsys.readouterr().out
    server = study.server()
    run_schedule(server, InProcess([OpenSite(site) for site in sites]), study.method.rounds(2))
    study.finish(server, tmp_path / "posterior.nc")
    post = Posterior.load(tmp_path / "posterior.nc")
    assert post.privacy.epsilons["add-remove"] <= 1
    assert list(post.sites) == ["a", "b"]
    assert "each site's own ledger" in str(post.sites["b"])
    # The rows are drawn from these coefficients of a unit of each column.
    assert post.answers == {"a": (20, 20), "b": (20, 20)}
    slopes = np.column_stack([post.draws["age"], post.draws["dose"]])
    assert np.all(np.abs(slopes.mean(axis=0) - [1 / 41, -1 / 25]) < 4 * slopes.std(axis=0))
    for site in sites:
        assert len(Ledger(site.ledger).charges) == 1
    settings = str(folder / "sites" / "b" / "site.toml")
    assert main(["report", str(tmp_path / "posterior.nc"), "--site", settings]) == 0
    whole, own = ((tmp_path / f"{name}.md").read_text("utf-8") for name in ("report", "report-b"))
    for text in (whole, own):
        assert "| rows of a site | nothing | nothing | nothing |" in text
        assert "each has noise that protects people by itself" in text
    assert "Each site's own ledger has its charge" in whole
    assert re.search(r"\| a \| 1e-6 \| 1 \| [\d.]+ \| row \| 20 of 20 \|", whole)
    assert "20 of the 20 that it paid for" in own
    assert "20 of the 20 that were requested of it" in own
    assert "| this run | 1 |" in own
    assert "| left | 2 |" in own
    assert "What b contributed" in (tmp_path / "report-b.html").read_text("utf-8")
    (tmp_path / "site.toml").write_text(Path(settings).read_text().replace('"b"', '"c"'))
    with pytest.raises(InvalidArgument, match="not of a federated fit with the site c"):
        site_part(post, tmp_path / "site.toml")


@pytest.mark.processes
def test_a_project_has_a_wheel_of_the_installed_version(tmp_path):
    folder = tmp_path / "study"
    assert main(["federated", "new", str(folder), "--site", "north"]) == 0
    (wheel,) = (folder / "software").glob("*.whl")
    target = tmp_path / "target"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(target), str(wheel)], check=True)
    shown = subprocess.run(
        [sys.executable, "-m", "tacit", "--version"],
        cwd=target,
        env={**os.environ, "PYTHONPATH": str(target)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == f"tacit {tacit.__version__}\n"
    source = Path(tacit.__file__).parent
    for path in source.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            copy = target / "tacit" / path.relative_to(source)
            assert copy.read_bytes() == path.read_bytes()
    pins = (folder / "software" / "constraints.txt").read_text().splitlines()
    assert f"numpy=={np.__version__}" in pins
    names = {line.partition("==")[0].lower() for line in pins}
    assert {"flwr", "jaxlib", "grpcio"} <= names  # also what is required by what is required
    assert not names & {"tacit-bayes", "pytest", "pymc"}  # whatever else is installed here


def test_files_are_where_the_docs_say(tmp_path):
    folder = tmp_path / "study"
    assert main(["federated", "new", str(folder), "--site", "north"]) == 0
    pages = [each.read_text("utf-8") for each in (DOCS, folder / "README.md")]
    for page in pages:
        named = set(re.findall(r"`(app/[\w/]+\.\w+)`", page))
        assert named == {"app/study_app/study.py", "app/study_app/schema.yaml"}
        assert all((folder / each).is_file() for each in named)


@pytest.mark.parametrize("name", ["", "a b", "../up", 'a"'])
def test_names_that_would_break_files_are_refused(tmp_path, capsys, name):
    assert main(["federated", "new", str(tmp_path / "x"), "--site", name]) == 2
    assert not (tmp_path / "x").exists()
    assert "letters" in capsys.readouterr().err


def test_nothing_is_overwritten(tmp_path, capsys):
    assert main(["federated", "new", str(tmp_path)]) == 2
    assert "exists" in capsys.readouterr().err
    (tmp_path / "key").touch()
    assert main(["federated", "identity", str(tmp_path / "key")]) == 2


def test_an_identity_is_for_its_owner_and_its_public_half_is_printed(tmp_path, capsys):
    file = tmp_path / "identity"
    assert main(["federated", "identity", str(file)]) == 0
    public = capsys.readouterr().out.strip()
    secret = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(file.read_text()))
    assert secret.public_key().public_bytes_raw().hex() == public
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_table_without_a_header_is_refused_without_its_first_row(tmp_path):
    folder = tmp_path / "study"
    assert main(["federated", "new", str(folder), "--site", "a", "--site", "b"]) == 0
    study = load_study(folder / "app" / "study_app" / "study.py")
    (tmp_path / "data.csv").write_text("71.5,0.25,1\n34.5,0.75,0\n")
    with pytest.raises(InvalidArgument, match="no column") as refused:
        study.read(tmp_path / "data.csv")
    assert "71.5" not in str(refused.value)


def test_a_check_says_what_is_in_order_and_charges_nothing(tmp_path, capsys):
    folder = tmp_path / "study"
    assert main(["federated", "new", str(folder), "--site", "a", "--site", "b"]) == 0
    settings = folder / "sites" / "a" / "site.toml"
    capsys.readouterr()
    assert main(["federated", "check", str(settings)]) == 1
    assert "NO  ledger" in capsys.readouterr().out
    assert main(["federated", "open", str(settings)]) == 0
    capsys.readouterr()
    assert main(["federated", "check", str(settings)]) == 0
    at_site = capsys.readouterr().out
    assert "ok  a round on a simulated row: an answer of 18 numbers" in at_site
    assert not Ledger(folder / "sites" / "a" / "budget.db").charges


@pytest.mark.slow
def test_checks_of_a_site_and_of_the_server_name_what_they_agree_on(tmp_path, capsys):
    folder = tmp_path / "study"
    assert main(["federated", "new", str(folder), "--site", "a", "--site", "b"]) == 0
    settings = folder / "sites" / "a" / "site.toml"
    assert main(["federated", "open", str(settings)]) == 0
    capsys.readouterr()
    assert main(["federated", "check", str(settings)]) == 0
    at_site = capsys.readouterr().out
    assert main(["federated", "check", str(folder / "app" / "study_app" / "study.py")]) == 0
    at_server = capsys.readouterr().out
    (digest,) = (line for line in at_server.splitlines() if "digest of all" in line)
    assert digest in at_site
    schema = folder / "sites" / "a" / "schema.yaml"
    schema.write_text(schema.read_text().replace("high: 100", "high: 101"))
    assert main(["federated", "check", str(settings)]) == 0
    assert digest not in capsys.readouterr().out


def test_keys_are_those_of_one_authority_and_secrets_are_for_their_owner(tmp_path, capsys):
    folder = tmp_path / "keys"
    command = ["federated", "keys", str(folder), "--site", "a", "--site", "b"]
    assert main([*command, "--address", "10.0.0.7"]) == 0
    authority = load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    server = load_pem_x509_certificate((folder / "server.crt").read_bytes())
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(SubjectAlternativeName).value
    assert [str(each) for each in names.get_values_for_type(IPAddress)] == ["10.0.0.7", "127.0.0.1"]
    for name in "ab":
        secret = load_ssh_private_key((folder / name).read_bytes(), None)
        public = load_ssh_public_key((folder / f"{name}.pub").read_bytes())
        assert secret.public_key() == public
        assert secret.curve.name == "secp384r1"
    for name in ("ca.key", "server.key", "a", "b"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600
    capsys.readouterr()
    assert main(command) == 2
    assert "never replaced" in capsys.readouterr().err


def test_keys_are_made_for_the_sites_of_the_project_and_for_its_containers(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(["federated", "keys"]) == 2
    assert "no sites/*/site.toml here" in capsys.readouterr().err
    assert main(["federated", "new", "study", "--site", "a", "--site", "b"]) == 0
    monkeypatch.chdir(tmp_path / "study")
    assert main(["federated", "keys"]) == 0
    assert {path.stem for path in Path("keys").glob("*.pub")} == {"a", "b"}
    server = load_pem_x509_certificate(Path("keys/server.crt").read_bytes())
    names = server.extensions.get_extension_for_class(SubjectAlternativeName).value
    assert names.get_values_for_type(DNSName) == ["superlink", "proxy"]
    assert [str(each) for each in names.get_values_for_type(IPAddress)] == ["127.0.0.1"]


def test_containers_have_files_that_exist_and_commands_that_are_understood(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["federated", "new", "study", "--site", "a", "--site", "b"]) == 0
    monkeypatch.chdir(tmp_path / "study")
    assert main(["federated", "keys"]) == 0
    composed = yaml.safe_load(Path("compose.yaml").read_text("utf-8"))
    services = composed["services"]
    named = {"superlink", "proxy", "register", "open", "study"}
    assert set(services) == named | {
        f"{kind}-{site}" for kind in ("guard", "node") for site in "ab"
    }
    check_services(composed, "./sites")
    # Nodes share a network with the proxy only, and nobody outside reaches anything else.
    on = {name: set(service.get("networks", ())) for name, service in services.items()}
    assert {name for name, networks in on.items() if "sites" in networks} == {
        "proxy",
        "node-a",
        "node-b",
    }
    assert on["node-a"] == {"sites"}
    assert composed["networks"]["server"] == {"internal": True}
    assert [name for name, service in services.items() if "ports" in service] == ["proxy"]
    for name in "ab":
        monkeypatch.chdir(tmp_path / "study" / "sites" / name)
        Path("keys").mkdir()
        for file in ("ca.crt", "node.key"):
            Path("keys", file).touch()
        own = yaml.safe_load(Path("compose.yaml").read_text("utf-8"))
        assert set(own["services"]) == {"guard", "node", "open", "check"}
        check_services(own, ".:")
        assert Path("Dockerfile").is_file()
        assert list(Path("software").glob("*.whl"))
    monkeypatch.chdir(tmp_path / "study")
    assert Path(".dockerignore").read_text().splitlines()[-2:] == ["*", "!software"]
    (wheel,) = Path("software").glob("*.whl")
    assert f"--constraint /software/constraints.txt '/software/{wheel.name}[federated]'" in (
        Path("Dockerfile").read_text("utf-8")
    )
    assert f"'software/{wheel.name}[federated]'" in Path("README.md").read_text("utf-8")


def test_compose_files_are_of_the_specification(tmp_path):
    """Its schema is part of check-jsonschema, which is not imported."""
    (folder,) = find_spec("check_jsonschema").submodule_search_locations
    vendored = Path(folder, "builtin_schemas", "vendor", "compose-spec.json")
    schema = json.loads(vendored.read_text("utf-8"))
    validator = jsonschema.validators.validator_for(schema)(schema)
    assert main(["federated", "new", str(tmp_path / "study"), "--site", "a"]) == 0
    files = [*(tmp_path / "study").rglob("compose.yaml")]
    assert len(files) == 2
    for file in files:
        composed = yaml.safe_load(file.read_text("utf-8"))
        validator.validate(composed)
        composed["services"]["open"]["comand"] = composed["services"]["open"].pop("command")
        assert not validator.is_valid(composed)


def test_the_base_image_is_one_with_a_digest(tmp_path, capsys):
    image = f"python:3.12-slim@sha256:{64 * '5'}"
    new = ["federated", "new", str(tmp_path / "study"), "--site", "a", "--base-image"]
    for wrong in ("python:3.12-slim", "python@sha256:55", image + "5"):
        assert main([*new, wrong]) == 2
        assert "a tag may change" in capsys.readouterr().err
    assert main([*new, image]) == 0
    for home in (tmp_path / "study", tmp_path / "study" / "sites" / "a"):
        assert (home / ".env").read_text("utf-8") == f"BASE_IMAGE={image}\n"
        dockerfile = (home / "Dockerfile").read_text("utf-8")
        assert "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\n" in dockerfile
        # Without a digest nothing is built.
        assert "BASE_IMAGE: ${BASE_IMAGE:?" in (home / "compose.yaml").read_text("utf-8")


def check_services(composed, rows):
    """What a consistent compose file has: files, volumes, networks and secrets that exist, and commands."""
    services = composed["services"]
    for name, service in services.items():
        for other, how in service.get("depends_on", {}).items():
            healthy = how["condition"] == "service_healthy"
            assert ("healthcheck" in services[other]) >= healthy
        for volume in service["volumes"]:
            source, target = volume.split(":")[:2]
            assert Path(source).exists() if source[0] == "." else source in composed["volumes"]
            assert target.startswith("/")
        assert set(service.get("networks", ())) <= set(composed.get("networks", ()))
        for secret in service.get("secrets", ()):
            assert Path(composed["secrets"][secret["source"]]["file"]).is_file()
        # Secrets come as such, not as volumes.
        assert not any(re.search("[.]key|keys/[ab]:", each) for each in service["volumes"])
        understood(service["command"])
        # Whoever has rows has no network, and nobody else has rows.
        has_rows = any(volume.startswith(rows) for volume in service["volumes"])
        assert has_rows == (service.get("network_mode") == "none"), name
    assert {each["restart"] for each in services.values()} == {"unless-stopped", "no"}


def understood(command):
    """Refuses a command whose program does not know its options. Nothing is started."""
    program, *arguments = command
    if program == "flower-superlink":
        flower_superlink = pytest.importorskip("flwr.superlink.cli.flower_superlink")
        flower_superlink._parse_args_run_superlink().parse_args(arguments)
    elif program == "tacit":
        known = get_group(federated.app).commands[arguments[1]]
        # Files of the container are not here, and some must exist.
        here = [re.sub("^(--[^=]+=)?/.*", rf"\g<1>{__file__}", each) for each in arguments[2:]]
        known.make_context(arguments[1], here)
    else:
        assert program in {"flwr", "sh"}, program


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_units_of_systemd_are_valid(tmp_path):
    assert main(["federated", "new", str(tmp_path / "study"), "--site", "a"]) == 0
    folder, site = tmp_path / "study" / "systemd", tmp_path / "study" / "sites" / "a" / "systemd"
    for file in ("sysusers.conf", "tmpfiles.conf"):
        assert (folder / file).read_text() == (site / file).read_text()
    users = subprocess.run(
        [shutil.which("systemd-sysusers"), "--dry-run", folder / "sysusers.conf"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert users.returncode == 0, users.stderr
    made = set(re.findall("^u (.*?) ", (folder / "sysusers.conf").read_text(), re.MULTILINE))
    units = [*sorted(folder.glob("*.service")), *sorted(site.glob("*.service"))]
    names = [unit.name.removeprefix("tacit-") for unit in units]
    assert names == ["proxy.service", "superlink.service", "guard@.service", "node@.service"]
    assert {re.search("User=(.*)", unit.read_text())[1] for unit in units} == made
    # Programs at the server find the SuperLink of the unit, and trust the authority that it trusts.
    there = tomllib.loads((folder / "config.toml").read_text())["superlink"]["study"]
    superlink = (folder / "tacit-superlink.service").read_text()
    host, port = re.search(r"--host (\S+) --port (\S+)", superlink).groups()
    assert there["address"] == f"{host}:{port}"
    assert f"--ssl-ca-certfile {there['root-certificates']} " in superlink
    for unit in units:  # programs are where this Python is
        unit.write_text(
            unit.read_text().replace("/opt/tacit/bin", str(Path(sys.executable).parent))
        )
    done = subprocess.run(
        [shutil.which("systemd-analyze"), "verify", *units],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_script_of_a_trial_is_one_that_a_shell_can_read(tmp_path):
    folder = tmp_path / "study"
    assert main(["federated", "new", str(folder), "--site", "a", "--site", "b"]) == 0
    script = (folder / "trial.sh").read_text()
    assert "for site in a b; do" in script
    subprocess.run(["/bin/sh", "-n", folder / "trial.sh"], check=True)


# Programs that a trial starts, without their work.
STUBS = {
    "flower-superlink": "echo Uvicorn running; exec sleep 60",
    "tacit": 'echo "tacit $*" >> said',
    "flwr": '[ -z "$WRITES" ] || { sleep 0.1; : > "$WRITES"; }',
}


@pytest.mark.parametrize(
    ("writes", "code", "said", "reports"),
    [
        ("posterior.nc", 0, "", 1),
        ("posterior.json", 0, "Result: posterior.json", 0),  # of a plan
        ("", 1, "The run failed", 0),
    ],
)
def test_a_trial_ends_as_its_run(tmp_path, writes, code, said, reports):
    folder, programs = tmp_path / "study", tmp_path / "bin"
    assert main(["federated", "new", str(folder), "--site", "a"]) == 0
    for made in (programs, folder / "keys"):
        made.mkdir()
    for name, text in STUBS.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o700)
    (folder / "nodes").write_text("a=1\n")
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/sh", folder / "trial.sh"],
        env={**os.environ, "PATH": path, "WRITES": writes},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert said in done.stdout
    assert (folder / "said").read_text().count("tacit report posterior.nc") == reports


def test_a_forecast_reads_the_study_alone(tmp_path, capsys):
    folder = tmp_path / "study"
    assert main(["federated", "new", str(folder), "--site", "a", "--site", "b"]) == 0
    study = str(folder / "app" / "study_app" / "study.py")
    assert main(["federated", "forecast", study, "--size", "1000"]) == 0
    said = capsys.readouterr().out
    assert "Noise at each site, 2 sites." in said
    assert "Noise that is split" in said
    assert main(["federated", "forecast", study, "--size", "10"]) == 1
    assert "hopeless" in capsys.readouterr().out
