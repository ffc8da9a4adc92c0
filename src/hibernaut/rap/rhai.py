"""The part of the Rhai language that display scripts are written in: one expression over the arguments of a call.

String literals, numbers, `true`, `false` and `()`; `args.x`, `args["x"]`, `args.list[0]`, `?.` and `?[`; `+`, `-`, `!`,
`&&`, `||`, `??`, `in` and comparisons; `if` with `else`; `let`; texts in back-ticks with `${…}`. Nothing here can
repeat, call or define anything, so a script is read once from its beginning to its end, and that is all it can cost.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from hibernaut.rap.limits import LONGEST_SCRIPT
from hibernaut.rap.rhai_values import NotUnderstood, apply, checked, joined, member, number, truth, written

DEEPEST: Final = 32
"""Expressions inside one another."""

_BLANKS: Final = re.compile(r"(?:\s++|//[^\n]*+|/\*(?s:.*?)\*/)*+")
_TOKEN: Final = re.compile(
    r"""(?P<name>[A-Za-z_]\w*+)
    |(?P<number>\d[\d_]*+(?:\.\d[\d_]*+)?(?:[eE][+-]?\d++)?)
    |(?P<string>"(?:[^"\\]|\\(?s:.)|"")*+")
    |(?P<character>'(?:[^'\\\n]|\\[^\n][0-9A-Fa-f]{0,8})')
    |(?P<op>\?\?|\?\.|\?\[|==|!=|<=|>=|&&|\|\||[-+!<>(){}\[\].;=`])""",
    re.VERBOSE,
)
_ESCAPE: Final = re.compile(
    r'\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(\n\s*)|(?s:(.)))|""', re.ASCII
)
_ESCAPED: Final = {"\\": "\\", "t": "\t", "r": "\r", "n": "\n", '"': '"', "'": "'"}
_RESERVED: Final = re.compile(
    "while|loop|for|do|until|break|continue|return|throw|try|catch|fn|private|"
    "switch|const|import|export|eval|this|print|debug|type_of|global"
)
_BINDING: Final = {
    "||": 1,
    "&&": 2,
    "==": 3,
    "!=": 3,
    "in": 4,
    "<": 5,
    "<=": 5,
    ">": 5,
    ">=": 5,
    "??": 6,
    "+": 7,
    "-": 7,
}


class _Token(NamedTuple):
    kind: str
    text: str


_END: Final = _Token("end", "")


def evaluate(script: str, args: Mapping[str, Any]) -> Any:
    """Return what a script yields.

    Raises:
        NotUnderstood.
    """
    if len(script) > LONGEST_SCRIPT:
        raise NotUnderstood(f"it has {len(script):,} characters")
    return _Reader(script, args).read()


class _Reader:
    """Reads a script and works it out on the way; what stands in a branch that does not count is only read."""

    def __init__(self, script: str, args: Mapping[str, Any]) -> None:
        self._script = script
        self._names: dict[str, Any] = {"args": args}
        self._at = 0
        self._depth = 0
        self._counts = True
        self._token = self._scan()

    def read(self) -> Any:
        value = self._statements()
        if self._token is not _END:
            raise NotUnderstood(f"{self._token.text!r} closes nothing")
        return value

    # Tokens

    def _scan(self) -> _Token:
        blanks = _BLANKS.match(self._script, self._at)
        start = blanks.end() if blanks else self._at
        if start == len(self._script):
            return _END
        found = _TOKEN.match(self._script, start)
        if found is None:
            raise NotUnderstood(f"{self._script[start]!r} at {start}")
        self._at = found.end()
        return _Token(str(found.lastgroup), found[0])

    def _next(self) -> _Token:
        """Return the token under way, and go on to the one after it."""
        token, self._token = self._token, self._scan()
        return token

    def _sees(self, *texts: str) -> bool:
        return self._token.text in texts and self._token.kind in ("op", "name")

    def _expect(self, text: str) -> None:
        if not self._sees(text):
            raise NotUnderstood(f"{text!r} is missing before {self._token.text!r}")
        self._next()

    # Statements

    def _statements(self) -> Any:
        """Read up to a closing brace or the end, neither included."""
        outer, value = dict(self._names), None
        while not (self._token is _END or self._sees("}")):
            value, is_if = None, self._sees("if")
            if self._sees("let"):
                self._let()
                continue
            value = self._expression()
            if self._sees(";"):
                self._next()
                value = None
            elif not (is_if or self._token is _END or self._sees("}")):
                raise NotUnderstood(f"{self._token.text!r} after an expression")
        self._names = outer
        return value

    def _let(self) -> None:
        self._next()
        name = self._next()
        if name.kind != "name" or _RESERVED.fullmatch(name.text):
            raise NotUnderstood(f"{name.text!r} is no name")
        self._expect("=")
        value = self._expression()
        self._expect(";")
        self._names[name.text] = value

    def _block(self) -> Any:
        self._expect("{")
        value = self._statements()
        self._expect("}")
        return value

    def _if(self) -> Any:
        counts, value, is_decided = self._counts, None, False
        while True:
            self._next()
            self._counts = counts and not is_decided
            condition = self._expression()
            holds = self._counts and truth(condition)
            self._counts = holds
            found = self._block()
            value, is_decided = (found, True) if holds else (value, is_decided)
            if not self._sees("else"):
                break
            self._next()
            if self._sees("if"):
                continue
            self._counts = counts and not is_decided
            found = self._block()
            value = value if is_decided else found
            break
        self._counts = counts
        return value

    # Expressions

    def _expression(self, binding: int = 1) -> Any:
        left = self._operand()
        while (strength := _BINDING.get(self._token.text, 0)) >= binding and self._token.kind in ("op", "name"):
            operator, counts = self._next().text, self._counts
            if counts and operator in ("&&", "||", "??"):
                self._counts = left is None if operator == "??" else truth(left) == (operator == "&&")
            right = self._expression(strength + 1)
            if self._counts:
                left = apply(operator, left, right)
            self._counts = counts
        return left

    def _operand(self) -> Any:
        self._depth += 1
        if self._depth > DEEPEST:
            raise NotUnderstood(f"expressions are nested deeper than {DEEPEST}")
        if self._sees("!"):
            self._next()
            value = self._operand()
            value = not truth(value) if self._counts else None
        elif self._sees("-"):
            self._next()
            value = self._operand()
            value = number(-checked(value)) if self._counts else None
        else:
            value = self._members(self._primary())
        self._depth -= 1
        return value

    def _members(self, value: Any) -> Any:
        while self._sees(".", "?.", "[", "?["):
            operator = self._next().text
            if operator in (".", "?."):
                name = self._next()
                if name.kind != "name":
                    raise NotUnderstood(f"{name.text!r} names no member")
                key: Any = name.text
            else:
                key = self._expression()
                self._expect("]")
            if self._counts and not (value is None and operator.startswith("?")):
                value = member(value, key, named=operator in (".", "?."))
        return value

    def _primary(self) -> Any:
        if self._sees("if"):
            return self._if()
        if self._sees("`"):
            return self._template()
        if self._sees("{"):
            return self._block()
        token = self._next()
        if token.kind == "name":
            return self._named(token.text)
        if token.kind == "number":
            return number(_literal(token.text))
        if token.kind in ("string", "character"):
            return _unescaped(token.text[1:-1])
        if token.text != "(":
            raise NotUnderstood(f"{token.text!r} begins no expression")
        value = None if self._sees(")") else self._expression()
        self._expect(")")
        return value

    def _named(self, name: str) -> Any:
        if name in ("true", "false"):
            return name == "true"
        if _RESERVED.fullmatch(name) or (self._counts and name not in self._names):
            raise NotUnderstood(f"{name!r} is not known")
        return self._names.get(name)

    def _template(self) -> str:
        """Read a text in back-ticks; the token under way is the first of them."""
        if self._script.startswith("\n", self._at):
            self._at += 1
        text = ""
        while True:
            tick, hole = self._script.find("`", self._at), self._script.find("${", self._at)
            if tick < 0:
                raise NotUnderstood("a text in back-ticks has no end")
            end = hole if 0 <= hole < tick else tick
            text = joined(text, self._script[self._at : end])
            if end == hole:
                self._at = hole + 2
                self._token = self._scan()
                value = self._statements()
                if not self._sees("}"):
                    raise NotUnderstood("'}' is missing in a text in back-ticks")
                text = joined(text, written(value)) if self._counts else ""
            elif self._script.startswith("``", tick):
                text, self._at = joined(text, "`"), tick + 2
            else:
                self._at = tick + 1
                self._token = self._scan()
                return text


# Literals


def _literal(text: str) -> int | float:
    digits = text.replace("_", "")
    return int(digits) if digits.isdigit() else float(digits)


def _unescaped(text: str) -> str:
    if "\n" in _ESCAPE.sub("", text):
        raise NotUnderstood("a text goes over the end of its line")
    return _ESCAPE.sub(_character, text)


def _character(found: re.Match[str]) -> str:
    if found[0] == '""':
        return '"'
    code = found[1] or found[2] or found[3]
    if code is not None:
        try:
            character = chr(int(code, 16))
            character.encode()
        except (ValueError, OverflowError):
            raise NotUnderstood(f"{found[0]} is no character") from None
        return character
    if found[4] is not None:
        return ""
    if found[5] not in _ESCAPED:
        raise NotUnderstood(f"{found[0]} is no escape")
    return _ESCAPED[found[5]]
