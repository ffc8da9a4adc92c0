import msgspec
import pytest

from hibernaut.messages.text import join_surrogates
from hibernaut.models.json_text import read_json


class Event(msgspec.Struct):
    text: str = ""
    number: int = 0


EVENTS = msgspec.json.Decoder(Event)


def test_half_a_character_is_kept_until_the_other_half_is_there() -> None:
    halves = [read_json('{"text":"a\\ud83d","new":1}', EVENTS), read_json('{"text":"\\ude00b"}', EVENTS)]
    assert join_surrogates("".join([half.text for half in halves])) == "a😀b"


@pytest.mark.parametrize("text", ["", "{", '{"number":"x"}', '{"number":"\\ud83d"}', "[]", '{"text":"\\ud83'])
def test_what_cannot_be_read_is_said_to_be(text: str) -> None:
    with pytest.raises((msgspec.DecodeError, ValueError)):
        read_json(text, EVENTS)
