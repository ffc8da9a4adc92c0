"""What is demanded of a tool server, rule by rule. `docs/rap-check.md` has the same table, and a test compares them."""

from typing import Final, Literal

import msgspec

Level = Literal["MUST", "SHOULD", "+"]
"""How much hangs on a rule: calls go wrong without it, they go less well, or it is an addition of ours."""

Section = Literal["To a tool server", "To a runtime", "How messages are read", "Errors", "Toolsets"]
"""The part of the page on the protocol that a rule comes from."""


class Rule(msgspec.Struct, frozen=True):
    """One demand. The `id` is stable; `needs` says what a check must be given before it can try it."""

    id: str
    level: Level
    section: Section
    demand: str
    needs: str = ""


A_CALL: Final = "no call of it is known to be answered: name a tool with --tool"
"""What the rules need that any call will do for."""

_A_TOOL: Final = "no tool may be called: name one with --tool NAME=ARGUMENTS"
_AN_ERROR: Final = "no error came by a callback: name a tool with --tool"
_OPEN: Final = "name a tool that takes its time with --slow, --subscribe or --choose"
_SLOW: Final = "name a tool that takes its time with --slow"
_SUBSCRIPTION: Final = "name a tool that subscribes with --subscribe"
_CHOICE: Final = "name a tool that asks a person with --choose"

RULES: Final = (
    Rule(
        "discovery.wellknown",
        "MUST",
        "To a tool server",
        "GET {base}/.well-known/rap-toolset is answered with 200 and a JSON object: the manifest.",
    ),
    Rule(
        "discovery.manifest",
        "MUST",
        "Toolsets",
        "The manifest has a name, an endpoint and at least one tool, and nothing in it is refused.",
    ),
    Rule(
        "discovery.schemas",
        "MUST",
        "Toolsets",
        "The inputSchema of every tool is a valid JSON Schema of type object that refers to nothing outside itself.",
    ),
    Rule(
        "content-type",
        "MUST",
        "How messages are read",
        "The manifest and every callback are sent as application/json.",
    ),
    Rule(
        "ack.before-work",
        "MUST",
        "To a tool server",
        "A call is acknowledged with 2xx at once, and worked on afterwards.",
        A_CALL,
    ),
    Rule(
        "ack.nulls",
        "MUST",
        "To a tool server",
        "call_id and thread_ancestors may be null; user_id and the headers of a call may be missing.",
        A_CALL,
    ),
    Rule(
        "unknown-fields.ignored",
        "MUST",
        "How messages are read",
        "Fields that are not known are ignored.",
        A_CALL,
    ),
    Rule(
        "encoding.utf-8",
        "MUST",
        "How messages are read",
        "Messages are JSON in UTF-8, in both directions.",
        A_CALL,
    ),
    Rule(
        "echo.ids",
        "MUST",
        "To a runtime",
        "A callback names group_id and id as the call had them, and call_id the same or not at all.",
        A_CALL,
    ),
    Rule(
        "errors.told",
        "MUST",
        "Errors",
        "A call that cannot be run is refused with 4xx or answered by a callback; it is never met with silence or 5xx.",
    ),
    Rule(
        "errors.arguments",
        "MUST",
        "Errors",
        "The same holds for a call whose arguments do not fit the schema.",
        _A_TOOL,
    ),
    Rule(
        "errors.by-callback",
        "SHOULD",
        "To a tool server",
        "A call of an unknown operation, or with arguments that do not fit, is taken and answered by a callback.",
    ),
    Rule(
        "errors.marked",
        "+",
        "To a runtime",
        "An error is a tool_result with is_error.",
        _AN_ERROR,
    ),
    Rule(
        "call.answers",
        "MUST",
        "To a runtime",
        "A call is answered with a tool_result.",
        _A_TOOL,
    ),
    Rule(
        "callbacks.shape",
        "MUST",
        "To a runtime",
        "Every callback is one of the five kinds and has its fields.",
        A_CALL,
    ),
    Rule(
        "callbacks.retry",
        "MUST",
        "Errors",
        "A callback that was answered with 503 comes again.",
        A_CALL,
    ),
    Rule(
        "callbacks.retry-after",
        "SHOULD",
        "Errors",
        "It does not come again before the seconds of Retry-After have passed.",
        A_CALL,
    ),
    Rule(
        "callbacks.stop",
        "MUST",
        "Errors",
        "A callback that was refused with 4xx (but 429) does not come again.",
        A_CALL,
    ),
    Rule(
        "idempotency.same-key",
        "+",
        "To a tool server",
        "A call that comes twice with one Idempotency-Key is answered once.",
        A_CALL,
    ),
    Rule(
        "cancel.always-200",
        "MUST",
        "To a tool server",
        "POST {base}/cancel_tool_call is answered with 200, whether the call is known or not.",
    ),
    Rule(
        "cancel.stops",
        "SHOULD",
        "To a tool server",
        "A call that was cancelled brings no result any more.",
        _SLOW,
    ),
    Rule(
        "close.always-200",
        "MUST",
        "To a tool server",
        "POST {base}/close_thread is answered with 200, whether the thread is known or not.",
    ),
    Rule(
        "status.unknown",
        "MUST",
        "To a tool server",
        "Asked for a call that it does not know, the server refuses with 4xx, or says that it is not alive.",
    ),
    Rule(
        "status.alive",
        "MUST",
        "To a tool server",
        "Asked for a call that is at work, the server says that it is alive.",
        _OPEN,
    ),
    Rule(
        "subscription.confirms",
        "MUST",
        "To a runtime",
        "A call that subscribes is answered with a tool_result that has subscription: true.",
        _SUBSCRIPTION,
    ),
    Rule(
        "subscription.events",
        "MUST",
        "To a runtime",
        "Its events name the thread as group_id and the call as tool_call_id.",
        _SUBSCRIPTION,
    ),
    Rule(
        "subscription.event-ids",
        "+",
        "To a runtime",
        "Each event has an event_id of its own.",
        _SUBSCRIPTION,
    ),
    Rule(
        "subscription.event-schema",
        "+",
        "To a runtime",
        "What its events say, but for the last one, fits the eventSchema of the tool, if it has one.",
        _SUBSCRIPTION,
    ),
    Rule(
        "subscription.final-is-last",
        "MUST",
        "To a runtime",
        "After an event with final: true nothing comes.",
        _SUBSCRIPTION,
    ),
    Rule(
        "subscription.cancel-stops",
        "MUST",
        "To a tool server",
        "A subscription that was cancelled brings no events any more.",
        _SUBSCRIPTION,
    ),
    Rule(
        "choice.shape",
        "MUST",
        "To a runtime",
        "A user_choice has a prompt, at least one choice, a default among them, and a response_url.",
        _CHOICE,
    ),
    Rule(
        "choice.accepts-answer",
        "MUST",
        "To a tool server",
        "The answer, posted to the response_url, is taken with 200, and the call goes on to its tool_result.",
        _CHOICE,
    ),
)
"""All rules, in the order in which they are reported."""

BY_ID: Final = {rule.id: rule for rule in RULES}
