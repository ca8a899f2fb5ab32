"""Registers the keys of nodes at the SuperLink, and writes down which node each site is."""

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tacit.errors import InvalidArgument, MissingPackage, TacitError
from tacit.federated.node import find_program, flower_environment

_AT_ONCE = 4  # each is a program that imports Flower


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
    program = find_program("flwr")
    if program is None:
        raise MissingPackage("flwr", "tacit federated register")
    lines = nodes.read_text("utf-8").split() if nodes.is_file() else []
    known = {line.partition("=")[0] for line in lines}
    new = [name for name in names if name not in known]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        asked = [
            threads.submit(_register, program, keys / f"{name}.pub", superlink) for name in new
        ]
        failed: TacitError | None = None
        for name, answer in zip(new, asked, strict=True):
            try:
                lines.append(f"{name}={answer.result()}")
            except TacitError as error:
                failed = failed or error
            else:
                nodes.write_text(f"{' '.join(lines)}\n", "utf-8")  # also if another one fails
    if failed:
        raise failed
    return " ".join(lines)


def _register(program: str, key: Path, superlink: str) -> int:
    """The number that the SuperLink gives to the node with a public key."""
    command = [program, "supernode", "register", os.fspath(key), superlink, "--format", "json"]
    done = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=False, env=flower_environment()
    )
    try:
        said = json.loads(done.stdout[done.stdout.index("{") :])
        return int(said["node-id"])
    except (ValueError, KeyError, TypeError):
        raise TacitError(
            f"Flower did not register {key}: {(done.stderr or done.stdout).strip()[-500:]} If the key is registered "
            "already, its number is in the file of an earlier call; unregister it with flwr otherwise."
        ) from None
