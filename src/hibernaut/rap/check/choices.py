"""Choices: how a person is asked, and whether the answer is taken."""

from hibernaut.rap.callbacks import UserChoice
from hibernaut.rap.check.notices import ask_while_open
from hibernaut.rap.check.peer import Call
from hibernaut.rap.check.session import Named, Session, is_taken, seconds


async def choose(session: Session, named: Named) -> None:
    """Make a call that asks, and give all its questions their defaults."""
    if not session.findings.wants("choice.shape", "choice.accepts-answer", "status.alive"):
        return
    call = await session.call(named)
    asked = await session.result_of(call, "user_choice") if is_taken(call.answered) else None
    if asked is None:
        within = seconds(session.settings.called_back_within)
        seen = f"no user_choice came in {within}" if is_taken(call.answered) else call.answered.words
        session.findings.broken("choice.shape", f"{named[0]}: {seen}")
        return
    if not isinstance(asked.callback, UserChoice):
        session.findings.broken("choice.shape", asked.words)
        session.findings.not_tried("choice.accepts-answer", "the question could not be read")
        await session.peer.cancel(call.sent.group_id, call.sent.id)
        return
    session.findings.kept("choice.shape", f"{named[0]}: {asked.callback.prompt!r} {asked.callback.choices}")
    await ask_while_open(session, call, lambda: call.inbox.deliveries[-1].kind == "tool_result")
    choice: UserChoice | None = asked.callback
    while choice is not None:
        choice = await _answer(session, call, choice)


async def _answer(session: Session, call: Call, choice: UserChoice) -> UserChoice | None:
    """Answer with the default, and return the next question if there is one."""
    place = next(place for place, one in enumerate(call.inbox.deliveries) if one.callback is choice)
    answered = await session.peer.answer(choice.response_url, call.sent.id, choice.default)
    if not is_taken(answered):
        session.findings.broken("choice.accepts-answer", f"answered with {choice.default}: {answered.words}")
        return None
    came = await call.inbox.next(
        session.settings.called_back_within, lambda one: one.kind in ("user_choice", "tool_result"), place + 1
    )
    if came is None:
        within = seconds(session.settings.called_back_within)
        session.findings.broken("choice.accepts-answer", f"the answer was taken, and then nothing for {within}")
    elif came.kind == "tool_result":
        session.findings.kept("choice.accepts-answer", came.words)
    elif isinstance(came.callback, UserChoice):
        return came.callback
    else:
        session.findings.broken("choice.shape", came.words)
    return None
