"""Tasks, replies and keys as the fields of messages.

Vectors travel as plain bytes of a fixed type. An ``.npz`` file would add nothing to a flat vector, and a
compressed file from a stranger could unpack to any size.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tacit.errors import InvalidArgument, TacitError
from tacit.federated.masks import Offer
from tacit.federated.transport import Reply, Task

_LOG = logging.getLogger(__name__)
_TYPES = ("<f8", "<i8")
Fields = dict[str, Any]


def task_fields(
    task: Task, attempt: int = 1, offers: Sequence[Offer] = (), *, agreed: str
) -> Fields:
    """A task as the fields of a message. ``agreed`` is what the server thinks is agreed on."""
    return {
        "kind": "task",
        "agreed": agreed,
        "run": task.run,
        "round": task.round,
        "folded": task.folded,
        "share": task.share.astype("<f8").tobytes(),
        "posterior": task.posterior.astype("<f8").tobytes(),
        "mark": task.mark,
        "attempt": attempt,
        "sites": [offer.site for offer in offers],
        "keys": [offer.key for offer in offers],
        "signatures": [offer.signature for offer in offers],
    }


def task_of(fields: Mapping[str, Any]) -> tuple[Task, int, list[Offer]]:
    """The task of a message, the attempt, and the keys of its masks."""
    task = Task(
        run=str(fields["run"]),
        round=int(fields["round"]),
        posterior=np.frombuffer(fields["posterior"], "<f8").astype(np.float64),
        folded=int(fields["folded"]),
        share=np.frombuffer(fields["share"], "<f8").astype(np.float64),
        mark=bytes(fields["mark"]),
    )
    parts = zip(fields["sites"], fields["keys"], fields["signatures"], strict=True)
    return task, int(fields["attempt"]), [Offer(*part) for part in parts]


def reply_fields(reply: Reply) -> Fields:
    """A reply as the fields of a message."""
    kind = "<i8" if reply.change.dtype.kind == "i" else "<f8"
    grid = {} if reply.grid is None else {"grid": float(reply.grid)}
    return {
        "run": reply.run,
        "round": reply.round,
        "type": kind,
        "change": reply.change.astype(kind).tobytes(),
        **grid,
    }


def reply_of(site: str, fields: Mapping[str, Any]) -> Reply:
    """The reply of a site."""
    kind = str(fields["type"])
    if kind not in _TYPES:
        raise InvalidArgument(f"{site} answered with numbers of an unknown type.")
    grid = fields.get("grid")
    return Reply(
        site=site,
        run=str(fields["run"]),
        round=int(fields["round"]),
        change=np.frombuffer(fields["change"], kind).copy(),
        grid=None if grid is None else float(grid),
    )


def sound_reply(site: str, fields: Fields) -> Reply | None:
    """The reply of a site, or None if it is invalid."""
    try:
        return reply_of(site, fields)
    except (TacitError, KeyError, TypeError, ValueError):
        _LOG.warning("%s sent an invalid reply.", site)
        return None


def sound_offer(site: str, fields: Fields) -> Offer | None:
    """The key of a site, or None if it is invalid."""
    key, signature = fields.get("key"), fields.get("signature")
    if isinstance(key, bytes) and isinstance(signature, bytes):
        return Offer(site, key, signature)
    _LOG.warning("%s sent an invalid key.", site)
    return None
