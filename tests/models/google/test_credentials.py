"""Models at Google Cloud are asked with Application Default Credentials of every kind, over real HTTP."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from hibernaut.errors import ConfigurationError, HibernautError
from hibernaut.messages.items import UserItem
from hibernaut.messages.stream import TextDelta
from hibernaut.models.configuration import Configuration, ProviderSettings
from hibernaut.models.endpoint import Endpoint
from hibernaut.models.errors import AuthenticationFailed, ConnectionLost, Overloaded, RateLimited
from hibernaut.models.google.cloud import AccessTokens, CloudAuth
from hibernaut.models.google.credentials import Credentials
from hibernaut.models.google.dialect import GeminiDialect
from hibernaut.models.google.rules import VERTEX
from hibernaut.models.http_model import HttpModel
from hibernaut.models.http_provider import HttpProvider
from hibernaut.models.protocol import About, Model
from hibernaut.models.providers import Providers
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.providers.anthropic import VertexWire
from hibernaut.testing.providers.google import GeminiWire
from hibernaut.testing.providers.server import FakeProvider
from hibernaut.testing.providers.wire import Raw
from tests.models.google.token_servers import SIGN_IN, MetadataServer, TokenServer, refusal
from tests.models.histories import request

HOUR: Final = 3_600_000
GEMINI: Final = "gemini-3.5-flash"
CLAUDE: Final = "claude-haiku-4-5-20251001"
NOBODY_THERE: Final = "127.0.0.1:9"


@pytest.fixture(autouse=True)
def _nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """There are no credentials of whoever runs the tests."""
    for name in ("GCE_METADATA_HOST", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_QUOTA_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("VERTEX_ACCESS_TOKEN", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))


def write(path: Path, info: Mapping[str, Any]) -> Path:
    path.write_text(json.dumps(info), encoding="utf-8")
    return path


def sign_in(folder: Path, **more: str) -> Path:
    """Leave what `gcloud` leaves."""
    return write(folder / "application_default_credentials.json", {"type": "authorized_user", **SIGN_IN, **more})


class Cloud:
    """Vertex AI, which takes the newest token only, and the two servers that give tokens."""

    def __init__(self, keys: Mapping[str, Any] | None = None, *, claude: bool = False) -> None:
        self.clock = ManualClock()
        self.wire: Any = VertexWire("") if claude else GeminiWire(vertex=True, key="")
        self.models = FakeProvider(self.wire, lambda _: "Hello.")
        self.tokens = TokenServer(self.take, keys)
        self.token_server = FakeProvider(self.tokens)
        self.metadata = MetadataServer(self.take)
        self.metadata_server = FakeProvider(self.metadata)

    def take(self, token: str) -> None:
        """Take this token from now on, and no older one."""
        self.wire._key = token

    @property
    def metadata_host(self) -> str:
        return self.metadata_server.url.removeprefix("http://")

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Cloud"]:
        async with self.models, self.token_server, self.metadata_server:
            yield self

    @asynccontextmanager
    async def model(self, **places: Any) -> AsyncIterator[HttpModel]:
        """Open a model whose credentials are found in these places."""
        found = Credentials(self.clock, **{"token_url": self.token_server.url, **places})
        endpoint = Endpoint("vertex", self.models.url, auth=CloudAuth(AccessTokens(found, self.clock)))
        try:
            yield HttpModel(endpoint, GeminiDialect(VERTEX), About(GEMINI))
        finally:
            await endpoint.close()


async def said(model: Model) -> str:
    async with aclosing(model.stream(request(UserItem("Hello."), tools=()))) as stream:
        return "".join([piece.text async for piece in stream if isinstance(piece, TextDelta)])


async def failure(model: Model) -> HibernautError:
    with pytest.raises(HibernautError) as caught:
        await said(model)
    return caught.value


# A person's sign-in


async def test_a_sign_in_is_exchanged_for_a_token_which_is_replaced_in_time(tmp_path: Path) -> None:
    sign_in(tmp_path)
    async with Cloud().open() as cloud, cloud.model() as model:
        assert [await said(model), await said(model)] == ["Hello.", "Hello."]
        cloud.clock.advance(HOUR)
        assert await said(model) == "Hello."
        assert cloud.tokens.given == ["ya29.1", "ya29.2"]


async def test_many_threads_that_begin_at_the_same_time_need_one_token(tmp_path: Path) -> None:
    sign_in(tmp_path)
    async with Cloud().open() as cloud, cloud.model() as model:
        assert set(await asyncio.gather(*[said(model) for _ in range(20)])) == {"Hello."}
        assert cloud.tokens.given == ["ya29.1"]


async def test_a_token_that_is_refused_is_replaced_once_and_the_request_is_sent_again(tmp_path: Path) -> None:
    sign_in(tmp_path)
    async with Cloud().open() as cloud, cloud.model() as model:
        await said(model)
        cloud.take("another")
        assert set(await asyncio.gather(*[said(model) for _ in range(20)])) == {"Hello."}
        assert cloud.tokens.given == ["ya29.1", "ya29.2"]
        assert len({asked.raw for asked in cloud.models.asked}) == 1
        cloud.tokens._told = lambda _: None  # from now on the models take nothing new
        cloud.take("another")
        refused = len(cloud.models.refused)
        assert isinstance(await failure(model), AuthenticationFailed)
        assert len(cloud.models.refused) - refused == 2


async def test_a_sign_in_that_has_ended_says_what_to_do_and_a_new_one_counts_at_once(tmp_path: Path) -> None:
    sign_in(tmp_path, refresh_token="1//old")
    async with Cloud().open() as cloud, cloud.model() as model:
        error = await failure(model)
        assert isinstance(error, AuthenticationFailed)
        assert str(error) == (
            f"Google's token server does not take the sign-in in {tmp_path / 'application_default_credentials.json'} "
            "(invalid_grant: Token has been expired or revoked.): run `gcloud auth application-default login`"
        )
        sign_in(tmp_path)
        assert await said(model) == "Hello."


@pytest.mark.parametrize(
    "answer,kind,wait",
    [
        (refusal(503, "backend_error", **{"retry-after": "7"}), Overloaded, 7_000),
        (refusal(429, "slow_down", **{"retry-after": "7"}), RateLimited, 7_000),
        (refusal(400, "temporarily_unavailable"), Overloaded, 0),
        (refusal(401, "invalid_client", "no such client"), AuthenticationFailed, 0),
        (Raw(200, body=b"<html>"), Overloaded, 0),
        (Raw(403, {"content-type": "text/html"}, b"<html>no</html>"), AuthenticationFailed, 0),
    ],
)
async def test_what_a_token_server_says_instead_keeps_its_meaning(
    answer: Raw, kind: type[HibernautError], wait: int, tmp_path: Path
) -> None:
    sign_in(tmp_path)
    async with Cloud().open() as cloud, cloud.model() as model:
        cloud.tokens.instead = iter([answer])
        error = await failure(model)
        assert type(error) is kind
        assert getattr(error, "retry_after", None) == wait
        assert await said(model) == "Hello."


async def test_a_token_server_that_cannot_be_reached_is_a_lost_connection(tmp_path: Path) -> None:
    sign_in(tmp_path)
    async with Cloud().open() as cloud, cloud.model(token_url=f"http://{NOBODY_THERE}") as model:
        assert isinstance(await failure(model), ConnectionLost)


async def test_the_quota_of_the_project_that_is_named_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sign_in(tmp_path, quota_project_id="theirs")
    async with Cloud().open() as cloud:
        async with cloud.model() as model:
            await said(model)
        monkeypatch.setenv("GOOGLE_CLOUD_QUOTA_PROJECT", "ours")
        async with cloud.model() as model:
            await said(model)
        assert [asked.headers["x-goog-user-project"] for asked in cloud.models.asked] == ["theirs", "ours"]


# The metadata server


@pytest.mark.parametrize("name,model_id", [("google-vertex", GEMINI), ("anthropic-vertex", CLAUDE)])
async def test_on_a_machine_of_googles_nothing_has_to_be_said(
    name: str, model_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Cloud(claude=model_id is CLAUDE).open() as cloud:
        monkeypatch.setenv("GCE_METADATA_HOST", cloud.metadata_host)
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # not for what only this machine can reach
        monkeypatch.setenv("NO_PROXY", cloud.models.url)
        settings = {name: ProviderSettings(url=cloud.models.url)}
        providers = Providers(Configuration(providers=settings), clock=cloud.clock)
        model = providers.resolve(f"{name}:{model_id}")
        assert await said(model) == "Hello."
        cloud.take("another")
        assert await said(model) == "Hello."
        cloud.clock.advance(HOUR)
        assert await said(model) == "Hello."
        assert cloud.metadata.given == ["ya29.1", "ya29.2", "ya29.3"]
        await providers.close()


async def test_a_machine_without_a_service_account_says_so() -> None:
    async with Cloud().open() as cloud, cloud.model(metadata_host=cloud.metadata_host) as model:
        cloud.metadata.instead = iter([Raw(404, {"metadata-flavor": "Google"})])
        error = await failure(model)
        assert isinstance(error, ConfigurationError)
        assert "attach one" in str(error)


async def test_what_is_no_metadata_server_is_not_believed() -> None:
    async with Cloud().open() as cloud, cloud.model(metadata_host=cloud.metadata_host) as model:
        cloud.metadata.instead = iter([Raw(200, body=b'{"access_token":"theirs"}')])
        error = await failure(model)
        assert isinstance(error, ConfigurationError)
        assert "no metadata server" in str(error)
        assert cloud.models.refused == []


async def test_a_metadata_server_that_fails_for_a_while_is_asked_again() -> None:
    async with Cloud().open() as cloud, cloud.model(metadata_host=cloud.metadata_host) as model:
        cloud.metadata.instead = iter([Raw(503, {"metadata-flavor": "Google"})])
        assert isinstance(await failure(model), Overloaded)
        assert await said(model) == "Hello."
        await cloud.metadata_server.__aexit__(None, None, None)
        cloud.clock.advance(HOUR)
        assert isinstance(await failure(model), ConnectionLost)


async def test_who_has_no_credentials_is_told_where_to_get_some() -> None:
    async with Cloud().open() as cloud, cloud.model(metadata_host=NOBODY_THERE) as model:
        error = await failure(model)
        assert isinstance(error, ConfigurationError)
        for way in ("gcloud auth application-default login", "GOOGLE_APPLICATION_CREDENTIALS", "VERTEX_ACCESS_TOKEN"):
            assert way in str(error)


async def test_a_metadata_server_that_is_named_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", NOBODY_THERE)
    async with Cloud().open() as cloud, cloud.model() as model:
        assert isinstance(await failure(model), ConnectionLost)


# Credentials that take Google's library


ROBOT: Final = "robot@p.iam.gserviceaccount.com"


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65_537, key_size=2_048)


def public(key: rsa.RSAPrivateKey) -> dict[str, str]:
    """Return the public half, as a token server keeps it."""
    return {"k1": key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()}


def account(key: rsa.RSAPrivateKey, token_url: str) -> dict[str, str]:
    """Return a service account as its file has it."""
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return {
        "type": "service_account",
        "project_id": "p",
        "private_key_id": "k1",
        "private_key": pem,
        "client_email": ROBOT,
        "token_uri": token_url,
    }


@pytest.mark.parametrize("by", ["option", "variable"])
async def test_a_service_account_signs_for_its_tokens(
    by: str, key: rsa.RSAPrivateKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Cloud(public(key)).open() as cloud:
        file = write(tmp_path / "robot.json", account(key, cloud.token_server.url))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file) if by == "variable" else "/no/where")
        options = {"credentials": str(file)} if by == "option" else {}
        settings = {"google-vertex": ProviderSettings(url=cloud.models.url, options=options)}
        providers = Providers(Configuration(providers=settings), clock=cloud.clock)
        model = providers.resolve(f"google-vertex:{GEMINI}")
        assert [await said(model), await said(model)] == ["Hello.", "Hello."]
        cloud.clock.advance(HOUR)
        assert await said(model) == "Hello."
        assert cloud.tokens.given == ["ya29.1", "ya29.2"]
        await providers.close()


async def test_a_key_that_is_not_taken_is_told_without_showing_it(key: rsa.RSAPrivateKey, tmp_path: Path) -> None:
    other = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    async with Cloud(public(other)).open() as cloud:
        info = account(key, cloud.token_server.url)
        async with cloud.model(path=str(write(tmp_path / "robot.json", info))) as model:
            error = await failure(model)
    assert isinstance(error, AuthenticationFailed)
    assert "Invalid JWT Signature" in str(error)
    assert info["private_key"].splitlines()[1] not in str(error)


async def test_a_token_server_that_a_service_account_cannot_reach_is_a_lost_connection(
    key: rsa.RSAPrivateKey, tmp_path: Path
) -> None:
    file = write(tmp_path / "robot.json", account(key, f"http://{NOBODY_THERE}"))
    async with Cloud().open() as cloud, cloud.model(path=str(file)) as model:
        assert isinstance(await failure(model), ConnectionLost)


async def test_without_googles_library_it_is_said_what_to_install(
    key: rsa.RSAPrivateKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "robot.json", account(key, "http://nowhere.invalid"))
    for name in [name for name in sys.modules if name.startswith("google.auth")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "google.auth", None)
    async with Cloud().open() as cloud, cloud.model(path=str(file)) as model:
        error = await failure(model)
    assert isinstance(error, ConfigurationError)
    assert "pip install 'hibernaut[google]'" in str(error)


async def test_who_runs_this_can_be_shown_by_another_identity_provider(tmp_path: Path) -> None:
    (tmp_path / "subject").write_text("who I am", encoding="utf-8")
    async with Cloud().open() as cloud:
        info = {
            "type": "external_account",
            "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/x",
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": cloud.token_server.url,
            "credential_source": {"file": str(tmp_path / "subject")},
        }
        async with cloud.model(path=str(write(tmp_path / "external.json", info))) as model:
            assert await said(model) == "Hello."
            (tmp_path / "subject").write_text("who I was", encoding="utf-8")
            cloud.clock.advance(HOUR)
            assert isinstance(await failure(model), AuthenticationFailed)


# Files


@pytest.mark.parametrize(
    "content,words",
    [
        (None, "cannot be read: No such file"),
        ("{", "holds no credentials"),
        ("[]", "holds no credentials"),
        ("{}", "the type ''; known are authorized_user, external_account"),
        ('{"type":"magic"}', "the type 'magic'"),
        ('{"type":"authorized_user","client_id":"c"}', "no whole sign-in (Object missing required field"),
        ('{"type":"service_account"}', "cannot be used"),
        ('{"type":"service_account","client_email":"a","token_uri":"b","private_key":"c"}', "cannot be used"),
        ('{"type":"external_account"}', "cannot be used"),
        ('{"type":"impersonated_service_account"}', "cannot be used"),
        ('{"type":"external_account_authorized_user"}', "cannot be used"),
    ],
)
async def test_a_file_that_cannot_be_used_says_why(content: str | None, words: str, tmp_path: Path) -> None:
    file = tmp_path / "credentials.json"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    async with Cloud().open() as cloud, cloud.model(path=str(file)) as model:
        error = await failure(model)
    assert isinstance(error, ConfigurationError)
    assert words in str(error)
    assert str(file) in str(error)


# What counts


async def test_a_token_that_is_given_counts_before_all_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign_in(tmp_path)
    monkeypatch.setenv("VERTEX_ACCESS_TOKEN", "ya29.mine")
    async with Cloud().open() as cloud:
        cloud.take("ya29.mine")
        settings = {"google-vertex": ProviderSettings(url=cloud.models.url)}
        providers = Providers(Configuration(providers=settings), clock=cloud.clock)
        assert await said(providers.resolve(f"google-vertex:{GEMINI}")) == "Hello."
        await providers.close()


def test_project_and_region_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "europe-west4")
    url = "https://europe-west4-aiplatform.googleapis.com/v1/projects/p/locations/europe-west4/publishers"
    google, anthropic = (Providers().provider(name) for name in ("google-vertex", "anthropic-vertex"))
    assert isinstance(google, HttpProvider)
    assert isinstance(anthropic, HttpProvider)
    assert google.endpoint.url == f"{url}/google"
    assert anthropic.endpoint.url == f"{url}/anthropic/models"
