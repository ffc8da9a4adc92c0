"""Authorities: the first rule that is about a call decides, and of all that binds a thread the strictest."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.codec import pack
from hibernaut.errors import ConfigurationError
from hibernaut.kernel.authority import (
    MOST_VALUES,
    STRICTEST,
    Authority,
    Condition,
    Decision,
    Facts,
    Judge,
    Rule,
    check_authority,
    digest_of,
    matches,
    narrowed,
)

PAY = {"amount": 250, "to": {"name": "ann", "country": "DE"}, "items": [{"price": 3}, {"price": 40}], "express": True}


def decide(authority: Authority, tool: str = "pay", arguments: Any = None, facts: Facts | None = None) -> str:
    return Judge(authority).decide(tool, facts or Facts(), PAY if arguments is None else arguments).decision


def rules(*given: Rule, default: Decision = "allow") -> Authority:
    return check_authority(Authority(rules=given, default=default))


def test_everything_is_allowed_unless_somebody_says_otherwise() -> None:
    assert decide(Authority()) == "allow"
    assert Judge(Authority()).is_open
    assert not Judge(Authority(default="ask")).is_open


def test_the_first_rule_that_is_about_a_call_decides() -> None:
    authority = rules(Rule(decision="allow", tools=("pay",)), Rule(decision="deny"), default="ask")
    assert (decide(authority), decide(authority, "order")) == ("allow", "deny")
    broke = Rule(decision="deny", tools=("pay*",), reason="no money")
    judgement = Judge(rules(broke)).decide("pay", Facts(), {})
    assert (judgement.reason, judgement.rule) == ("no money", broke)


@pytest.mark.parametrize(
    "pattern, text, expected",
    [
        ("*", "", True),
        ("read_*", "read_file", True),
        ("read_*", "unread_file", False),
        ("*_file", "read_file", True),
        ("a*a", "a", False),
        ("a*b*c", "axxbyyc", True),
        ("a*b*c", "acb", False),
        ("re.d", "read", False),
        ("", "", True),
    ],
)
def test_a_star_stands_for_anything_and_nothing_else_is_special(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected


def test_a_pattern_that_could_take_for_ever_does_not() -> None:
    assert not matches("a*" * 1_000 + "b", "a" * 50_000)


@pytest.mark.parametrize(
    "test, expected",
    [
        (Condition(path="$.amount", above=100), True),
        (Condition(path="$.amount", above=250), False),
        (Condition(path="$.amount", above=100, below=200), False),
        (Condition(path="$.to.country", one_of=("DE", "FR")), True),
        (Condition(path="$.to.country", equals="FR"), False),
        (Condition(path="$.to.name", matches=("a*",)), True),
        (Condition(path="$.items[*].price", above=30), True),
        (Condition(path="$.items[*].price", above=30, every=True), False),
        (Condition(path="$.items[0].price", equals=3), True),
        (Condition(path="$.items[7].price", equals=3), False),
        (Condition(path='$["amount"]', equals=250), True),
        (Condition(path="$.express", equals=True), True),
        (Condition(path="$.express", equals=1), False),
        (Condition(path="$.express", above=0), False),
        (Condition(path="$.note", exists=False), True),
        (Condition(path="$.note", exists=True), False),
        (Condition(path="$.note", equals=None), False),
        (Condition(path="$.note", equals="x", every=True), False),
        (Condition(path="$", exists=True), True),
    ],
)
def test_arguments_are_found_by_their_path_and_held_against_what_is_demanded(test: Condition, expected: bool) -> None:
    authority = rules(Rule(decision="deny", arguments=(test,)))
    assert decide(authority) == ("deny" if expected else "allow")


def test_whoever_hides_a_value_among_too_many_is_restricted_all_the_same() -> None:
    many = {"items": [{"price": 1}] * (MOST_VALUES + 1)}
    test = Condition(path="$.items[*].price", above=5)
    assert decide(rules(Rule(decision="deny", arguments=(test,))), arguments=many) == "deny"
    assert decide(rules(Rule(decision="allow", arguments=(test,)), default="ask"), arguments=many) == "ask"


def test_annotations_and_servers_tell_tools_apart() -> None:
    shared = Facts("ci.example", frozenset({"destructive"}))
    own = Facts("", frozenset({"read_only"}))
    destructive = rules(Rule(decision="ask", annotations=("destructive", "!read_only")))
    assert (decide(destructive, facts=shared), decide(destructive, facts=own)) == ("ask", "allow")
    remote = rules(Rule(decision="deny", servers=("*.example",)))
    assert (decide(remote, facts=shared), decide(remote, facts=own)) == ("deny", "allow")


def test_a_tool_that_no_pattern_names_is_neither_shown_nor_run() -> None:
    authority = Authority(tools=("read_*",), rules=(Rule(decision="allow"),))
    assert Judge(authority).shows("read_file")
    assert not Judge(authority).shows("pay")
    assert decide(authority) == "deny"


def test_a_child_has_its_parents_authority_or_less() -> None:
    careful = Authority(rules=(Rule(decision="ask", annotations=("destructive",)),))
    parent = msgspec.structs.replace(Authority(rules=(Rule(decision="deny", tools=("pay",)),)), children=careful)
    child = narrowed(parent, parent.children)
    grandchild = narrowed(child, child.children)
    wipes = Facts("", frozenset({"destructive"}))
    assert (decide(parent, "wipe", facts=wipes), decide(child, "wipe", facts=wipes)) == ("allow", "ask")
    assert [decide(one) for one in (parent, child, grandchild)] == ["deny"] * 3
    assert decide(grandchild, "wipe", facts=wipes) == "ask"
    assert narrowed(careful, None) is careful


DECISIONS = st.sampled_from(STRICTEST)
AUTHORITIES = st.builds(
    Authority,
    tools=st.sampled_from([("*",), ("pay",), ("read_*", "p*")]),
    default=DECISIONS,
    rules=st.lists(
        st.builds(
            Rule,
            decision=DECISIONS,
            tools=st.sampled_from([("*",), ("pay",), ("read_*",)]),
            annotations=st.sampled_from([(), ("destructive",), ("!read_only",)]),
            arguments=st.sampled_from([(), (Condition(path="$.amount", above=100),)]),
        ),
        max_size=3,
    ).map(tuple),
)
FACTS = st.builds(Facts, annotations=st.frozensets(st.sampled_from(["destructive", "read_only"])))


@given(AUTHORITIES, AUTHORITIES, st.sampled_from(["pay", "read_file", "wipe"]), FACTS)
def test_narrowing_never_allows_more(parent: Authority, more: Authority, tool: str, facts: Facts) -> None:
    child = narrowed(parent, more)
    before, after = (Judge(one).decide(tool, facts, PAY).decision for one in (parent, child))
    assert STRICTEST.index(after) >= STRICTEST.index(before)
    assert not (Judge(child).shows(tool) and not Judge(parent).shows(tool))


@given(AUTHORITIES, AUTHORITIES)
def test_an_authority_is_known_by_what_it_says(one: Authority, other: Authority) -> None:
    both = narrowed(one, other)
    assert msgspec.msgpack.decode(pack(both), type=Authority) == both
    assert (digest_of(one) == digest_of(other)) == (one == other)


@pytest.mark.parametrize(
    "authority, words",
    [
        (Authority(rules=(Rule(decision="ask", annotations=("dangerous",)),)), "no annotation 'dangerous'"),
        (
            Authority(rules=(Rule(decision="deny"), Rule(decision="deny", arguments=(Condition(path="amount"),)))),
            "rule 2: ",
        ),
        (Authority(rules=(Rule(decision="deny", arguments=(Condition(path="$.a..b", equals=1),)),)), "character 4"),
        (Authority(rules=(Rule(decision="deny", arguments=(Condition(path="$.a"),)),)), "demands nothing"),
        (Authority(rules=(Rule(decision="deny"),) * 257), "at most 256 rules"),
        (Authority(calls=-1), "calls is -1"),
        (Authority(children=Authority(tokens=-1)), "tokens is -1"),
        (Authority(dollars=float("nan")), "dollars is nan"),
        (Authority(dollars=float("inf")), "dollars is inf"),
    ],
)
def test_what_cannot_be_meant_is_refused(authority: Authority, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_authority(authority)
    assert words in str(caught.value)
