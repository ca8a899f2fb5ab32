"""The ServerApp: the server's end of a Flower run."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from tacit.errors import InvalidArgument, TacitError
from tacit.federated.deploy import Study
from tacit.federated.flower.grid import FlowerTransport
from tacit.federated.server import AnyServer, run_schedule
from tacit.federated.state import RunStatus, ServerStateFile

_LOG = logging.getLogger(__name__)


def serve(
    grid: Grid,
    study: Study,
    *,
    timeout: float,
    patience: float,
    state: Path | None = None,
    nodes: Mapping[str, int] | None = None,
    roaming: bool = False,
) -> AnyServer:
    """Runs a study to its end.

    A server that died continues from its file ``state``. Without the file, sites repeat their answers and
    the server gets back to where it was. If the server adds noise of its own it cannot, and the study
    needs a new run.

    Args:
        grid: The grid of the ServerApp.
        study: The study.
        timeout: See `FlowerTransport`.
        patience: See `FlowerTransport`.
        state: File in which the server keeps what it received.
        nodes: See `FlowerTransport`.
        roaming: See `FlowerTransport`.

    Returns:
        The server at the end of the run.
    """
    server = study.server()
    folds = None if state is None else ServerStateFile(state, f"{study.run}: {study.about}")
    transport = FlowerTransport(
        grid,
        study.sites,
        agreement=study.agreement,
        masked=study.masked,
        dropouts=study.setting.dropouts,
        groups=folds,
        timeout=timeout,
        patience=patience,
        nodes=nodes,
        roaming=roaming,
    )
    rounds = study.method.rounds(len(study.sites))
    course = RunStatus(
        run=study.run,
        sites=study.sites,
        num_rounds=rounds.num_rounds,
        groups=len(rounds.groups(study.sites)),
        budget=str(study.budget),
    )
    if folds is not None:
        folds.resume(server, course)
    run_schedule(
        server,
        transport,
        rounds,
        lambda _: _LOG.info(course.line),
        _save_updates(server, course, folds),
    )
    for name, used in server.used.items():
        if used < rounds.num_rounds:
            _LOG.warning("Of %d answers of %s, %d were used.", rounds.num_rounds, name, used)
    return server


def parse_nodes(text: str) -> dict[str, int]:
    """Node numbers of sites, from text such as ``north=123 south=456``."""
    pairs = [pair.partition("=") for pair in text.replace(",", " ").split()]
    if not all(name and number.isdecimal() for name, _, number in pairs):
        raise InvalidArgument(
            "nodes must have a node number for each site, as in north=123 south=456."
        )
    return {name: int(number) for name, _, number in pairs}


def _default_state_path(result: Path, run: str) -> str:
    """The default path of the state of a run."""
    plain = "".join(each if each.isalnum() or each in "-_" else "_" for each in run)
    return f"{result}.{plain}.state"


def _save_updates(
    server: AnyServer, course: RunStatus, folds: ServerStateFile | None
) -> Callable[[AnyServer], None]:
    """What is done after every update: it is noted, and saved with the state of the server."""
    before = dict(server.used)

    def keep(updated: AnyServer) -> None:
        if len(updated.trace) == len(course.updates):
            if folds is not None:
                folds.give_up(updated.given_up)
            return
        course.note(len(updated.trace), before, updated.used)
        before.update(updated.used)
        if folds is not None:
            folds.keep(updated, course.updates[-1])

    return keep


def hide_traceback(record: logging.LogRecord) -> bool:
    """Makes a line of Flower's log of an error that Tacit raised on purpose, without a traceback."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, TacitError):
        record.msg, record.args, record.exc_info = "%s", (str(error),), None
    return True


def _log_progress() -> None:
    """Sends progress to the log that ``flwr run --stream`` shows."""
    logging.getLogger("flwr").addFilter(hide_traceback)
    logger = logging.getLogger("tacit")
    logger.setLevel(logging.INFO)
    if not logger.handlers:
        logger.addHandler(logging.StreamHandler())


def server_app(study: Study) -> ServerApp:
    """The ServerApp of a study.

    The run configuration has ``result``, the file of the posterior; ``state``, the file in which the
    server keeps what it received, by default beside the result; and ``timeout``, ``patience``, ``nodes`` and
    ``roaming`` as in `FlowerTransport`.

    Args:
        study: The study.

    Returns:
        The app.
    """
    app = ServerApp()

    @app.main()  # type: ignore[untyped-decorator, unused-ignore]
    def main(grid: Grid, context: Context) -> None:
        _log_progress()
        settings = context.run_config
        result = Path(str(settings.get("result", "posterior.nc")))
        server = serve(
            grid,
            study,
            timeout=float(settings.get("timeout", 600.0)),
            patience=float(settings.get("patience", 3600.0)),
            state=Path(str(settings.get("state") or _default_state_path(result, study.run))),
            nodes=parse_nodes(str(settings.get("nodes", ""))),
            roaming=bool(settings.get("roaming", False)),
        )
        if study.finish is not None:
            study.finish(server, result)

    return app
