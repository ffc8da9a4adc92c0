import re

from hibernaut.messages.items import CallItem
from hibernaut.models.call_ids import CallIds


def test_the_providers_own_id_is_used_where_it_is_fit_and_not_yet_another_calls() -> None:
    ids = CallIds()
    assert ids.begin(CallItem("c1", "read", provider_id="toolu_1")) == "toolu_1"
    again = ids.begin(CallItem("c2", "read", provider_id="toolu_1"))
    assert again != "toolu_1"
    assert (ids.of("c1"), ids.of("c2")) == ("toolu_1", again)


def test_an_id_of_another_alphabet_or_length_is_replaced_by_one_that_fits() -> None:
    fit = r"[a-zA-Z0-9]{9}|call_[a-z0-9]+"
    for name in ("", "a b", "ü", "x" * 65, "functions.read:0"):
        made = CallIds(fit).begin(CallItem("c1", "read", provider_id=name))
        assert re.fullmatch(fit, made)


def test_the_same_transcript_has_the_same_ids() -> None:
    calls = [CallItem(f"c{number}", "read", provider_id="call_0") for number in range(20)]
    one, other = CallIds(), CallIds()
    names = [one.begin(call) for call in calls]
    assert names == [other.begin(call) for call in calls]
    assert len(set(names)) == 20
