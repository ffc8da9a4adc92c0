"""What a user of `hibernaut run` is told when a provider, or whatever stands in its place, does what it should not.

Every case ends with a sentence and an exit code, without a traceback, and leaves the thread where it belongs: answered,
parked with the reason, or put off.
"""

import asyncio
import json
import re
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
import trustme
from anyio.from_thread import start_blocking_portal

from hibernaut.kernel import fold
from hibernaut.messages.events import Usage
from hibernaut.messages.stream import CallDelta, CallEnded, CallStarted, Finish, StreamPiece, TextDelta
from hibernaut.models import endpoint, frames
from hibernaut.models.errors import ContextOverflow
from hibernaut.models.scripted import call, call_raw, cut, turn
from hibernaut.testing.providers.anthropic import AnthropicWire
from hibernaut.testing.providers.bedrock import TOKEN, ConverseWire
from hibernaut.testing.providers.google import GeminiWire
from hibernaut.testing.providers.openai_chat import ChatWire
from hibernaut.testing.providers.openai_responses import ResponsesWire
from hibernaut.testing.providers.server import FakeProvider, Played
from hibernaut.testing.providers.wire import Asked, FakeWire, Raw
from tests.cli.conftest import Invoke

T = TypeVar("T")

KEY = "sk-secret-of-a-test"
HTML = {"content-type": "text/html"}
JSON = {"content-type": "application/json"}

TOOLS = '''
from hibernaut import tool

@tool
async def look(place: str = "here") -> str:
    """Look at a place."""
    return f"nothing at {place}"
'''

WIRES: dict[str, tuple[str, Callable[[], FakeWire], str]] = {
    "anthropic": ("claude-sonnet-4-6", lambda: AnthropicWire(KEY), ""),
    "openai": ("gpt-5", lambda: ResponsesWire(key=KEY), "/v1"),
    "openai-chat": ("gpt-4o", lambda: ChatWire(key=KEY), "/v1"),
    "google": ("gemini-2.5-flash", lambda: GeminiWire(key=KEY), ""),
    "bedrock": ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", ConverseWire, ""),
}
each_wire = pytest.mark.parametrize("provider", WIRES)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait long for another attempt, and no stream be long."""
    monkeypatch.setattr(fold, "BACKOFF_FIRST", 10)
    monkeypatch.setattr(fold, "BACKOFF_MOST", 10)
    monkeypatch.setattr(endpoint, "SILENT_FOR", 4_000)
    monkeypatch.setattr(frames, "LARGEST_ANSWER", 200_000)
    monkeypatch.setattr(frames, "LARGEST_EVENT", 100_000)


@contextmanager
def beside(opened: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Keep something open in a thread beside the command."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(opened) as value:
        yield value


class Ended:
    """How a command ended, and what is left of the thread."""

    def __init__(self, invoke: Invoke, provider: str, url: str, key: str, model: str = "", *words: str) -> None:
        said = f'key = "{key}"' if provider != "bedrock" else f'key = "{key}"\noptions = {{ region = "x" }}'
        Path("hibernaut.toml").write_text(f'[providers.{provider}]\nurl = "{url}"\n{said}\n', encoding="utf-8")
        Path("tools.py").write_text(TOOLS, encoding="utf-8")
        where = ("--store", "agents.db", "--thread", "t", "--tools", "tools.py")
        name = f"{provider}:{model or WIRES[provider][0]}"
        result = invoke("run", "Look", *where, "--model", name, "--no-wait", *words)
        self.code, self.out, self.err = result.exit_code, result.stdout, result.stderr
        shown = invoke("threads", "show", "t", "--store", "agents.db", "--json")
        self.state: dict[str, Any] = json.loads(shown.stdout) if shown.exit_code == 0 else {}

    def is_clear(self) -> None:
        """Check that nothing was said that is for us only."""
        told = self.out + self.err
        for hidden in (KEY, TOKEN, "Traceback", "model_defect"):
            assert hidden not in told, told

    def is_parked(self, words: str) -> None:
        """Check that the thread is parked with a reason, and the user told it once on each side."""
        self.is_clear()
        assert (self.code, self.state["status"], self.state["waiting"]) == (3, "parked", 0), self.out + self.err
        assert re.search(words, self.state["reason"]), self.state["reason"]
        assert f"The agent is parked: {self.state['reason']}\n" in self.err
        assert (
            "When that is put right, say something: hibernaut run 'your text' --thread t --store agents.db" in self.err
        )

    def is_answered(self, *words: str) -> None:
        """Check that the agent has answered, and has said all this."""
        self.is_clear()
        assert (self.code, self.state["status"], self.state["activity"]) == (0, "open", "idle"), self.out + self.err
        assert [word for word in words if not re.search(word, self.out)] == [], self.out
        assert self.state["waiting"] == 0


def with_fake(
    invoke: Invoke, provider: str, *script: Played, key: str = "", model: str = "", chunks: int | None = None
) -> tuple[Ended, FakeProvider]:
    _, wire, path = WIRES[provider]
    own = TOKEN if provider == "bedrock" else KEY
    with beside(FakeProvider(wire(), script, chunks=chunks)) as fake:
        return Ended(invoke, provider, fake.url + path, key or own, model), fake


def stream_of(provider: str, *pieces: StreamPiece) -> list[bytes]:
    """Return the events in which a provider says this."""
    path = "/v1beta/models/gemini-2.5-flash:streamGenerateContent"
    encoder = WIRES[provider][1]().encoder(Asked("POST", path, {}, {"model": "m", "messages": [], "input": []}))
    return [event for piece in pieces for event in encoder.feed(piece)]


def as_stream(provider: str, *events: bytes) -> Raw:
    return Raw(200, {"content-type": WIRES[provider][1]().stream_type}, b"".join(events))


END = Finish("end", Usage(10, 5))


# What is refused for ever: the thread is parked at once, in words

NAMES_OF_REFUSALS = {
    "google": ("google answers INVALID_ARGUMENT: The API key", "NOT_FOUND: models/no-such-model"),
    "bedrock": ("bedrock answers AccessDeniedException: ", "ValidationException: The provided model"),
    "anthropic": ("anthropic answers 401: invalid x-api-key", "anthropic answers 404: model: no-such-model"),
}


@each_wire
def test_a_key_that_is_not_set_is_named_by_its_variable_and_nobody_is_asked(provider: str, invoke: Invoke) -> None:
    ended, fake = with_fake(invoke, provider, "Hi.", key="env:NO_SUCH_KEY")
    ended.is_parked("^configuration: .*environment variable NO_SUCH_KEY, which is not set$")
    assert (fake.asked, fake.refused) == ([], [])


@each_wire
def test_a_wrong_key_parks_the_thread_in_the_words_of_the_provider(provider: str, invoke: Invoke) -> None:
    ended, fake = with_fake(invoke, provider, "Hi.", key="wrong")
    words = NAMES_OF_REFUSALS.get(provider, (f"{provider} answers 401: The key",))[0]
    ended.is_parked(f"^authentication_failed: {words}")
    assert len(fake.refused) == 1


@pytest.mark.parametrize("provider", NAMES_OF_REFUSALS)
def test_an_unknown_model_parks_the_thread_and_its_window_is_warned_of_once(provider: str, invoke: Invoke) -> None:
    ended, fake = with_fake(invoke, provider, "Hi.", model="no-such-model")
    ended.is_parked(f"^invalid_request: .*{NAMES_OF_REFUSALS[provider][1]}")
    assert ended.err.count("no-such-model is not in the catalogue") == 1
    assert len(fake.refused) == 1


REFUSED: list[tuple[str, Raw, str]] = [
    ("page", Raw(200, HTML, b"<html><title>Log in</title>"), "answers with text/html where a stream .* says: Log in$"),
    ("no page", Raw(404, HTML, b"<html><p>Nothing"), "answers 404 with text/html .* is this the base URL of its API"),
    ("other API", Raw(200, JSON, b'{"hello":1}'), 'answers with application/json where a stream .*: {"hello":1}$'),
    ("nothing", Raw(204, {}), "answers 204 with something unnamed where a stream belongs; .* says nothing$"),
    ("elsewhere", Raw(307, {"location": "https://x.example/"}), "leads to https://x.example/; redirects are not"),
    ("too large", Raw(413, HTML, b"<html><title>413 Payload Too Large</title>"), "answers 413: 413 Payload Too Large$"),
]


@each_wire
@pytest.mark.parametrize("answer,words", [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_is_no_api_or_refuses_for_ever_parks_the_thread_at_once(
    answer: Raw, words: str, provider: str, invoke: Invoke
) -> None:
    ended, fake = with_fake(invoke, provider, answer, "Hi.")
    ended.is_parked(f"^invalid_request: {provider} .*{words}")
    assert len(fake.asked) == 1


@each_wire
def test_a_prompt_that_is_too_long_is_tried_once_more_and_parks_the_thread(provider: str, invoke: Invoke) -> None:
    ended, fake = with_fake(invoke, provider, *[ContextOverflow("maximum context length exceeded")] * 9)
    ended.is_parked(f"^context_overflow: {provider} answers ")
    assert "— retry: context_overflow: " in ended.out
    assert "— compaction failed: there is nothing to compact" in ended.out
    assert len(fake.asked) == 2


@each_wire
@pytest.mark.parametrize("words", ["", "I will not."])
def test_a_refusal_parks_the_thread_and_is_no_history(words: str, provider: str, invoke: Invoke) -> None:
    said = [TextDelta(words)] if words else []
    answer = as_stream(provider, *stream_of(provider, *said, Finish("refused", Usage(10, 5))))
    ended, _ = with_fake(invoke, provider, answer, "Hi.")
    ended.is_parked(f"^refused: .*{words or 'declined to answer|SAFETY'}")
    seen = bool(words) and ended.out.startswith(words)  # who watches may be too late for what ends at once
    assert ended.out.count("[it broke off; what was said since is taken back]") == seen
    history = invoke("threads", "history", "t", "--store", "agents.db", "--json").stdout
    assert [json.loads(line)["type"] for line in history.splitlines()] == ["user", "notice"]


# What may pass: it is tried again, and the thread is parked when that is no use

FAILING: list[tuple[str, Raw, str]] = [
    ("500", Raw(500, JSON, b'{"error":{"message":"boom"}}'), "overloaded: {} answers 500: boom"),
    ("529", Raw(529, JSON, b'{"error":{"message":"busy"}}'), "overloaded: {} answers 529: busy"),
    ("502 page", Raw(502, HTML, b"<html><title>Bad Gateway</title>"), "overloaded: {} answers 502: Bad Gateway"),
    ("429", Raw(429, JSON, b'{"error":{"message":"slow down"}}'), "rate_limited: {} answers 429: slow down"),
]


@each_wire
@pytest.mark.parametrize("answer,words", [row[1:] for row in FAILING], ids=[row[0] for row in FAILING])
def test_a_failure_that_may_pass_is_tried_again_and_told(
    answer: Raw, words: str, provider: str, invoke: Invoke
) -> None:
    ended, fake = with_fake(invoke, provider, answer, answer, "Hi.")
    ended.is_answered(f"— retry: {words.format(provider)}; attempt 2 of 6 in ", "; attempt 3 of 6 in ", r"\nHi\.\n$")
    assert len(fake.asked) == 3


BROKEN: list[tuple[str, bytes, str]] = [
    ("empty", b"", "the stream ended before the turn was complete"),
    ("no JSON", b"data: {nope\n\n", "{} sent what cannot be read: "),
    ("an array", b"data: []\n\n", "{} sent what cannot be read: "),
]


@each_wire
@pytest.mark.parametrize("body,words", [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_a_stream_that_cannot_be_read_is_tried_again_and_parks_the_thread_in_the_end(
    body: bytes, words: str, provider: str, invoke: Invoke
) -> None:
    ended, fake = with_fake(invoke, provider, *[as_stream(provider, body)] * 6, "Hi.")
    ended.is_parked(rf"^connection_lost: {words.format(provider)}.*\(gave up after 6 attempts\)$")
    assert ended.out.count("— retry: ") == 5
    assert len(fake.asked) == 6


@each_wire
def test_a_stream_that_breaks_in_the_middle_takes_back_what_it_said(provider: str, invoke: Invoke) -> None:
    half = as_stream(provider, *stream_of(provider, TextDelta("Half a sen")))
    ended, _ = with_fake(invoke, provider, half, "Hi.")
    ended.is_answered(
        r"^(Half a sen\n\[it broke off; what was said since is taken back\]\n)?— retry: connection_lost: "
    )
    assert "Half" not in invoke("threads", "history", "t", "--store", "agents.db").stdout.replace("retry", "")


@each_wire
def test_c52_a_rate_limit_of_an_hour_puts_the_thread_off_and_the_command_leaves(provider: str, invoke: Invoke) -> None:
    slow = Raw(429, {**JSON, "retry-after": "3600"}, b'{"error":{"message":"slow down"}}')
    ended, fake = with_fake(invoke, provider, slow, "Hi.")
    ended.is_clear()
    assert f"— retry: rate_limited: {provider} answers 429: slow down; attempt 2 of 6 in 3600 s\n" in ended.out
    assert ended.err.startswith("Thread t is put off, and tries again when its time has come. It goes on with: ")
    assert (ended.code, ended.state["status"], ended.state["activity"]) == (5, "open", "retrying")
    assert (ended.state["waiting"], len(fake.asked)) == (1, 1)


# What is odd, and understood


@each_wire
def test_a_stream_of_single_bytes_is_a_stream(provider: str, invoke: Invoke) -> None:
    ended, _ = with_fake(invoke, provider, turn("Grüße 😀", call("look", place="ä")), "Done.", chunks=1)
    ended.is_answered("^Grüße 😀\n→ look .*ä.*\n← look: nothing at ä\nDone.\n$")


@pytest.mark.parametrize("provider", [name for name in WIRES if name != "bedrock"])
def test_bytes_that_are_no_utf8_become_a_mark_and_end_nothing(provider: str, invoke: Invoke) -> None:
    body = b"".join(stream_of(provider, TextDelta("Hello there."), END)).replace(b"Hello", b"H\xff\xfello")
    ended, _ = with_fake(invoke, provider, as_stream(provider, body))
    ended.is_answered("^H\ufffd\ufffdllo there.\n$")


def test_the_end_of_the_chat_api_may_be_missing(invoke: Invoke) -> None:
    events = [event for event in stream_of("openai-chat", TextDelta("Hello."), END) if b"[DONE]" not in event]
    ended, _ = with_fake(invoke, "openai-chat", as_stream("openai-chat", *events))
    ended.is_answered("^Hello.\n$")


@each_wire
def test_usage_may_be_missing_and_counts_nothing(provider: str, invoke: Invoke) -> None:
    events = stream_of(provider, TextDelta("Hello."), END)
    if provider == "bedrock":
        events = [event for event in events if b'"usage"' not in event]
    found = rb'"usage(Metadata)?":\s*\{[^{}]*(\{[^{}]*\}[^{}]*)*\}'
    ended, _ = with_fake(invoke, provider, as_stream(provider, re.sub(found, b'"other":0', b"".join(events))))
    ended.is_answered("^Hello.\n$")
    assert set(ended.state["usage"].values()) == {0}


@each_wire
def test_two_calls_that_are_written_at_the_same_time_are_told_apart(provider: str, invoke: Invoke) -> None:
    pieces: list[StreamPiece] = [
        CallStarted(0, "look"),
        CallStarted(1, "look"),
        CallDelta(1, '{"place":'),
        CallDelta(0, '{"place":"'),
    ]
    pieces += [CallDelta(1, '"one"}'), CallDelta(0, 'two"}'), CallEnded(1), CallEnded(0), END]
    ended, _ = with_fake(invoke, provider, as_stream(provider, *stream_of(provider, *pieces)), "Done.")
    ended.is_answered("\n← look: nothing at one\n", "\n← look: nothing at two\n", "\nDone.\n$")


@each_wire
def test_a_call_without_arguments_is_one_with_none(provider: str, invoke: Invoke) -> None:
    answer = as_stream(provider, *stream_of(provider, CallStarted(0, "look"), CallEnded(0), END))
    ended, _ = with_fake(invoke, provider, answer, "Done.")
    ended.is_answered("^→ look\n← look: nothing at here\nDone.\n$")


@pytest.mark.parametrize("provider", [name for name in WIRES if name != "google"])
def test_a_call_that_the_output_limit_cuts_is_not_run_and_parks_the_thread_only_if_it_goes_on(
    provider: str, invoke: Invoke
) -> None:
    half = cut("I look. ", call_raw("look", '{"pla'))
    ended, _ = with_fake(invoke, provider, half, "Done.")
    ended.is_answered("^I look. \n→ look\n✗ look: Not run: the output limit cut this call off .*\nDone.\n$")
    Path("agents.db").unlink()
    ended, fake = with_fake(invoke, provider, *[half] * 9)
    ended.is_parked("^look failed the same way 5 times in a row: Not run: the output limit cut this call off")
    assert len(fake.asked) == 5


# What stands at an address, beside the wire of any provider

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def read_out(reader: asyncio.StreamReader) -> None:
    """Read a whole request: to close over unread bytes is to reset the connection, not to end it."""
    head = await reader.readuntil(b"\r\n\r\n")
    size = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    await reader.readexactly(int(size[1]) if size else 0)


@asynccontextmanager
async def served(answer: Answer, secure: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Answer every request so; yields the port."""
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is not None:
            serving.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, asyncio.CancelledError):
                await read_out(reader)
                await answer(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=secure)
    yield server.sockets[0].getsockname()[1]
    server.close()
    for task in serving:
        task.cancel()
    await asyncio.gather(*serving, return_exceptions=True)


def says(*parts: bytes, kind: bytes = b"text/event-stream", again: bytes = b"", head: bytes = b"") -> Answer:
    """Return an answer of these bytes; then `again` and again, for ever."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: " + kind + b"\r\n" + head + b"\r\n" + b"".join(parts))
        await writer.drain()
        while again:
            writer.write(again * 100)
            await writer.drain()

    return answer


async def hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def resets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


TEXT = msgspec.json.encode({"choices": [{"index": 0, "delta": {"content": "word " * 50}, "finish_reason": None}]})

ENDLESS: list[tuple[str, Answer, str]] = [
    ("text", says(again=b"data: " + TEXT + b"\n\n"), "^output_truncated: the answer has no end: more than 200,000 "),
    ("event", says(b"data: ", again=b"x"), "^output_truncated: an event of the answer has no end: more than 100,000 "),
    ("page", says(b"<html>", again=b"x", kind=b"text/html"), "^invalid_request: .* answers with text/html where a "),
    ("object", says(b"{", again=b" ", kind=b"application/json"), "^invalid_request: .* with application/json where a "),
]


@pytest.mark.parametrize("answer,words", [row[1:] for row in ENDLESS], ids=[row[0] for row in ENDLESS])
def test_what_has_no_end_is_given_up_and_parks_the_thread_at_once(answer: Answer, words: str, invoke: Invoke) -> None:
    with beside(served(answer)) as port:
        Ended(invoke, "openai-chat", f"http://127.0.0.1:{port}/v1", KEY).is_parked(words)


LOST: list[tuple[str, Answer, str]] = [
    ("hangs up", hangs_up, "disconnected without sending a response"),
    ("resets", resets, "Connection reset by peer"),
    ("half", says(b"data: {", head=b"content-length: 500\r\n"), "without sending complete message body"),
    ("garbled", says(b"no gzip", head=b"content-encoding: gzip\r\n"), "while decompressing data"),
]


@pytest.mark.parametrize("answer,words", [row[1:] for row in LOST], ids=[row[0] for row in LOST])
def test_a_connection_that_fails_is_tried_again_and_parks_the_thread_in_the_end(
    answer: Answer, words: str, invoke: Invoke
) -> None:
    with beside(served(answer)) as port:
        ended = Ended(invoke, "anthropic", f"http://127.0.0.1:{port}", KEY)
    ended.is_parked(
        rf"^connection_lost: anthropic at http://127.0.0.1:{port}: .*{words}.* \(gave up after 6 attempts\)$"
    )
    assert ended.out.count("— retry: ") == 5


def test_nobody_at_an_address_and_a_name_that_nobody_has_are_told_apart(invoke: Invoke) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    ended = Ended(invoke, "anthropic", f"http://127.0.0.1:{port}", KEY)
    ended.is_parked(rf"^connection_lost: anthropic at http://127.0.0.1:{port}: .*connection.* \(gave up after 6 ")
    Path("agents.db").unlink()
    ended = Ended(invoke, "anthropic", "http://no-such-host.invalid", KEY)
    ended.is_parked(r"^connection_lost: anthropic at http://no-such-host.invalid: \[Errno .*\(gave up after 6 ")


def test_a_certificate_that_is_not_trusted_is_told_with_what_to_do(invoke: Invoke) -> None:
    secure = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("localhost").configure_cert(secure)
    with beside(served(hangs_up, secure)) as port:
        ended = Ended(invoke, "anthropic", f"https://localhost:{port}", KEY)
    ended.is_parked("^connection_lost: .*certificate verify failed: .*; SSL_CERT_FILE names the authorities to trust")


def test_https_where_there_is_none_is_a_connection_that_fails(invoke: Invoke) -> None:
    with beside(FakeProvider(AnthropicWire(KEY))) as fake:
        ended = Ended(invoke, "anthropic", fake.url.replace("http:", "https:"), KEY)
    ended.is_parked(r"^connection_lost: anthropic at https://127.0.0.1:\d+: .*\(gave up after 6 attempts\)$")


@pytest.mark.parametrize(
    "url,words",
    [
        ("127.0.0.1:8000", "the url of anthropic, '127.0.0.1:8000', is not an http or https address"),
        ("http://127.0.0.1:99999", "the url of anthropic cannot be read: Port out of range 0-65535"),
        ("https://me:secret@x.example", "the url of anthropic has a user name in it, which is not sent"),
    ],
)
def test_what_is_no_address_is_refused_before_there_is_a_thread(url: str, words: str, invoke: Invoke) -> None:
    ended = Ended(invoke, "anthropic", url, KEY)
    assert (ended.code, ended.out, ended.state) == (2, "", {})
    assert words in ended.err
    assert "secret" not in ended.err
    assert ended.err.count("\n") == 1
