"""``tacit federated``: a project folder for a study, and what a site opens, signs and answers with."""

import os
from pathlib import Path
from typing import Annotated

import typer

from tacit.errors import InvalidArgument

app = typer.Typer(
    help="Several sites, one posterior, no row leaves a site.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(help="The folder to make; it must not exist.")],
    site: Annotated[
        list[str] | None, typer.Option(help="A site's name; give one for each site.")
    ] = None,
    run: Annotated[str, typer.Option(help="The name of the first run.")] = "run-1",
) -> None:
    """Writes a project that Flower runs, a folder for each site, and a README with commands."""
    from tacit.interfaces import project

    project.write(folder, tuple(site or ("north", "south", "west")), run)
    typer.echo(f"Wrote {folder}. Start with {folder / 'README.md'}.")


@app.command()
def identity(
    file: Annotated[Path, typer.Argument(help="The file to make, for the site's eyes only.")],
) -> None:
    """Makes the key that a site signs with, and prints the public half for all rosters."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    made = Ed25519PrivateKey.generate()
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise InvalidArgument(f"{file} cannot be made: {error.strerror}.") from error
    with os.fdopen(handle, "w", encoding="ascii") as opened:
        opened.write(made.private_bytes_raw().hex())
    typer.echo(made.public_key().public_bytes_raw().hex())


@app.command("open")
def open_(
    settings: Annotated[Path, typer.Argument(help="The site's settings, site.toml.")],
) -> None:
    """Opens a site's ledger, once, with the budget of its settings; a site answers by it alone."""
    from tacit.federated.deploy import SiteSettings, open_ledger

    ledger = open_ledger(SiteSettings.from_file(settings))
    typer.echo(f"Opened {ledger.path}: {ledger.total}, for every {ledger.unit}.")


@app.command()
def guard(
    settings: Annotated[Path, typer.Argument(help="The site's settings, site.toml.")],
    socket: Annotated[
        Path, typer.Argument(help="Where to listen: a path that the node can reach.")
    ],
) -> None:
    """Answers for a site, as a user other than the node's: code that is sent then reaches no rows."""
    from tacit.federated.deploy import SiteSettings
    from tacit.federated.flower import answered_once
    from tacit.federated.guard import Guard
    from tacit.federated.told import guarded

    held = SiteSettings.from_file(settings)
    with Guard(socket, lambda fields: guarded(lambda: answered_once(held, fields))) as server:
        try:
            typer.echo(f"{held.name} answers at {socket}.")
            server.serve_forever()
        finally:
            socket.unlink(missing_ok=True)
