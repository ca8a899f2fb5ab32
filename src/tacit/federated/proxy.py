"""A proxy before the SuperLink that lets sites reach only what a node needs.

Flower has one port for nodes, for `flwr` and for its own programs. TLS shows a site that it talks to the server; nothing
shows the server who starts a run or registers a node. Who reaches the port can do both. So the SuperLink listens
where only the study's coordinator is, and sites reach this proxy. It passes on the fleet's calls, by name, and answers
everything else with 404. Each of these calls is signed with the key of a registered node, which the SuperLink checks.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tacit.errors import InvalidArgument

# The calls of a node with a key. Not among them are those by which nodes without keys register.
FLEET_CALLS = frozenset(
    {
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        "push-messages",
        "get-run",
        "get-fab",
        "push-object",
        "pull-object",
        "confirm-message-received",
    }
)
# Of one connection, which are not passed on, and what a SuperLink on the same machine would believe of the address of a
# node. The body has another encoding on each way.
_HOP_HEADERS = frozenset(
    {
        "connection",
        "content-encoding",
        "content-length",
        "expect",
        "forwarded",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-forwarded-for",
        "x-forwarded-proto",
    }
)
# Messages have a vector and some keys, and an app is a few files. Anybody may send, so there is a limit for all together.
_MAX_BODY_BYTES, _MAX_HELD_BYTES = 2**28, 2**30
_TIMEOUT_SECONDS = 120.0


def fleet_proxy(superlink: str, transport: httpx.AsyncBaseTransport) -> Starlette:
    """The proxy as an ASGI app.

    Args:
        superlink: Address of the SuperLink, host:port.
        transport: Carries requests to it.

    Returns:
        The app.
    """
    client = httpx.AsyncClient(
        transport=transport, base_url=f"https://{superlink}", timeout=_TIMEOUT_SECONDS
    )

    held = 0  # bytes of all requests that are not answered yet

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with client:
            yield

    async def pass_on(request: Request) -> Response:
        call = request.path_params["call"]
        if call not in FLEET_CALLS:
            return Response(status_code=404)
        nonlocal held
        body = bytearray()
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                async for part in request.stream():
                    body += part
                    held += len(part)
                    if len(body) > _MAX_BODY_BYTES:
                        return Response(status_code=413)
                    if held > _MAX_HELD_BYTES:
                        return Response(status_code=503)
            reply = await client.post(
                f"/v1/fleet/{call}", content=bytes(body), headers=_end_to_end(request.headers)
            )
        except TimeoutError:
            return Response(status_code=408)
        except httpx.TransportError:
            return Response(status_code=503)  # a node tries again
        finally:
            held -= len(body)
        return Response(reply.content, reply.status_code, _end_to_end(reply.headers))

    return Starlette(
        routes=[Route("/v1/fleet/{call}", pass_on, methods=["POST"])], lifespan=lifespan
    )


def _end_to_end(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that are passed on."""
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_HEADERS}


def run_proxy(
    superlink: str, *, host: str, port: int, certificate: Path, key: Path, root_certificates: Path
) -> None:
    """Runs the proxy until it is stopped.

    Args:
        superlink: Address of the SuperLink, host:port.
        host: Address to listen at.
        port: Port to listen at.
        certificate: The server's certificate.
        key: The server's secret key.
        root_certificates: Certificate of the study's authority, by which the SuperLink is known.

    Raises:
        InvalidArgument: If one of the three is missing.
    """
    import uvicorn

    missing = [str(each) for each in (root_certificates, certificate, key) if not each.is_file()]
    if missing:
        raise InvalidArgument(f"There is no {', '.join(missing)}; see tacit federated keys.")
    trusted = ssl.create_default_context(cafile=root_certificates)
    uvicorn.run(
        fleet_proxy(superlink, httpx.AsyncHTTPTransport(verify=trusted)),
        host=host,
        port=port,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        log_level="warning",
        access_log=False,
        server_header=False,
    )
