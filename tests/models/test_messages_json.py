import json
from itertools import pairwise
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.models.messages_json import MessageList

Blocks = list[tuple[Literal["user", "model"], int]]
MARK = b',"mark":true'


def messages() -> MessageList:
    return MessageList(b'{"role":"user","content":[', b'{"role":"assistant","content":[')


def block(number: int) -> bytes:
    return b'{"n":%d}' % number


@given(st.lists(st.tuples(st.sampled_from(["user", "model"]), st.integers(0, 10**6))))
def test_messages_take_turns_and_hold_every_block_in_order(blocks: Blocks) -> None:
    written = messages()
    for side, number in blocks:
        written.add(side, block(number))
    read: list[dict[str, Any]] = json.loads(written.text())
    roles = [message["role"] for message in read]
    assert all(one != other for one, other in pairwise(roles))
    said = [(message["role"], entry["n"]) for message in read for entry in message["content"]]
    assert said == [({"user": "user", "model": "assistant"}[side], number) for side, number in blocks]


@given(st.lists(st.tuples(st.sampled_from(["user", "model"]), st.integers(0, 10**6)), min_size=1))
def test_what_stands_before_the_mark_stays_the_same_byte_for_byte(blocks: Blocks) -> None:
    written, before = messages(), b""
    for side, number in blocks:
        written.add(side, block(number))
        marked = written.text(MARK)
        assert marked.startswith(before)
        assert json.loads(marked)[-1]["content"][-1] == {"n": number, "mark": True}
        before = marked[: marked.rindex(MARK)]


def test_its_size_is_what_it_holds() -> None:
    written = messages()
    for number in range(50):
        written.add("user" if number % 3 else "model", block(number))
    assert written.size == len(written.text()) - len(b"}]}]")


@pytest.mark.parametrize("mark", [b"", MARK])
def test_without_a_block_it_is_an_empty_array(mark: bytes) -> None:
    assert messages().text(mark) == b"[]"
