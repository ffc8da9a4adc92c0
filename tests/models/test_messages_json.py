import json
from itertools import pairwise
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.models import messages_json
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


def test_a_second_mark_stands_where_the_users_side_ended_when_the_model_was_last_asked() -> None:
    written = messages()
    written.add("user", block(1))
    assert written.text(MARK, twice=True) == written.text(MARK)
    asked = written.text(MARK)[:-4]
    later: Blocks = [("model", 2), ("model", 3), ("user", 4), ("user", 5)]
    for side, number in later:
        written.add(side, block(number))
    again = written.text(MARK, twice=True)
    assert again.startswith(asked)
    assert [entry for message in json.loads(again) for entry in message["content"] if "mark" in entry] == [
        {"n": 1, "mark": True},
        {"n": 5, "mark": True},
    ]
    written.add("model", block(6))
    written.add("user", block(7))
    assert written.text(MARK, twice=True).count(MARK) == 2
    assert written.text() == written.text(MARK, twice=True).replace(MARK, b"")


@given(st.lists(st.tuples(st.sampled_from(["user", "model"]), st.integers(0, 10**6)), min_size=1), st.integers(1, 6))
def test_it_is_the_same_however_often_its_pieces_are_made_one(blocks: Blocks, most: int) -> None:
    one, other = messages(), messages()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages_json, "MOST_CHUNKS", most)
        for side, number in blocks:
            one.add(side, block(number))
            one.pieces()
        for side, number in blocks:
            other.add(side, block(number))
        assert one.text(MARK, twice=True) == other.text(MARK, twice=True)


def test_members_that_are_added_for_good_stay_whatever_follows() -> None:
    written = messages()
    written.add("user", block(1))
    written.add("model", block(2))
    before = written.size
    written.extend(MARK)
    assert written.size == before + len(MARK)
    written.add("model", block(3))
    assert json.loads(written.text())[1]["content"] == [{"n": 2, "mark": True}, {"n": 3}]
