"""What servers of the Chat Completions API are sent."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.errors import ConfigurationError
from hibernaut.messages.items import CallItem, Item, ReasoningItem, ResultItem, TextItem, UserItem
from hibernaut.messages.parts import Excerpt, Image, Text
from hibernaut.models.openai.chat import ChatDialect
from hibernaut.models.openai.responses import ResponsesDialect
from hibernaut.models.openai.servers import SERVERS, server_of
from hibernaut.models.protocol import About, Memo
from hibernaut.testing.providers.openai_chat import MANNERS, ChatWire
from tests.models.histories import transcripts
from tests.models.openai.setting import HELLO, LOOK, PICTURE, asking, body_of, chat, model_of, verdict

PNG = Image("image/png", PICTURE)
URL = "data:image/png;base64,iVBOR"


def thought(server: str, **fields: Any) -> ReasoningItem:
    return ReasoningItem(f"openai-chat/{server}", msgspec.json.encode(fields))


def written(*transcript: Item, server: str = "openai", model: str = "some-model") -> list[dict[str, Any]]:
    """Return the messages after the first, which a strict fake takes if there is one of that server."""
    asked, made = asking(*transcript, tools=[LOOK]), chat(server, model)
    if server in MANNERS and (server not in ("vllm", "llamacpp", "lmstudio") or "mistral" in model):
        assert verdict(ChatWire(server), made, asked) is None
    messages: list[dict[str, Any]] = body_of(made, asked)["messages"]
    assert messages[0] == {"role": "system", "content": "Be kind."}
    return messages[1:]


def call_of(call_id: str, name: str = "look", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_conversation_becomes_messages() -> None:
    calls = [CallItem("c1", "look", '{"path":"a"}', "call_a"), CallItem("c2", "look", "{}", "call_b")]
    results = [ResultItem("c1", "hello"), ResultItem("c2", "no", is_error=True)]
    assert written(HELLO, TextItem("I look."), *calls, *results, TextItem("Hi."), HELLO) == [
        {"role": "user", "content": "Say hello."},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [call_of("call_a", arguments='{"path":"a"}'), call_of("call_b")],
        },
        {"role": "tool", "tool_call_id": "call_a", "content": "hello"},
        {"role": "tool", "tool_call_id": "call_b", "content": "Error: no"},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "Say hello."},
    ]


def test_a_turn_is_one_message_and_so_is_what_the_user_says_in_a_row() -> None:
    turn: list[Item] = [TextItem("a"), CallItem("c1", "look", "{}", "call_a"), TextItem("b")]
    found = written(UserItem("1"), UserItem("2"), *turn, ResultItem("c1", "x"), UserItem("3"), UserItem("4"))
    assert found == [
        {"role": "user", "content": "1\n\n2"},
        {"role": "assistant", "content": "a\n\nb", "tool_calls": [call_of("call_a")]},
        {"role": "tool", "tool_call_id": "call_a", "content": "x"},
        {"role": "user", "content": "3\n\n4"},
    ]


def test_a_turn_of_calls_has_no_content() -> None:
    found = written(HELLO, CallItem("c1", "look", "{}", "call_a"), ResultItem("c1", "x"))
    assert found[1] == {"role": "assistant", "content": None, "tool_calls": [call_of("call_a")]}


@pytest.mark.parametrize("server", ["openai", "mistral", "deepseek"])
def test_more_calls_than_a_message_may_have_are_several_messages_each_with_its_results(server: str) -> None:
    calls = [CallItem(f"c{number}", "look", "{}") for number in range(300)]
    results = [ResultItem(call.id, PNG.media_type if number else (PNG,)) for number, call in enumerate(calls)]
    found = written(HELLO, TextItem("I look."), *calls, *results, server=server)
    made = [message for message in found if message["role"] == "assistant" and "tool_calls" in message]
    assert [(message["content"], len(message["tool_calls"])) for message in made] == [
        ("I look.", 128),
        (None, 128),
        (None, 44),
    ]
    ids = [call["id"] for message in made for call in message["tool_calls"]]
    assert [message["tool_call_id"] for message in found if message["role"] == "tool"] == ids
    assert found[-1]["role"] == ("tool" if server == "deepseek" else "user"), "pictures follow the last of all results"


def test_texts_are_one_text_and_images_are_parts() -> None:
    texts = (Text("a"), Excerpt("b", b"\x01" * 32, 9))
    assert written(UserItem(texts))[0]["content"] == "a\nb"
    content = written(UserItem((*texts, PNG, Text("c"))), UserItem("d"))[0]["content"]
    assert [part.get("text", part["type"]) for part in content] == ["a\nb", "image_url", "c", "d"]
    assert content[1]["image_url"]["url"].startswith(URL)


def test_images_in_results_follow_all_results_of_the_turn_and_say_whose_they_are() -> None:
    calls = [CallItem("c1", "look", "{}", "call_a"), CallItem("c2", "wait", "{}", "call_b")]
    results = [ResultItem("c1", (Text("two:"), PNG, Text("and"), PNG)), ResultItem("c2", (PNG,))]
    found = written(HELLO, *calls, *results, UserItem("Well?"))
    assert [message["role"] for message in found] == ["user", "assistant", "tool", "tool", "user"]
    shown = "[image 1: shown below the results]"
    assert found[2]["content"] == f"two:\n{shown}\nand\n{shown.replace('1', '2')}"
    assert found[3]["content"] == shown
    assert [part.get("text", part["type"]) for part in found[4]["content"]] == [
        "Image 1 in the result of the call call_a of look:",
        "image_url",
        "Image 2 in the result of the call call_a of look:",
        "image_url",
        "Image 1 in the result of the call call_b of wait:",
        "image_url",
        "Well?",
    ]


def test_an_image_that_cannot_be_shown_is_a_word_in_its_result() -> None:
    found = written(HELLO, CallItem("c1", "look"), ResultItem("c1", (Text("see"), Image("image/tiff", b"II*\0"))))
    assert found[2]["content"] == "see\n[an image (image/tiff), of a kind that cannot be shown]"


CALLED = (HELLO, CallItem("c1", "look", "{}", "call_a"), ResultItem("c1", "x"), UserItem("Stop."))


@pytest.mark.parametrize(
    "server,model,bridged",
    [
        ("mistral", "any", True),
        ("vllm", "mistralai/Devstral-Small", True),
        ("llamacpp", "gemma-3-mistral", True),
        ("ollama", "mixtral:8x7b", True),
        ("elsewhere", "Mistral-Nemo", True),
        ("vllm", "Qwen3-32B", False),
        ("openai", "mistral", False),
        ("groq", "mistral-saba", False),
    ],
)
def test_the_user_does_not_speak_right_after_results_where_templates_forbid_it(
    server: str, model: str, bridged: bool
) -> None:
    found = written(*CALLED, server=server, model=model)
    roles = ["user", "assistant", "tool", *(["assistant"] if bridged else []), "user"]
    assert [message["role"] for message in found] == roles
    assert (len(found[1]["tool_calls"][0]["id"]) == 9) is bridged


def test_an_image_in_a_result_keeps_the_order_where_templates_are_strict() -> None:
    found = written(
        HELLO, CallItem("c1", "look"), ResultItem("c1", (PNG,)), TextItem("Black."), HELLO, server="mistral"
    )
    assert [message["role"] for message in found] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
        "user",
    ]


def test_ids_of_nine_letters_and_digits_are_all_different() -> None:
    given = ["abcdefghi", "abcdefghi", "call_a", ""]
    calls = [CallItem(f"c{number}", "look", "{}", each) for number, each in enumerate(given)]
    results = [ResultItem(call.id, "x") for call in calls]
    made = [call["id"] for call in written(HELLO, *calls, *results, server="mistral")[1]["tool_calls"]]
    assert made[0] == "abcdefghi"
    assert len(set(made)) == 4


# Reasoning


def test_reasoning_goes_back_where_it_is_wanted() -> None:
    for server, name in (("vllm", "reasoning"), ("llamacpp", "reasoning_content"), ("ollama", "reasoning")):
        own = [thought(server, **{name: "Let me "}), thought(server, **{name: "see."})]
        foreign = [thought("elsewhere", reasoning="x"), ReasoningItem("openai", b"{}")]
        message = written(HELLO, *own, *foreign, TextItem("Hi."), HELLO, server=server, model="a-mistral")[1]
        assert message == {"role": "assistant", "content": "Hi.", name: "Let me see."}


def test_reasoning_in_parts_goes_back_in_parts() -> None:
    parts = [{"type": "reasoning.text", "text": "x", "signature": "s"}]
    items: list[Item] = [thought("openrouter", reasoning_details=parts), CallItem("c1", "look"), TextItem("a")]
    again = thought("openrouter", reasoning_details=[{"type": "reasoning.encrypted", "data": "d"}])
    found = written(HELLO, *items, again, TextItem("b"), ResultItem("c1", "x"), server="openrouter")
    assert found[1]["reasoning_details"] == [*parts, {"type": "reasoning.encrypted", "data": "d"}]


@pytest.mark.parametrize("server", ["openai", "groq", "mistral", "lmstudio", "azure", "elsewhere"])
def test_reasoning_is_not_sent_where_it_is_refused(server: str) -> None:
    found = written(HELLO, thought(server, reasoning_content="x"), TextItem("Hi."), HELLO, server=server)
    assert found[1] == {"role": "assistant", "content": "Hi."}


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b'{"reasoning":'])
def test_reasoning_that_cannot_be_read_is_left_out(data: bytes) -> None:
    assert len(written(HELLO, ReasoningItem("openai-chat/vllm", data), TextItem("x"), HELLO, server="vllm")) == 3


@pytest.mark.parametrize("server", ["deepseek", "moonshot"])
def test_a_turn_of_another_provider_owes_no_thoughts(server: str) -> None:
    found = written(HELLO, ReasoningItem("openai", b"{}"), CallItem("c1", "look"), ResultItem("c1", "x"), server=server)
    assert found[1]["reasoning_content"] == ""
    own = written(
        HELLO, thought(server, reasoning_content="hm"), CallItem("c1", "look"), ResultItem("c1", "x"), server=server
    )
    assert own[1]["reasoning_content"] == "hm"


# The rest of the request


def fields(server: str, model: str = "some-model", **settings: Any) -> dict[str, Any]:
    body = body_of(chat(server, model, **settings), asking(tools=[LOOK]))
    return {name: value for name, value in body.items() if name not in ("messages", "tools", "model", "stream")}


USAGE = {"stream_options": {"include_usage": True}}


def test_each_server_is_asked_with_its_own_fields() -> None:
    openai = {**USAGE, "max_completion_tokens": 9, "prompt_cache_key": "root"}
    assert fields("openai", max_output=9) == openai
    assert fields("openai", "gpt-5", max_output=9, effort="low") == {**openai, "reasoning_effort": "low"}
    assert fields("openai", "gpt-4.1", max_output=9, effort="low", cache=False) == {**USAGE, "max_completion_tokens": 9}
    assert fields("mistral", max_output=9, effort="low") == {"max_tokens": 9}
    assert fields("deepseek", effort="none") == {**USAGE, "thinking": {"type": "disabled"}}
    assert fields("openrouter", effort="high") == {**USAGE, "reasoning": {"effort": "high"}}
    assert fields("ollama", effort="none") == {**USAGE, "reasoning_effort": "none"}
    assert fields("vllm", effort="none") == {**USAGE, "chat_template_kwargs": {"enable_thinking": False}}
    assert fields("elsewhere", max_output=9, effort="low") == {**USAGE, "max_tokens": 9}


@pytest.mark.parametrize("server", MANNERS)
@pytest.mark.parametrize("effort", ["", "none", "low", "medium", "high"])
def test_each_server_takes_what_it_is_asked_with(server: str, effort: str) -> None:
    asked = asking(*CALLED, tools=[LOOK])
    assert verdict(ChatWire(server), chat(server, "a-mistral", effort=effort, max_output=100), asked) is None


def test_the_users_own_fields_win() -> None:
    body = body_of(chat("vllm", parameters={"stream_options": {"continuous": True}, "top_k": 5}), asking())
    assert body["stream_options"] == {"include_usage": True, "continuous": True}
    assert body["top_k"] == 5


def test_without_instructions_there_is_no_first_message() -> None:
    asked = msgspec.structs.replace(asking(), instructions="")
    assert body_of(chat("vllm"), asked)["messages"] == [{"role": "user", "content": "Say hello."}]


def test_a_server_that_nobody_knows_is_like_most_and_differences_can_be_said() -> None:
    assert server_of("elsewhere") == msgspec.structs.replace(SERVERS["compatible"], name="elsewhere")
    told = server_of("vllm", {"usage": False, "thinking": "thoughts", "images": {"count": 2}})
    assert (told.name, told.usage, told.thinking, told.images.count) == ("vllm", False, "thoughts", 2)
    for wrong in ({"usages": True}, {"usage": "yes"}):
        with pytest.raises(ConfigurationError, match="vllm"):
            server_of("vllm", wrong)


HISTORY = (
    HELLO,
    TextItem("Hi."),
    UserItem("Look."),
    CallItem("c1", "look", "{}", "call_1"),
    CallItem("c2", "look", "{}", "call_1"),
    ResultItem("c1", (PNG,)),
    ResultItem("c2", "x"),
    TextItem("It is black."),
    UserItem("And now?"),
    UserItem("Well?"),
    TextItem("Well."),
    UserItem((Text("see"), PNG)),
)


@pytest.mark.parametrize("server", ["openai", "mistral"])
def test_what_was_sent_is_the_beginning_of_what_is_sent_next(server: str) -> None:
    memo, model, before = Memo(), chat(server), b""
    for count in (1, 3, 7, 9, 10, 12):
        body = model.sent(asking(*HISTORY[:count], tools=[LOOK], memo=memo)).body
        assert body.startswith(before)
        assert body == model.sent(asking(*HISTORY[:count], tools=[LOOK])).body, "written at once it is the same"
        before = body.removesuffix(b"]}").removesuffix(b'"}').removesuffix(b"]}")
    child = model.sent(asking(*HISTORY, UserItem("You are a child."), tools=[LOOK], thread_id="child")).body
    assert child.startswith(before)


def test_a_long_transcript_is_written_alike_in_pieces_and_at_once() -> None:
    items: list[Item] = [item for number in range(800) for item in (UserItem(f"{number}?"), TextItem(f"{number}."))]
    for model in (chat("openai"), model_of(ResponsesDialect())):
        for instructions in ("Be kind.", ""):
            memo = Memo()
            for count in (3, 1_001, 1_023, 1_025, 1_201, 1_599):
                asked = msgspec.structs.replace(asking(*items[:count]), instructions=instructions)
                known = msgspec.structs.replace(asked, memo=memo)
                assert model.sent(known).body == model.sent(asked).body
                body = body_of(model, asked)
                assert len(body.get("messages", body.get("input"))) == count + (
                    "messages" in body and bool(instructions)
                )


def test_a_message_that_still_grows_becomes_parts_when_an_image_comes() -> None:
    memo, model = Memo(), chat("openai")
    assert body_of(model, asking(HELLO, memo=memo))["messages"][1]["content"] == "Say hello."
    content = body_of(model, asking(HELLO, UserItem((PNG,)), memo=memo))["messages"][1]["content"]
    assert [part["type"] for part in content] == ["text", "image_url"]
    writer = ChatDialect().writer(About("m"))
    writer.feed([HELLO, UserItem((PNG,))])
    assert writer.size > len(PICTURE), "what may still grow is counted, too"


def test_the_oldest_pictures_give_way() -> None:
    memo, model = Memo(), chat("groq")
    items: list[Item] = [item for _ in range(5) for item in (UserItem((PNG,)), TextItem("Black."))]
    for count in (1, 3, 5, 7, 9):
        body = body_of(model, asking(*items[:count], memo=memo))
        assert str(body).count("data:image") == (count + 1) // 2
    more = asking(*items, UserItem((PNG,)), memo=memo)
    assert str(body_of(model, more)).count("data:image") == 2
    assert verdict(ChatWire("groq"), model, more) is None


@given(st.sampled_from(sorted(MANNERS)), transcripts())
def test_every_valid_transcript_is_taken(server: str, transcript: list[Item]) -> None:
    assert verdict(ChatWire(server), chat(server, "a-mistral"), asking(*transcript, tools=[LOOK])) is None


def test_a_name_of_ones_own_keeps_reasoning_apart() -> None:
    dialect = ChatDialect(server_of("vllm"), "lab")
    items: list[Item] = [
        HELLO,
        ReasoningItem("lab", b'{"reasoning":"x"}'),
        thought("vllm", reasoning="y"),
        TextItem("Hi."),
        HELLO,
    ]
    assert body_of(model_of(dialect, "m"), asking(*items))["messages"][2]["reasoning"] == "x"
