"""The proxy lets nodes reach the fleet's calls, and nobody start a run, register a node or run a program."""

import asyncio

import pytest

pytest.importorskip("flwr")

import httpx
from flower_processes import HANGS, Deployment, free_port, make_app, reachable, wait_for
from flwr.supercore.protobuf import translation

from tacit.cli.main import main
from tacit.federated import proxy
from tacit.federated.proxy import FLEET_CALLS, fleet_proxy

ROUTES = [(method, path) for method, path in translation.PROTOBUF_REQUEST_TYPES]


def superlink(reached):
    """Notes what reaches it, and answers with what it was sent, in reverse."""

    def answer(request):
        reached.append(request)
        headers = {"x-answer": "42", "connection": "close"}
        return httpx.Response(418, content=request.content[::-1], headers=headers)

    return httpx.MockTransport(answer)


def asked(transport, requests):
    """Answers of the proxy to requests: method, path as it is, content and headers."""

    async def run():
        app = fleet_proxy("superlink:8000", transport)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
            found = []
            for method, path, content, headers in requests:
                url = httpx.URL("http://proxy").copy_with(raw_path=path.encode())
                found.append(await client.request(method, url, content=content, headers=headers))
            return found

    return asyncio.run(run())


def test_calls_of_a_node_pass_with_their_signature_and_come_back_whole():
    calls, reached = sorted(FLEET_CALLS), []
    headers = {"flwr-signature": "abc", "te": "trailers", "x-forwarded-for": "10.0.0.1"}
    asks = [("POST", f"/v1/fleet/{call}", b"\x01\x02", headers) for call in calls]
    replies = asked(superlink(reached), asks)
    for call, reply, request in zip(calls, replies, reached, strict=True):
        assert ("POST", f"/v1/fleet/{call}") in ROUTES
        assert (reply.status_code, reply.content) == (418, b"\x02\x01")
        assert reply.headers["x-answer"] == "42"
        assert request.url == f"https://superlink:8000/v1/fleet/{call}"
        assert request.headers["flwr-signature"] == "abc"
        assert not {"te", "x-forwarded-for"} & request.headers.keys()


def test_nothing_else_that_flower_serves_is_reached():
    others = [path for _, path in ROUTES if path.rpartition("/")[2] not in FLEET_CALLS]
    assert {"/v1/control/start-run", "/v1/control/register-node"} <= set(others)
    assert "/v1/fleet/register-node" in others  # by which a node without a key would come in
    paths = [
        *others,
        "/v1/runtime/acquire-task",
        "/v1/fleet/../control/start-run",
        "/v1/fleet/%2e%2e/control/start-run",
        "/v1/fleet/..%2fcontrol%2fstart-run",
        "/v1/fleet//control/start-run",
        "/v1/fleet/pull-messages/../../control/start-run",
        "//v1/control/start-run",
        "/v1/fleet/pull-messages%00",
        "/health",
        "/docs",
        "/",
    ]
    asks = [(method, path, b"", {}) for path in paths for method in ("POST", "GET", "PUT")]
    asks.append(("GET", "/v1/fleet/pull-messages", b"", {}))
    reached = []
    for reply in asked(superlink(reached), asks):
        assert reply.status_code in {404, 405}, reply.url
    assert not reached


def test_keys_that_are_missing_are_named(tmp_path, capsys):
    (tmp_path / "ca.crt").touch()
    assert main(["federated", "proxy", "--keys", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "server.crt" in said
    assert "ca.crt," not in said


def test_a_superlink_that_is_away_is_no_end_for_a_node():
    def away(request):
        raise httpx.ConnectError("refused", request=request)

    (reply,) = asked(httpx.MockTransport(away), [("POST", "/v1/fleet/pull-messages", b"", {})])
    assert reply.status_code == 503


def statuses(monkeypatch, requests, **limits):
    """Answers of a proxy with other limits to requests at once, each in parts with pauses."""
    for name, value in limits.items():
        monkeypatch.setattr(proxy, name, value)

    async def parts(sizes, pause):
        for size in sizes:
            yield bytes(size)
            await asyncio.sleep(pause)

    async def run():
        app = fleet_proxy("superlink:8000", superlink([]))
        async with httpx.AsyncClient(transport=StreamingTransport(app)) as client:
            url = "http://proxy/v1/fleet/push-messages"
            first = [client.post(url, content=parts(*each)) for each in requests]
            found = [each.status_code for each in await asyncio.gather(*first)]
            return found, (await client.post(url, content=b"1")).status_code

    return asyncio.run(run())


class StreamingTransport(httpx.AsyncBaseTransport):
    """Hands the parts of a request to an app as they come, as a server does."""

    def __init__(self, app):
        self.app = app

    async def handle_async_request(self, request):
        parts, sent = aiter(request.stream), {}

        async def receive():
            part = await anext(parts, None)
            return {"type": "http.request", "body": part or b"", "more_body": part is not None}

        async def send(message):
            sent.update(message)

        scope = {"type": "http", "method": request.method, "path": request.url.path, "headers": []}
        await self.app(scope, receive, send)
        return httpx.Response(sent["status"])


def test_whoever_sends_much_or_slowly_is_turned_away_and_others_are_not(monkeypatch):
    assert statuses(monkeypatch, [([60, 50], 0)], _MAX_BODY_BYTES=100) == ([413], 418)
    many = [([60], 0.1)] * 4
    found, after = statuses(monkeypatch, many, _MAX_HELD_BYTES=200)
    assert (sorted(found), after) == ([418, 418, 418, 503], 418)
    slow = [([1] * 50, 0.1), ([1], 0)]
    assert statuses(monkeypatch, slow, _TIMEOUT_SECONDS=0.3) == ([408, 418], 418)


@pytest.mark.slow
@pytest.mark.processes
def test_through_the_proxy_nodes_come_in_and_nobody_registers_or_starts_a_run(tmp_path):
    deployment = Deployment(tmp_path)
    try:
        deployment.start_link()
        deployment.register("north")
        deployment.make_key("stranger")
        inner, port = deployment.address, free_port()
        deployment.start(
            *("proxy", "tacit", "federated", "proxy", "--superlink", inner, "--keys", tmp_path),
            *("--host", "127.0.0.1", "--port", port),
        )
        wait_for(lambda: reachable(port), deployment.log("proxy"))
        deployment.address = f"127.0.0.1:{port}"
        deployment.start_node("north", tmp_path / "site.toml")
        wait_for(
            lambda: "SuperNode ID" in deployment.log("north").read_text(), deployment.log("north")
        )
        config = tmp_path / "flower" / "config.toml"
        config.write_text(config.read_text().replace(inner, deployment.address))
        app = make_app(tmp_path / "project", "statistics", ("north",))
        for command in (
            ("supernode", "register", tmp_path / "stranger.pub", "local"),
            ("supernode", "list", "local"),
            ("run", app, "local"),
        ):
            with pytest.raises(AssertionError, match="404 Not Found"):
                deployment.flwr(*command)
        stranger = tmp_path / "stranger.key"
        deployment.start(
            *("stranger", "tacit", "federated", "node", tmp_path / "socket"),
            *("--superlink", deployment.address, "--key", stranger),
            *("--root-certificates", tmp_path / "ca.crt"),
        )
        assert deployment.running["stranger"].wait(HANGS) != 0
        assert "does not take this node's key" in deployment.log("stranger").read_text()
    finally:
        deployment.stop()
