"""Registers the keys of nodes at the SuperLink, and writes down which node each site is."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tacit.errors import InvalidArgument, MissingPackage, TacitError


def register_nodes(keys: Path, sites: tuple[str, ...], nodes: Path, superlink: str) -> str:
    """Registers the nodes of sites that are not in a file yet, and adds their numbers to it.

    Args:
        keys: The folder with their public keys.
        sites: Names of the sites; if there are none, all with a public key.
        nodes: The file, as in ``north=123 south=456``.
        superlink: The name of the SuperLink in Flower's configuration.

    Returns:
        The numbers of all sites in the file.

    Raises:
        InvalidArgument: If a key is missing.
        TacitError: If Flower refuses a key. Those that were registered before are in the file.
    """
    names = sites or tuple(path.stem for path in sorted(keys.glob("*.pub")))
    missing = [name for name in names if not (keys / f"{name}.pub").is_file()]
    if missing or not names:
        raise InvalidArgument(
            f"{keys} has no public key of {', '.join(missing) or 'a site'}: SITE.pub, from tacit federated keys or "
            "from the site itself."
        )
    lines = nodes.read_text("utf-8").split() if nodes.is_file() else []
    known = {line.partition("=")[0] for line in lines}
    for name in names:
        if name not in known:
            lines.append(f"{name}={_register(keys / f'{name}.pub', superlink)}")
            nodes.write_text(f"{' '.join(lines)}\n", "utf-8")  # also if the next one fails
    return " ".join(lines)


def _register(key: Path, superlink: str) -> int:
    """The number that the SuperLink gives to the node with a public key."""
    beside = Path(sys.executable).parent
    program = shutil.which("flwr", path=os.pathsep.join([str(beside), os.environ.get("PATH", "")]))
    if program is None:
        raise MissingPackage("flwr", "tacit federated register")
    command = [program, "supernode", "register", os.fspath(key), superlink, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    try:
        said = json.loads(done.stdout[done.stdout.index("{") :])
        return int(said["node-id"])
    except (ValueError, KeyError, TypeError):
        raise TacitError(
            f"Flower did not register {key}: {(done.stderr or done.stdout).strip()[-500:]} If the key is registered "
            "already, its number is in the file of an earlier call; unregister it with flwr otherwise."
        ) from None
