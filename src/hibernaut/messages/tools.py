"""Tools as models are told of them."""

import msgspec

ANSWER_TOOL = "give_answer"
"""The tool by which a model answers in a form, where its provider has no other way to hold it to one."""


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as a model is told of it. `parameters` is a JSON Schema for the arguments, as JSON text."""

    name: str
    description: str
    parameters: str
