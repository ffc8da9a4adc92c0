"""How requests are authorized: over real connections, and for AWS against its published vectors and its own library."""

import asyncio
import datetime as dt
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import h2.config
import h2.connection
import h2.events
import httpx2
import pytest
import trustme

from hibernaut.auth import Basic, Bearer, Headers, MutualTls, SigV4
from hibernaut.errors import ConfigurationError
from hibernaut.rap.connections import Connections
from hibernaut.rap.exchange import Exchange
from hibernaut.rap.replies import NoAnswer
from hibernaut.rap.requests import CloseThread
from hibernaut.rap.servers import RemoteServer
from hibernaut.testing.clock import ManualClock
from tests.rap.foreign_server import ForeignServer, foreign_server

MOMENT = dt.datetime(2015, 8, 30, 12, 36, tzinfo=dt.UTC).replace(tzinfo=None)
NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Trusts nobody, and is quickly made."""


@pytest.fixture
def foreign() -> Iterator[ForeignServer]:
    with foreign_server() as server:
        yield server


async def sent(foreign: ForeignServer, auth: httpx2.Auth) -> dict[str, str]:
    async with Exchange(auth=auth, verify=NOBODY) as exchange:
        await exchange.post(f"{foreign.url}/migrate", b"{}")
    return foreign.received[-1].headers


# In headers


async def test_a_token_goes_into_the_header_and_is_read_at_every_request(
    foreign: ForeignServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await sent(foreign, Bearer("t0")))["authorization"] == "Bearer t0"
    named = Bearer("env:RAP_TOKEN")
    monkeypatch.setenv("RAP_TOKEN", "t1")
    assert (await sent(foreign, named))["authorization"] == "Bearer t1"
    monkeypatch.setenv("RAP_TOKEN", "t2")
    assert (await sent(foreign, named))["authorization"] == "Bearer t2"
    monkeypatch.setenv("RAP_TOKEN", "t\u00e9")
    with pytest.raises(ConfigurationError, match="RAP_TOKEN has other characters"):
        await sent(foreign, named)
    monkeypatch.delenv("RAP_TOKEN")
    with pytest.raises(ConfigurationError, match="RAP_TOKEN, which is not set"):
        await sent(foreign, named)


async def test_a_password_and_any_headers(foreign: ForeignServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAP_PASSWORD", "open sesame")
    basic = await sent(foreign, Basic("Aladdin", "env:RAP_PASSWORD"))
    assert basic["authorization"] == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
    headers = await sent(foreign, Headers({"X-One": "1", "X-Two": "env:RAP_PASSWORD"}))
    assert (headers["x-one"], headers["x-two"]) == ("1", "open sesame")


@pytest.mark.parametrize("token", ["", " ", "a\nb", "t\u00e9", "env:"])
def test_what_cannot_be_a_token_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(ConfigurationError, match="the bearer token") as caught:
        Bearer(token)
    assert "a\nb" not in str(caught.value)
    assert "\u00e9" not in str(caught.value)


def test_a_user_name_with_a_colon_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="colon"):
        Basic("a:b", "c")


@pytest.mark.parametrize(
    "auth",
    [Bearer("s3cret"), Basic("ada", "s3cret"), Headers({"X": "s3cret"}), MutualTls("c", "k", password="s3cret")],
)
def test_a_secret_is_in_no_text(auth: httpx2.Auth) -> None:
    assert "s3cret" not in f"{auth!r} {auth} {RemoteServer(url='https://a.example', auth=auth)!r}"


# In the connection


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def certificates(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    ours = authority.issue_cert("runtime@example.com")
    ours.private_key_pem.write_to_path(str(folder / "key.pem"))
    for number, blob in enumerate(ours.cert_chain_pems):
        blob.write_to_path(str(folder / "certificate.pem"), append=number > 0)
    return folder


@asynccontextmanager
async def secure_server(authority: trustme.CA, *, mutual: bool = False) -> AsyncIterator[tuple[str, list[str]]]:
    """A server that speaks HTTP/2 and nothing else, and says whose certificate it has seen."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    context.set_alpn_protocols(["h2"])
    if mutual:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    streams: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen = writer.get_extra_info("peercert") or {}
        who = seen.get("subjectAltName", (("", "nobody"),))[0][1]
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        connection.initiate_connection()
        while True:
            writer.write(connection.data_to_send())
            data = await reader.read(65_536)
            if not data:
                break
            for event in connection.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    streams.append(dict(event.headers)[b":path"].decode())
                if isinstance(event, h2.events.StreamEnded):
                    connection.send_headers(event.stream_id, [(":status", "200")])
                    connection.send_data(event.stream_id, who.encode(), end_stream=True)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", streams


async def test_http_2_is_spoken_where_it_is_offered(authority: trustme.CA) -> None:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    async with secure_server(authority) as (url, streams), Exchange(verify=context) as exchange:
        replies = await asyncio.gather(*(exchange.post(f"{url}/{number}", b"{}") for number in range(3)))
    assert [(reply.status, reply.body) for reply in replies] == [(200, b"nobody")] * 3
    assert sorted(streams) == ["/0", "/1", "/2"]


async def test_a_certificate_of_ours_is_shown_and_that_of_the_server_checked(
    authority: trustme.CA, certificates: Path
) -> None:
    auth = MutualTls(str(certificates / "certificate.pem"), str(certificates / "key.pem"), str(certificates / "ca.pem"))
    async with secure_server(authority, mutual=True) as (url, _):
        server = RemoteServer(url=url, name="ci", auth=auth)
        async with Connections({"ci": server}, ManualClock()) as servers:
            assert (await servers.close_thread("ci", CloseThread("t"))).body == b"runtime@example.com"
        stranger = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
        for verify in (stranger, True):
            async with Exchange(verify=verify) as exchange:
                with pytest.raises(NoAnswer):
                    await exchange.post(url, b"{}")


def test_a_certificate_is_not_promised_where_it_would_not_be_shown() -> None:
    server = RemoteServer(url="http://127.0.0.1:9", name="ci", auth=MutualTls("c", "k"))
    with pytest.raises(ConfigurationError, match="over https only"):
        Connections({"ci": server}, ManualClock())


def test_a_certificate_that_cannot_be_used_is_named(certificates: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.pem"):
        MutualTls("nowhere.pem", "key.pem").context()
    with pytest.raises(ConfigurationError, match=r"ca\.pem"):
        MutualTls(str(certificates / "ca.pem"), str(certificates / "key.pem")).context()


# For AWS


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_, **__: MOMENT)
    return monkeypatch


def signed(request: httpx2.Request, auth: SigV4) -> str:
    return str(next(auth.auth_flow(request)).headers["Authorization"])


@pytest.mark.parametrize(
    "method, signature",
    [
        ("GET", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
    ],
)
def test_a_signature_is_that_of_the_published_vector(aws: object, method: str, signature: str) -> None:
    request = httpx2.Request(method, "https://example.amazonaws.com/")
    assert signed(request, SigV4("us-east-1", "service")) == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        f"SignedHeaders=host;x-amz-date, Signature={signature}"
    )
    assert request.headers["X-Amz-Date"] == "20150830T123600Z"


async def test_a_signature_covers_the_body_and_is_made_anew_at_every_try(
    aws: pytest.MonkeyPatch, foreign: ForeignServer
) -> None:
    aws.setenv("AWS_SESSION_TOKEN", "session")
    auth = SigV4("eu-central-1")
    body = b'{"text":"\xc3\xa9"}'
    async with Exchange(auth=auth, verify=NOBODY) as exchange:
        for _ in range(2):
            await exchange.post(f"{foreign.url}/migrate", body, {"Idempotency-Key": "k", "RAP-Version": "1"})
            aws.setattr(botocore.auth, "get_current_datetime", lambda *_, **__: MOMENT + dt.timedelta(seconds=1))
    tries = [each.headers for each in foreign.received]
    assert [headers["x-amz-date"] for headers in tries] == ["20150830T123600Z", "20150830T123601Z"]
    assert tries[0]["authorization"] != tries[1]["authorization"]
    assert tries[1]["authorization"] == by_their_library(f"{foreign.url}/migrate", body, tries[1])


def by_their_library(url: str, body: bytes, headers: dict[str, str]) -> str:
    names = headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    assert names == ["content-type", "host", "idempotency-key", "rap-version", "x-amz-date", "x-amz-security-token"]
    kept = {name: headers[name] for name in names if not name.startswith("x-amz-")}
    request: Any = botocore.awsrequest.AWSRequest("POST", url, kept, body)
    key = botocore.credentials.Credentials(
        "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", headers["x-amz-security-token"]
    )
    botocore.auth.SigV4Auth(key, "lambda", "eu-central-1").add_auth(request)
    return str(request.headers["Authorization"])


def test_without_credentials_or_profile_it_says_what_is_missing(aws: pytest.MonkeyPatch) -> None:
    request = httpx2.Request("GET", "https://example.amazonaws.com/")
    with pytest.raises(ConfigurationError, match="nobody"):
        signed(request, SigV4("us-east-1", profile="nobody"))
    aws.delenv("AWS_ACCESS_KEY_ID")
    for name in ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_PROFILE"):
        aws.delenv(name, raising=False)
    with pytest.raises(ConfigurationError, match="no credentials for AWS"):
        signed(request, SigV4("us-east-1"))


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.auth", None)
    with pytest.raises(ConfigurationError, match=r"hibernaut\[aws\]"):
        signed(httpx2.Request("GET", "https://example.amazonaws.com/"), SigV4("us-east-1"))
