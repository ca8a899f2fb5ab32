"""Writes the project folder of a federated study, from the templates beside this file."""

import csv
import json
import re
import shutil
import sys
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path
from string import Template
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np

import tacit
from tacit.errors import DISTRIBUTION, InvalidArgument

_PACKAGE, _EXAMPLE_ROWS = "study_app", 500
_APP_FILES = ("study.py", "schema.yaml", "server_app.py", "client_app.py")
# Files at the server and at each site, and the templates that they are made from.
_SHARED_FILES = {
    "Dockerfile": "Dockerfile",
    ".dockerignore": "dockerignore",
    "systemd/sysusers.conf": "sysusers",
    "systemd/tmpfiles.conf": "tmpfiles",
}
_FILES = _SHARED_FILES | {
    "README.md": "README.md",
    "trial.sh": "trial.sh",
    "app/pyproject.toml": "pyproject.toml",
    "compose.yaml": "compose.yaml",
    "compose/config.toml": "config.toml",
    "systemd/config.toml": "superlink_config.toml",
    "systemd/tacit-superlink.service": "superlink.service",
    "systemd/tacit-proxy.service": "proxy.service",
}
_SITE_FILES = _SHARED_FILES | {
    "site.toml": "site.toml",
    "study.py": "study.py",
    "schema.yaml": "schema.yaml",
    "compose.yaml": "compose_own.yaml",
    "systemd/tacit-guard@.service": "guard.service",
    "systemd/tacit-node@.service": "node.service",
}


def write_project(
    folder: Path, sites: tuple[str, ...], run: str, base_image: str | None = None
) -> None:
    """Writes a project folder.

    Args:
        folder: The folder to create.
        sites: Names of the sites.
        run: Name of the first run.
        base_image: The base image of containers with its digest, if it is known.

    Raises:
        InvalidArgument: If the folder exists, or a name is not valid.
    """
    if base_image is not None and not re.fullmatch(r"\S+@sha256:[0-9a-f]{64}", base_image):
        raise InvalidArgument(
            "The base image must have a digest, as in python:3.12-slim@sha256:... (64 digits): a tag may change. "
            f"Look it up with docker buildx imagetools inspect {default_base_image()}."
        )
    if folder.exists():
        raise InvalidArgument(f"{folder} exists; choose a folder that does not.")
    if len(set(sites)) != len(sites) or not all(
        re.fullmatch(r"[\w-]+", name) for name in (*sites, run)
    ):
        raise InvalidArgument(
            "Names of sites and runs may have letters, digits, - and _; sites need different names."
        )
    names = f"[{', '.join(json.dumps(name) for name in sites)}]"
    values = {
        "package": _PACKAGE,
        "sites": names,
        "run": run,
        "wheel": _write_software(folder / "software"),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        **_site_values(sites),
    }
    for path, template in _FILES.items():
        _write_file(folder / path, template, values)
    (folder / "result").mkdir()
    (folder / "app" / _PACKAGE).mkdir()
    (folder / "app" / _PACKAGE / "__init__.py").write_text('"""The study."""\n', "utf-8")
    for name in _APP_FILES:
        _write_file(folder / "app" / _PACKAGE / name, name, values)
    for number, site in enumerate(sites):
        home = folder / "sites" / site
        for path, template in _SITE_FILES.items():
            _write_file(home / path, template, {**values, "name": site})
        shutil.copytree(folder / "software", home / "software")
        _write_data(home / "data.csv", number)
    if base_image is not None:
        for home in (folder, *(folder / "sites" / site for site in sites)):
            (home / ".env").write_text(f"BASE_IMAGE={base_image}\n", "utf-8")


def default_base_image() -> str:
    """The tag of the base image of containers. Its digest is not known here."""
    return f"python:{sys.version_info.major}.{sys.version_info.minor}-slim"


def _write_software(folder: Path) -> str:
    """Writes a wheel of the installed Tacit, and the versions of what it requires here.

    All sites and the server install these files: they must run one version, and it need not be one
    that a package index has.

    Args:
        folder: The folder to create.

    Returns:
        The file name of the wheel.
    """
    folder.mkdir(parents=True)
    installed, home = distribution(DISTRIBUTION), Path(tacit.__file__).parent
    project = f"{DISTRIBUTION.replace('-', '_')}-{tacit.__version__}"
    contents = {
        f"tacit/{path.relative_to(home).as_posix()}": path.read_bytes()
        for path in sorted(home.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    for name in ("METADATA", "WHEEL", "entry_points.txt", "licenses/LICENSE"):
        contents[f"{project}.dist-info/{name}"] = (installed.read_text(name) or "").encode()
    record = f"{project}.dist-info/RECORD"
    lines = [
        f"{path},sha256={urlsafe_b64encode(sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for path, data in contents.items()
    ]
    contents[record] = "".join([*lines, f"{record},,\n"]).encode()
    wheel = f"{project}-py3-none-any.whl"
    with ZipFile(folder / wheel, "w", ZIP_DEFLATED) as archive:
        for path, data in contents.items():
            archive.writestr(path, data)
    versions = _requirements(DISTRIBUTION, "federated", {})
    pins = "".join(f"{name}=={version}\n" for name, version in sorted(versions.items()))
    (folder / "constraints.txt").write_text(pins, "utf-8")
    return wheel


def _requirements(name: str, extras: str, found: dict[str, str]) -> dict[str, str]:
    """Collects the installed version of everything that a distribution with some extras requires."""
    for each in distribution(name).requires or ():
        needed = re.match(r"([\w.-]+)\s*(\[.*?\])?", each)
        asked = re.search(r"extra == ['\"]([\w-]+)", each)
        if not needed or (asked and asked[1] not in extras) or needed[1] in found:
            continue
        with suppress(PackageNotFoundError):  # what another system or Python needs
            found[needed[1]] = distribution(needed[1]).version.partition("+")[0]
            _requirements(needed[1], needed[2] or "", found)
    return found


def _site_values(sites: tuple[str, ...]) -> dict[str, str]:
    """The names of sites as a shell and Docker Compose take them."""
    services = [_render_template("compose_site.yaml", {"name": name}) for name in sites]
    return {
        "site_names": " ".join(sites),
        "key_volumes": "\n".join(
            f"      - ./keys/{name}.pub:/keys/{name}.pub:ro" for name in sites
        ),
        "site_services": "".join(services).rstrip("\n") + "\n",
        "all_settings": ", ".join(f"/sites/{name}/site.toml" for name in sites),
        "site_secrets": "\n".join(f"  key_{name}:\n    file: ./keys/{name}" for name in sites),
        "site_volumes": "\n".join(f"  sockets-{name}:" for name in sites),
    }


def _render_template(template: str, values: Mapping[str, str]) -> str:
    """The text of a template with its values."""
    text = files(__package__).joinpath(f"{template}.txt").read_text("utf-8")
    return Template(text).substitute(values)


def _write_file(path: Path, template: str, values: Mapping[str, str]) -> None:
    """Writes one file from its template."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_render_template(template, values), "utf-8")


def _write_data(path: Path, number: int) -> None:
    """Writes simulated rows, so that the project can be tried out."""
    rng = np.random.default_rng(number)
    age, dose = rng.integers(18, 100, _EXAMPLE_ROWS), rng.uniform(0, 50, _EXAMPLE_ROWS).round(1)
    logit = -0.5 + (age - 59) / 41 - (dose - 25) / 25
    readmitted = (rng.uniform(size=_EXAMPLE_ROWS) < 1 / (1 + np.exp(-logit))).astype(int)
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(["age", "dose", "readmitted"])
        lines.writerows(zip(age.tolist(), dose.tolist(), readmitted.tolist(), strict=True))
