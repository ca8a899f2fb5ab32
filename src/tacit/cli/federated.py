"""The commands of ``tacit federated``: create a project, and run a site.

What a command needs is imported when it is called: most load JAX, and a node must not.
"""

import os
from collections.abc import Iterable
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
    base_image: Annotated[
        str | None,
        typer.Option(
            help="Base image of containers by its digest, python:...-slim@sha256:...; by default it is looked up "
            "later, by the first command in compose.yaml."
        ),
    ] = None,
) -> None:
    """Create a Flower project, with a folder for each site and a README with the commands."""
    from tacit.cli import project

    project.write_project(folder, tuple(site or ("north", "south", "west")), run, base_image)
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
            "superlink and proxy, the names in compose.yaml."
        ),
    ] = None,
    days: Annotated[int, typer.Option(help="For how long certificates are valid.", min=1)] = 365,
) -> None:
    """Create a certificate authority, the server's certificate, and a key for every node.

    Each site gets ca.crt and its own key, the server the rest. For a real study, let each site create its
    own key instead, and send its public half.
    """
    from tacit.cli.federated_tools import project_sites, write_keys

    # The proxy and flwr reach the SuperLink at the first of these, wherever the sites do.
    addresses = tuple(dict.fromkeys([*(address or ()), "127.0.0.1", "superlink", "proxy"]))
    write_keys(folder, addresses, tuple(site or project_sites()), days)
    typer.echo(
        f"Wrote {folder}. Keep ca.key and server.key secret; each site gets ca.crt and its own key."
    )


@app.command()
def proxy(
    superlink: Annotated[
        str, typer.Option(help="Address of the SuperLink, which sites cannot reach, host:port.")
    ] = "127.0.0.1:8000",
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "0.0.0.0",  # noqa: S104 (sites must reach it)
    port: Annotated[int, typer.Option(help="Port to listen at.")] = 8443,
    keys: Annotated[
        Path, typer.Option(help="Folder with ca.crt, server.crt and server.key.", exists=True)
    ] = Path("keys"),
) -> None:
    """Let sites reach the calls of a node at the server, and nothing else.

    The SuperLink has one port, at which anybody may start runs and register nodes. Sites get the address of
    this proxy instead.
    """
    try:
        from tacit.federated.proxy import run_proxy
    except ModuleNotFoundError:
        raise MissingPackage("flwr", "tacit federated proxy") from None

    run_proxy(
        superlink,
        host=host,
        port=port,
        certificate=keys / "server.crt",
        key=keys / "server.key",
        root_certificates=keys / "ca.crt",
    )


@app.command()
def register(
    keys: Annotated[
        Path, typer.Argument(help="Folder with the public keys of nodes, SITE.pub.")
    ] = Path("keys"),
    site: Annotated[
        list[str] | None,
        typer.Option(help="Name of a site; repeatable. By default all that have a public key."),
    ] = None,
    nodes: Annotated[Path, typer.Option(help="File of the numbers of nodes.")] = Path("nodes"),
    superlink: Annotated[
        str, typer.Option(help="Name of the SuperLink in Flower's configuration.")
    ] = "study",
) -> None:
    """Tell the SuperLink the public keys of nodes, and write down which number each site has.

    The run takes only these nodes for the sites: --run-config "nodes='$(cat nodes)'". Sites that are in the
    file already are left as they are.
    """
    from tacit.cli.register import register_nodes

    typer.echo(register_nodes(keys, tuple(site or ()), nodes, superlink))


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
    """Show what a site or the server has agreed to, and try a round on a simulated row.

    Compare the digest with the other sites and the server. Nothing is charged.
    """
    from tacit.cli.federated_tools import run_checks

    if not _print_checks(run_checks(path)):
        raise typer.Exit(1)


@app.command()
def forecast(
    study: Annotated[Path, typer.Argument(help="The file of the study, study.py.")],
    size: Annotated[
        int, typer.Option(help="About how many rows, or people, all sites have together.", min=1)
    ],
) -> None:
    """Forecast how precise a study will be, with noise at each site and with noise that is split.

    No data are read, and nothing is charged. It ends with 1 if the study as it is defined would be hopeless.
    """
    from tacit.api.federated import forecast_study
    from tacit.federated.deploy import load_study

    defined = load_study(study)
    found, widths = forecast_study(defined, size), []
    for noise, called in (("site", "Noise at each site"), ("split", "Noise that is split")):
        try:
            each = forecast_study(defined, size, noise=noise)  # type: ignore[arg-type]
        except InvalidArgument as error:
            typer.echo(f"{called}: {error}")
        else:
            widths.append(sum(line.spread for line in each.lines))
            text = "\n".join([str(each), *each.warnings()])
            typer.echo(f"{called}, {len(defined.sites)} sites.\n{text}\n")
    if len(widths) > 1:
        ratio = widths[0] / widths[1]
        typer.echo(
            f"With noise at each site intervals are {ratio:.1f} times as wide as if it is split."
        )
    if found.warnings():
        raise typer.Exit(1)


def _print_checks(lines: Iterable[tuple[str, str, bool]]) -> bool:
    """Prints the lines of a check; whether all is in order."""
    good = True
    for name, said, fine in lines:
        typer.echo(f"{'ok ' if fine else 'NO '} {name}: {said}")
        good &= fine
    return good


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
    from tacit.federated.deploy import WarmSite, site_checks
    from tacit.federated.guard import Guard, answer_or_error
    from tacit.federated.settings import SiteSettings

    held = SiteSettings.from_file(settings)
    site = WarmSite(held)

    def ready() -> dict[str, object]:
        _print_checks(site_checks(site.open()))
        return site.prepare()

    with Guard(socket, lambda fields: answer_or_error(lambda: site.answer(fields))) as server:
        try:
            typer.echo(f"{held.name} is listening at {socket}.")
            answer_or_error(ready)  # messages wait; what is wrong is said again to each
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
        int, typer.Option(help="Port of the node on loopback; by default any that is free.")
    ] = 0,
) -> None:
    """Connect a site's guard to the server: Flower's SuperNode, which passes messages on.

    It ends when the SuperNode ends; let a service manager start it again.
    """
    from tacit.federated.node import find_program, free_port, run_node, supernode_command

    if find_program("flower-supernode") is None:
        raise MissingPackage("flwr", "tacit federated node")
    port = port or free_port()
    command = supernode_command(
        socket, superlink=superlink, root_certificates=root_certificates, key=key, port=port
    )
    raise typer.Exit(run_node(command))


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
    from tacit.inference.held_out import ScoreRange
    from tacit.results.posterior import Posterior

    own = ScoreRange(low=low, high=high)
    typer.echo(held_out_score(settings, Posterior.load(posterior), Budget(epsilon, delta), own))
