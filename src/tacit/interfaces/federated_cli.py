"""The commands of ``tacit federated``: create a project, and run a site."""

import os
from pathlib import Path
from typing import Annotated

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.errors import InvalidArgument
from tacit.federated.answers import WarmSite
from tacit.federated.deploy import SiteSettings, open_ledger
from tacit.federated.guard import Guard
from tacit.federated.told import guarded
from tacit.interfaces import project
from tacit.interfaces.federated_check import checked
from tacit.interfaces.federated_keys import write_keys

app = typer.Typer(
    help="Fit one posterior to the data of several sites.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(help="Folder to create; must not exist.")],
    site: Annotated[
        list[str] | None, typer.Option(help="Name of a site; repeat for each site.")
    ] = None,
    run: Annotated[str, typer.Option(help="Name of the first run.")] = "run-1",
) -> None:
    """Create a Flower project, with a folder for each site and a README with the commands."""
    project.write(folder, tuple(site or ("north", "south", "west")), run)
    typer.echo(f"Wrote {folder}. Start with {folder / 'README.md'}.")


@app.command()
def identity(
    file: Annotated[Path, typer.Argument(help="File to create; keep it secret.")],
) -> None:
    """Create the signing key of a site and print its public key."""
    made = Ed25519PrivateKey.generate()
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise InvalidArgument(f"{file} cannot be created: {error.strerror}.") from error
    with os.fdopen(handle, "w", encoding="ascii") as opened:
        opened.write(made.private_bytes_raw().hex())
    typer.echo(made.public_key().public_bytes_raw().hex())


@app.command()
def keys(
    folder: Annotated[Path, typer.Argument(help="Folder to create; must not exist.")],
    site: Annotated[list[str], typer.Option(help="Name of a site; repeat for each site.")],
    address: Annotated[
        str, typer.Option(help="Address or name at which sites reach the server.")
    ] = "127.0.0.1",
    days: Annotated[int, typer.Option(help="For how long certificates are valid.", min=1)] = 365,
) -> None:
    """Create a certificate authority, the server's certificate, and a key for every node.

    Each site gets ca.crt and its own key, the server the rest. For a real study, let each site create its
    own key instead, and send its public half.
    """
    write_keys(folder, address, tuple(site), days)
    typer.echo(
        f"Wrote {folder}. Keep ca.key and server.key secret; each site gets ca.crt and its own key."
    )


@app.command("open")
def open_(
    settings: Annotated[Path, typer.Argument(help="Settings of the site, site.toml.")],
) -> None:
    """Create the ledger of a site, with the budget of its settings. Do this once."""
    ledger = open_ledger(SiteSettings.from_file(settings))
    typer.echo(f"Created {ledger.path}: {ledger.total} in total for every {ledger.unit}.")


@app.command()
def check(
    path: Annotated[
        Path, typer.Argument(help="Settings of a site, site.toml; at the server, study.py.")
    ],
) -> None:
    """Show what a site or the server has agreed to, and try a round on a made-up row.

    Compare the digest with the other sites and the server. Nothing is charged.
    """
    lines = checked(path)
    for name, said, good in lines:
        typer.echo(f"{'ok ' if good else 'NO '} {name}: {said}")
    if not all(good for _, _, good in lines):
        raise typer.Exit(1)


@app.command()
def guard(
    settings: Annotated[Path, typer.Argument(help="Settings of the site, site.toml.")],
    socket: Annotated[
        Path, typer.Argument(help="Socket to listen on: a path that the node can reach.")
    ],
) -> None:
    """Answer for a site as a separate user, so that code shipped to the node cannot read rows."""
    held = SiteSettings.from_file(settings)
    site = WarmSite(held)
    with Guard(socket, lambda fields: guarded(lambda: site.answered(fields))) as server:
        try:
            typer.echo(f"{held.name} is listening at {socket}.")
            server.serve_forever()
        finally:
            socket.unlink(missing_ok=True)
