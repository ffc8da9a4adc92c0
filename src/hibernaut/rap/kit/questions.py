"""Questions to people: a tool waits while its runtime asks, for the answer or for a grant.

A question is stored with the callback that asks it, so a tool that is run again after a crash finds the answers that
were given, and only what it has not asked yet is asked.
"""

import asyncio
import hmac
from functools import partial
from typing import Final

import msgspec

from hibernaut.clock import Clock
from hibernaut.errors import AlreadyAnswered, MalformedInput, ToolError
from hibernaut.ids import base32
from hibernaut.rap.answers import UnknownCall
from hibernaut.rap.callbacks import OAuth, UserChoice
from hibernaut.rap.kit.alarms import Alarms
from hibernaut.rap.kit.delivery import Delivery
from hibernaut.rap.kit.paths import RESPONSE_PATH
from hibernaut.rap.kit.state import State, StoredCall, StoredQuestion
from hibernaut.rap.requests import Selected
from hibernaut.rap.wire import encode
from hibernaut.tools.context import AUTHORIZED, Asked

_SECRET_BYTES: Final = 20


class Granted(msgspec.Struct, frozen=True):
    """Whose authorization came: the call that asked for it, its thread, its tool, and on whose behalf it works."""

    call_id: str
    thread_id: str
    tool: str
    user: str


class Questions:
    """Asks, and takes answers."""

    def __init__(self, state: State, delivery: Delivery, alarms: Alarms, clock: Clock) -> None:
        self._state = state
        self._delivery = delivery
        self._alarms = alarms
        self._clock = clock
        self._open: dict[tuple[str, int], asyncio.Future[int]] = {}

    def secret(self, *named: str) -> str:
        """Derive what nobody else can know: the same for the same names, whenever it is asked for."""
        digest = hmac.digest(self._state.secret, "\x00".join(named).encode("utf-8", "surrogatepass"), "sha256")
        return base32(digest[:_SECRET_BYTES])

    def oauth_state(self, thread_id: str, call_id: str) -> str:
        """Return the `state` of the authorizations of a call."""
        return self.secret("oauth", thread_id, call_id)

    async def ask(self, call: StoredCall, asked: Asked) -> int:
        """Ask, and return the number of the choice.

        Raises:
            ToolError: the runtime does not take the question, or the call is over.
        """
        named = call.key, asked.number
        body, secret = self._body(call, asked)
        now = self._clock.now()
        due = now + asked.timeout if asked.timeout else 0
        future = self._open[named] = asyncio.get_running_loop().create_future()
        alarm = None
        try:
            stored = await self._state.ask(
                *named, secret=secret, choices=len(asked.choices), due=due, body=body, now=now
            )
            if stored is None:
                raise ToolError("The question was not asked: the call is over.")
            if stored.selected >= 0:
                return stored.selected
            if stored.callback_url:
                self._delivery.note(call.key, stored.callback_url)
            if stored.due:
                alarm = self._alarms.at(stored.due, partial(_resolve, future, -1))
            selected = await future
        finally:
            del self._open[named]
            if alarm is not None:
                self._alarms.call_off(alarm)
        # Where the time is up the default counts, unless an answer came at the last moment.
        return selected if selected >= 0 else await self._state.settle_question(*named, asked.default)

    async def answer(self, secret: str, selected: Selected) -> None:
        """Take the answer to a choice. The same answer twice is as good as once.

        Raises:
            UnknownCall: no call waits for it.
            MalformedInput: it is for another call, or there is no such choice.
            AlreadyAnswered: there is another answer.
        """
        question = await self._state.find_question(secret)
        if question is None:
            raise UnknownCall("", selected.id)
        if selected.id != question.call_id:
            raise MalformedInput("the answer names another call than the one that asked")
        if selected.selected >= question.choices:
            raise MalformedInput(
                f"there are {question.choices} choices, the first being 0; {selected.selected} is none"
            )
        await self._take(question, selected.selected)

    async def grant(self, oauth_state: str, *, granted: bool) -> Granted:
        """Take what came of an authorization.

        Raises:
            UnknownCall: no call waits for it.
            AlreadyAnswered: it is known already, and is something else.
        """
        question = await self._state.find_question(oauth_state)
        call = await self._state.read_call(question.key) if question is not None else None
        if question is None or call is None:
            raise UnknownCall("", "with this state")
        await self._take(question, AUTHORIZED.index("Done") if granted else AUTHORIZED.index("Cancel"))
        asked = call.invocation
        return Granted(asked.id, asked.group_id, asked.operation, asked.user_id or "")

    def fail(self, key: str, why: str) -> None:
        """Let nobody wait whom no answer can reach."""
        for (asking, _), future in self._open.items():
            if asking == key and not future.done():
                future.set_exception(ToolError(f"The question was not asked: {why}."))

    async def _take(self, question: StoredQuestion, selected: int) -> None:
        if not await self._state.answer(question.key, question.number, selected) and question.selected != selected:
            raise AlreadyAnswered("the question has its answer, and this is another one")
        future = self._open.get((question.key, question.number))
        if future is not None:
            _resolve(future, selected)

    def _body(self, call: StoredCall, asked: Asked) -> tuple[bytes, str]:
        group, called = call.invocation.group_id, call.invocation.id
        if asked.url:
            question = OAuth(group_id=group, id=called, call_id=call.invocation.call_id, auth_url=asked.url)
            return encode(question), self.oauth_state(group, called)
        secret = self.secret("choice", call.key, str(asked.number))
        choice = UserChoice(
            group_id=group,
            id=called,
            call_id=call.invocation.call_id,
            prompt=asked.prompt,
            choices=asked.choices,
            default=asked.default,
            response_url=f"{call.base}{RESPONSE_PATH}{secret}",
            choice_id=f"{asked.number}.{self.secret('choice id', call.key)[:16]}",
        )
        return encode(choice), secret


def _resolve(future: "asyncio.Future[int]", selected: int) -> None:
    if not future.done():
        future.set_result(selected)
