"""Answers of a form: what a program asks for as a type, the schema that a model is held to, and the value it becomes.

A model answers with a JSON object. A type that is written as one stands for itself; any other (a number, a list, a
choice) is the member `value` of one.
"""

import functools
import re
from typing import Any, Final, Generic, TypeVar

import msgspec

from hibernaut.codec import to_json
from hibernaut.errors import TooLarge
from hibernaut.kernel.forms import Given, Unfit
from hibernaut.messages.parts import plain_text
from hibernaut.messages.text import excerpt
from hibernaut.messages.tools import ANSWER_TOOL, ToolSpec
from hibernaut.tools.arguments import ArgumentsRefused, canonical, parse_arguments, restore_arguments
from hibernaut.tools.results import LONGEST_ERROR, failure
from hibernaut.tools.schema import Schema, converted, nodes, schema_of
from hibernaut.tools.validate import compile_schema

T = TypeVar("T")

LARGEST_FORM: Final = 64 * 1024
"""Bytes of the schema of a form: it stands in the head of the thread until there is an answer."""

GIVE_ANSWER: Final = (
    "Give the answer that a program waits for, in the form of these parameters. It is the answer to the latest "
    "message, or to the one that a note after it quotes. Call this once and alone, when all other work for the answer "
    "is done; what you write as text is not taken for the answer."
)

_VALUE: Final = "value"
_DEFINITION: Final = "#/$defs/"
_FENCED: Final = re.compile(r"```(?:json)?[ \t]*\n(.*)\n```", re.DOTALL)


class OtherForm(ValueError):
    """What was answered was asked for in another form."""


class UnfitOutput(ValueError):
    """An answer fits its schema, and its type refuses it all the same. The text is written for the model."""


class OutputType(Generic[T]):
    """A type that an answer is to be of.

    Args:
        hint: whatever a tool can take as a parameter.

    Raises:
        ToolDefinitionError: JSON cannot write it. TooLarge: its schema is above `LARGEST_FORM`.
    """

    __slots__ = ("_hint", "_wrapped", "schema")

    def __init__(self, hint: type[T]) -> None:
        name = getattr(hint, "__qualname__", None) or str(hint)
        schema = _root(schema_of(hint, f"the output {name}"))
        self._hint = hint
        self._wrapped = schema.get("type") != "object" or "properties" not in schema
        if self._wrapped:
            schema = _wrapped(schema)
        for node in nodes(schema):
            if "properties" in node:
                node.setdefault("additionalProperties", False)
        self.schema = to_json(schema)
        """The schema of the object that a model answers with, as JSON text."""
        if (size := len(self.schema.encode())) > LARGEST_FORM:
            raise TooLarge(f"the schema of the output {name}", size, LARGEST_FORM, "LARGEST_FORM")
        compile_schema(schema)

    def read(self, value: str) -> T:
        """Return the value that an answer stands for.

        Raises:
            OtherForm: it is no answer of this form.
            UnfitOutput: the type has rules that its schema cannot say, and it does not keep them.
        """
        if isinstance(form_of(self.schema).judge(value), Unfit):
            raise OtherForm("it was asked before for an answer in another form, and has that")
        members: dict[str, Any] = restore_arguments(msgspec.json.decode(value), value)
        try:
            return converted(members[_VALUE] if self._wrapped else members, self._hint)
        except msgspec.ValidationError as error:
            raise UnfitOutput(excerpt(str(error), LONGEST_ERROR)) from None
        except Exception as error:  # types of the program check values with code of their own
            raise UnfitOutput(plain_text(failure(error).content)) from error


def _root(schema: Schema) -> Schema:
    """Return a schema that says what it is at its top, and does not only refer to it."""
    reference = schema.get("$ref")
    definitions = schema.get("$defs")
    if not isinstance(reference, str) or not isinstance(definitions, dict):
        return schema
    target = definitions[reference.removeprefix(_DEFINITION)]
    rest = {name: value for name, value in schema.items() if name != "$ref"}
    return {**target, **rest} if isinstance(target, dict) else schema


def _wrapped(schema: Schema) -> Schema:
    definitions = schema.pop("$defs", None)
    whole: Schema = {"type": "object", "properties": {_VALUE: schema}, "required": [_VALUE]}
    return {**whole, "$defs": definitions} if definitions else whole


class Form:
    """The form that an answer is to have; a `FormJudge`.

    Raises:
        ToolDefinitionError: it is no schema.
    """

    __slots__ = ("_validator", "schema", "tool")

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self._validator = compile_schema(msgspec.json.decode(schema, type=dict[str, Any]))
        self.tool = ToolSpec(ANSWER_TOOL, GIVE_ANSWER, schema)
        """The tool by which a model answers in this form."""

    def judge(self, text: str) -> Given | Unfit:
        """Hold an answer against the form. Whatever the model wrote, it gets an answer."""
        fenced = _FENCED.fullmatch(text.strip())
        try:
            values = parse_arguments(fenced[1] if fenced else text)
        except ArgumentsRefused as error:
            return Unfit(_about_answer(str(error)))
        problems = self._validator.problems(values)
        written = canonical(values)
        return Unfit("; ".join(problems), written) if problems else Given(written)


def _about_answer(reason: str) -> str:
    """Say of an answer what is said of arguments."""
    for plural, singular in (("are", "is"), ("have", "has"), ("must", "must"), ("hold", "holds")):
        reason = reason.replace(f"The arguments {plural}", f"the answer {singular}")
    return reason.replace("they are", "it is").replace("The arguments", "the answer").rstrip(".")


form_of = functools.lru_cache(maxsize=64)(Form)
"""Return a form, made ready once."""
