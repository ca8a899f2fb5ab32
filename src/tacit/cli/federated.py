"""The commands of ``tacit federated``: create a project, and run a site.

What a command needs is imported when it is called: most load JAX, and a node must not.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from tacit.errors import InvalidArgument, MissingPackage

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
    from tacit.cli import project

    project.write_project(folder, tuple(site or ("north", "south", "west")), run)
    typer.echo(
        f"Wrote {folder}; start with {folder / 'README.md'}. To try it on this machine: cd {folder}, "
        "tacit federated keys, sh trial.sh."
    )


@app.command()
def identity(
    file: Annotated[Path, typer.Argument(help="File to create; keep it secret.")],
) -> None:
    """Create the signing key of a site and print its public key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

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
    folder: Annotated[Path, typer.Argument(help="Folder to create; must not exist.")] = Path(
        "keys"
    ),
    site: Annotated[
        list[str] | None,
        typer.Option(help="Name of a site; repeatable. By default the folders in sites/."),
    ] = None,
    address: Annotated[
        list[str] | None,
        typer.Option(
            help="Address or name at which sites reach the server; repeatable. By default 127.0.0.1, and "
            "superlink, its name in compose.yaml."
        ),
    ] = None,
    days: Annotated[int, typer.Option(help="For how long certificates are valid.", min=1)] = 365,
) -> None:
    """Create a certificate authority, the server's certificate, and a key for every node.

    Each site gets ca.crt and its own key, the server the rest. For a real study, let each site create its
    own key instead, and send its public half.
    """
    from tacit.cli.federated_tools import project_sites, write_keys

    addresses = tuple(address or ("127.0.0.1", "superlink"))
    write_keys(folder, addresses, tuple(site or project_sites()), days)
    typer.echo(
        f"Wrote {folder}. Keep ca.key and server.key secret; each site gets ca.crt and its own key."
    )


@app.command("open")
def open_(
    settings: Annotated[
        list[Path], typer.Argument(help="Settings of the site, site.toml; of several, for a trial.")
    ],
) -> None:
    """Create the ledger of a site, with the budget of its settings. Do this once."""
    from tacit.federated.deploy import open_ledger
    from tacit.federated.settings import SiteSettings

    for each in settings:
        ledger = open_ledger(SiteSettings.from_file(each))
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
    from tacit.cli.federated_tools import run_checks

    lines = run_checks(path)
    for name, said, good in lines:
        typer.echo(f"{'ok ' if good else 'NO '} {name}: {said}")
    if not all(good for _, _, good in lines):
        raise typer.Exit(1)


@app.command()
def status(
    path: Annotated[
        Path,
        typer.Argument(
            help="The server's state, a site's site.toml, or a folder with some of them."
        ),
    ] = Path(),
) -> None:
    """Show how far a run is: rounds, who answered, the time left, and what each site has spent."""
    from tacit.cli import federated_status

    typer.echo("\n\n".join(federated_status.status(path)))


@app.command()
def guard(
    settings: Annotated[Path, typer.Argument(help="Settings of the site, site.toml.")],
    socket: Annotated[
        Path, typer.Argument(help="Socket to listen on: a path that the node can reach.")
    ],
) -> None:
    """Answer for a site as a separate user, so that code shipped to the node cannot read rows."""
    from tacit.federated.deploy import WarmSite
    from tacit.federated.guard import Guard, answer_or_error
    from tacit.federated.settings import SiteSettings

    held = SiteSettings.from_file(settings)
    site = WarmSite(held)
    with Guard(socket, lambda fields: answer_or_error(lambda: site.answer(fields))) as server:
        try:
            typer.echo(f"{held.name} is listening at {socket}.")
            answer_or_error(
                site.prepare
            )  # messages wait; what is wrong is in the log, and is said again to each
            server.serve_forever()
        finally:
            socket.unlink(missing_ok=True)


@app.command()
def node(
    socket: Annotated[Path, typer.Argument(help="Socket of the site's guard.")],
    superlink: Annotated[str, typer.Option(help="Address of the SuperLink, host:port.")],
    root_certificates: Annotated[
        Path, typer.Option(help="Certificate of the study's authority, ca.crt.", exists=True)
    ],
    key: Annotated[Path, typer.Option(help="Private key of the node.", exists=True)],
    port: Annotated[
        int, typer.Option(help="Port of the node on loopback; each node of a machine has its own.")
    ] = 9094,
) -> None:
    """Connect a site's guard to the server: Flower's SuperNode, which is kept warm between messages.

    It ends when the SuperNode ends; let a service manager start it again.
    """
    try:
        from tacit.federated.flower import run_node, supernode_command
    except ModuleNotFoundError:
        raise MissingPackage("flwr", "tacit federated node") from None

    command = supernode_command(
        socket, superlink=superlink, root_certificates=root_certificates, key=key, port=port
    )
    raise typer.Exit(run_node(command, port))


@app.command()
def score(
    settings: Annotated[
        Path, typer.Argument(help="Settings of the site, site.toml, with held_out.")
    ],
    posterior: Annotated[Path, typer.Argument(help="The result of the study, posterior.nc.")],
    epsilon: Annotated[float, typer.Option(help="Budget of the score: epsilon.")],
    delta: Annotated[float, typer.Option(help="Budget of the score: delta.")],
    low: Annotated[float, typer.Option(help="Log densities below this count as this.")] = -5.0,
    high: Annotated[float, typer.Option(help="Log densities above this count as this.")] = 0.0,
) -> None:
    """Release how well the result predicts a site's held-out rows, and charge its ledger.

    Every call is another release, with its own charge.
    """
    from tacit.accounting import Budget
    from tacit.api.federated import held_out_score
    from tacit.inference.held_out import ScoreRelease
    from tacit.results.posterior import Posterior

    release = ScoreRelease(low=low, high=high)
    typer.echo(held_out_score(settings, Posterior.load(posterior), Budget(epsilon, delta), release))
