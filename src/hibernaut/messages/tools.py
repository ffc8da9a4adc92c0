"""Tools as models are told of them."""

import msgspec


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as a model is told of it. `parameters` is a JSON Schema for the arguments, as JSON text."""

    name: str
    description: str
    parameters: str
