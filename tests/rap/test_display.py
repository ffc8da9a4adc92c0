"""Display scripts: what is evaluated and how, what is not, and that none of them fails or takes long."""

import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.rap.display import LONGEST_DISPLAY, display_of
from hibernaut.rap.limits import LONGEST_SCRIPT
from tests.rap.made import OBJECTS

ARGS: dict[str, Any] = {
    "path": "a/b.txt",
    "n": 3,
    "half": 0.5,
    "all": True,
    "none": None,
    "in": {"er": {"most": "deep"}, "odd key": 1},
    "list": ["x", "y"],
    "text": 'say "hi"',
    "two": "one\ntwo",
}
WHOLE = 'tool({"n":3})'


def shown(script: str, args: dict[str, Any] = ARGS) -> str | None:
    """Return what a script yields, None if it is not evaluated."""
    line = display_of(script, "tool", args)
    return None if line.startswith("tool(") else line


@pytest.mark.parametrize(
    "script, expected",
    [
        ('"Reading " + args.path', "Reading a/b.txt"),
        ('"Reading " + args["path"]', "Reading a/b.txt"),
        ("'c' + args['path']", None),
        ('"n=" + args.n + " " + args.half + " " + args.all', "n=3 0.5 true"),
        ('1 + 2 + "x" + 1 + 2', "3x12"),
        ('"" + (10 - 3 - 2) + -args.n', "5-3"),
        ('"[" + args.missing + args.none + "]"', "[]"),
        ('args.in.er.most + args["in"]["odd key"]', "deep1"),
        ("args.list[0] + args.list[-1] + args.path[1]", "xy/"),
        ('"a" + args.missing?.x?["y"]?.z', "a"),
        ('args.missing ?? "nothing"', "nothing"),
        ('"got " + (args.path ?? args.never.there)', "got a/b.txt"),
        ('if args.missing == () { "without" } else { "with " + args.missing }', "without"),
        ('if args.n > 2 && args.all { "many" } else { "few" }', "many"),
        ('if args.n < 2 { "a" } else if args.n == 3 { "b" } else { "c" }', "b"),
        ('if args.n < 2 { "a" } else if args.n == 4 { "b" } else { "c" }', "c"),
        ('"x" + if !args.all || args.n <= 3.0 { " yes" } else { " no" }', "x yes"),
        ('if args.n != "3" && args.path >= "a" { "other kinds differ" }', "other kinds differ"),
        ('if "path" in args && "b.t" in args.path && "x" in args.list { "in" }', "in"),
        ('let p = args.path; let q = p + "!"; "see " + q', "see a/b.txt!"),
        ('if true { let p = "inner"; p } else { () }', "inner"),
        ("`Reading ${args.path} (${args.n + 1})`", "Reading a/b.txt (4)"),
        ('`${if args.all { `all of ${args.path}` } else { "}" }} and ``more```', "all of a/b.txt and `more`"),
        ("`\nfrom the next line`", "from the next line"),
        (r'"tab\tquote\" ""two"" \x41\u00fc\U0001F600 \\"', 'tab quote" "two" Aü😀 \\'),
        ('"over \\\n     the line"', "over the line"),
        ('// a comment\n"text" /* and\n another */ + "!"', "text!"),
        ("args.two", "one two"),
        ('"\\x1b[31mred"', "[31mred"),
        ('1_000 + " and " + 1.5e2', "1000 and 150.0"),
        # what is not evaluated
        ("args.n", None),
        ("()", None),
        ('"   "', None),
        ("", None),
        ("args.list", None),
        ('"x" + args.list', None),
        ('"x" + unknown', None),
        ('"x" + args.never.there', None),
        ('"x" + args.list[2]', None),
        ('"x".to_upper()', None),
        ('print("x")', None),
        ('if args.n { "x" }', None),
        ('if args.list == args.list { "x" }', None),
        ('"x" * 3', None),
        ('"x', None),
        ('"x\ny"', None),
        ("`x", None),
        ("`${args.n`", None),
        (r'"\q"', None),
        (r'"\ud800"', None),
        ('"x" }', None),
        ('"x" "y"', None),
        ('let while = 1; "x"', None),
        ("let x = 1", None),
        ('"" + 9223372036854775807 + 1', "92233720368547758071"),
        ('"" + (9223372036854775807 + 1)', None),
        ("(" * 40 + '"x"' + ")" * 40, None),
        ("(" * 20 + '"x"' + ")" * 20, "x"),
        ("!" * 4_000 + "true", None),
        ('"' + "x" * LONGEST_SCRIPT + '"', None),
    ],
)
def test_a_script_yields(script: str, expected: str | None) -> None:
    assert shown(script) == expected


LOOPS = [
    "loop { }",
    "while true { }",
    "for x in 0..1000000000 { }",
    'let x = 0; while x >= 0 { x = x + 1; } "done"',
    "do { } while true;",
    "fn f() { f() } f()",
    'if false { loop { } } else { "fine" }',
]


@pytest.mark.parametrize("script", LOOPS)
def test_a29_a_script_that_loops_falls_back_to_the_call(script: str) -> None:
    assert display_of(script, "tool", {"n": 3}) == WHOLE


def test_a29_the_heaviest_script_over_the_largest_arguments_is_quick() -> None:
    args: dict[str, Any] = {"a": "x" * 1_000_000, "l": ["y" * 100] * 100, "m": {str(n): n for n in range(10_000)}}
    scripts = [
        "+".join(["args.a"] * (LONGEST_SCRIPT // 7)),
        "let a = args.a;" + "a = a;" + "let a = a + a;" * 280 + "a",
        "let a = args.a;" + "let a = a + a;" * 280 + "a",
        "if " + "||".join(['"z"in args.l'] * 270) + '{"x"}',
        "if " + "||".join(['args.a+"z"in args.a'] * 190) + '{"x"}',
        "if " + "&&".join(["args.a==args.a"] * 250) + '{"x"}',
        "`" + "${args.a}" * 450 + "`",
        "/*" * 2_048,
        "`${" * 1_300,
    ]
    began = time.process_time()
    for script in scripts:
        assert len(script) <= LONGEST_SCRIPT
        assert 0 < len(display_of(script, "tool", args)) <= LONGEST_DISPLAY
    assert time.process_time() - began < 2


def test_the_call_itself_is_one_clean_line_of_bounded_length() -> None:
    assert display_of("", "tool", {}) == "tool()"
    line = display_of("", "tool", {"text": "a\nb\x1b[31m\x00" + "x" * 10_000})
    assert line.startswith('tool({"text":"a')
    assert line.endswith("…")
    assert len(line) <= LONGEST_DISPLAY
    assert line.isprintable()
    assert display_of("", "x" * 10_000, {"a": 1}).endswith("…")
    assert display_of("", "tool", {"a": object()}) == "tool(…)"
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    assert display_of("args.a == args.a", "tool", {"a": nested}) == "tool(…)"


PIECES = st.sampled_from(
    re.findall(
        r"\S+",
        """args .n ["n"] + - ! == < && || ?? in ( ) { } if else let a = ;
        "text" ` ${ 1 2.5 () true ?. ?[ ] [ while \\ " '""",
    )
    + [" "] * 5
)


@given(st.lists(PIECES, max_size=60).map("".join) | st.text(max_size=60), OBJECTS | st.just(ARGS))
def test_no_script_fails_and_each_shows_something(script: str, args: dict[str, Any]) -> None:
    line = display_of(script, "tool", args)
    assert 0 < len(line) <= LONGEST_DISPLAY
    assert "\n" not in line
