"""A runtime for agents that wait: between two messages an agent is nothing but its stored conversation."""

import typing

if typing.TYPE_CHECKING:
    from hibernaut.errors import HibernautError, ToolError
    from hibernaut.handle import ThreadHandle
    from hibernaut.kernel.authority import Authority, Condition, Rule
    from hibernaut.kernel.event_policy import EventPolicy
    from hibernaut.kernel.limits import ThreadOptions
    from hibernaut.messages.parts import Image, Text
    from hibernaut.models.scripted import ScriptedModel
    from hibernaut.rap.servers import RemoteServer
    from hibernaut.reach import Callbacks
    from hibernaut.state import ThreadState
    from hibernaut.system import AgentSystem
    from hibernaut.tools.context import Deferred, ToolContext, ToolEvent
    from hibernaut.tools.tool import tool

    __version__: str

__all__ = [
    "AgentSystem",
    "Authority",
    "Callbacks",
    "Condition",
    "Deferred",
    "EventPolicy",
    "HibernautError",
    "Image",
    "RemoteServer",
    "Rule",
    "ScriptedModel",
    "Text",
    "ThreadHandle",
    "ThreadOptions",
    "ThreadState",
    "ToolContext",
    "ToolError",
    "ToolEvent",
    "tool",
]

_HOMES = {
    "AgentSystem": "hibernaut.system",
    "Authority": "hibernaut.kernel.authority",
    "Callbacks": "hibernaut.reach",
    "Condition": "hibernaut.kernel.authority",
    "Deferred": "hibernaut.tools.context",
    "EventPolicy": "hibernaut.kernel.event_policy",
    "HibernautError": "hibernaut.errors",
    "Image": "hibernaut.messages.parts",
    "RemoteServer": "hibernaut.rap.servers",
    "Rule": "hibernaut.kernel.authority",
    "ScriptedModel": "hibernaut.models.scripted",
    "Text": "hibernaut.messages.parts",
    "ThreadHandle": "hibernaut.handle",
    "ThreadOptions": "hibernaut.kernel.limits",
    "ThreadState": "hibernaut.state",
    "ToolContext": "hibernaut.tools.context",
    "ToolError": "hibernaut.errors",
    "ToolEvent": "hibernaut.tools.context",
    "tool": "hibernaut.tools.tool",
}
"""Where each public name is; it is imported when it is first used, so that a part can be had without the rest."""

if not typing.TYPE_CHECKING:

    def __getattr__(name: str) -> typing.Any:
        if name == "__version__":
            from hibernaut.version import build  # noqa: PLC0415  # reading the metadata is slow and seldom needed

            return build()
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib  # noqa: PLC0415  # a name of the package would be public

        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
