"""Whether what a round is about to commit breaks a rule that nothing may break.

It is looked at once more from the other side: not how the round came about, but what came in and what it owes. So a
defect in the rules is found before any of it is real.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from hibernaut.codec import sha256
from hibernaut.kernel.authority import Facts
from hibernaut.kernel.commit import Effect
from hibernaut.kernel.dispatch import ALLOW
from hibernaut.kernel.draft import Draft
from hibernaut.kernel.head import Status
from hibernaut.kernel.receipt import TurnCommit
from hibernaut.messages.inputs import Command, Delivered, UserText
from hibernaut.messages.parts import is_blank

_arguments: Final = msgspec.json.Decoder(dict[str, Any])


def works_though_stopped(was: Status, inputs: Sequence[Delivered], draft: Draft, turn: TurnCommit) -> bool:
    """Tell whether a round asked the model, or begins a call, in a thread that nothing may run in.

    `was` is the status that the round found. A thread that was stopped or parked goes on when a person speaks to it or
    an operator resumes it, a parked one also when an operator has it tried again; one that this very round has stopped
    does not.
    """
    stopped = draft.head.status == "stopped"
    if was == "open" and not stopped:
        return False
    if turn is TurnCommit.NONE and not any(effect.kind == "invoke" for effect in draft.effects):
        return False
    return stopped or was == "closed" or not any(_resumes(arrived, was) for arrived in inputs)


def begun_without_leave(draft: Draft) -> list[str]:
    """Return the calls that a round begins although the thread's authority demands leave, which nobody gave for them.

    Leave is an answered question about this call, this tool and these arguments.
    """
    if draft.authority.is_open:
        return []
    return [one.call_id for one in draft.effects if one.kind == "invoke" and not _is_allowed(draft, one)]


def _is_allowed(draft: Draft, effect: Effect) -> bool:
    call = draft.head.calls.get(effect.call_id)
    facts = Facts(effect.server, frozenset(call.annotations if call is not None else ()))
    judgement = draft.authority.decide(effect.tool, facts, _arguments.decode(effect.arguments))
    if judgement.decision != "ask":
        return True
    wanted = sha256(effect.tool.encode(), b"\0", effect.arguments.encode())
    return any(
        one.call_id == effect.call_id and one.approves == wanted and one.answer == ALLOW and not one.expired
        for one in draft.head.questions.values()
    )


def _resumes(arrived: Delivered, was: Status) -> bool:
    content = arrived.message.content if arrived.message else None
    if isinstance(content, Command):
        return content.action == "resume" or (content.action == "retry" and was == "parked")
    return isinstance(content, UserText) and not is_blank(content.content)
