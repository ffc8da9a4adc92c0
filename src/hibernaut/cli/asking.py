"""Questions, as people see and answer them. The choices are numbered from 1 here."""

from hibernaut.cli.narration import Narrator
from hibernaut.cli.terminal import BOLD, DIM, RED, Output
from hibernaut.cli.times import ago
from hibernaut.engine.answering import OpenQuestion
from hibernaut.errors import InputRefused, MalformedInput
from hibernaut.messages.events import AgentEvent, QuestionAsked, QuestionEnded
from hibernaut.messages.text import shorten
from hibernaut.system import AgentSystem


def chosen(choices: tuple[str, ...], given: str) -> int:
    """Return the number (from 0) of the choice that a person means, by its number (from 1) or its words.

    Raises:
        MalformedInput: none, or not clearly one; the text names those there are.
    """
    words = given.strip()
    folded = [choice.casefold() for choice in choices]
    meant = {folded.index(words.casefold())} if words.casefold() in folded else set()
    if words.isascii() and words.isdigit() and 1 <= int(words[:9]) <= len(choices):
        meant.add(int(words) - 1)
    if len(meant) == 1:
        return meant.pop()
    named = ", ".join(f"{number} {choice!r}" for number, choice in enumerate(choices, 1))
    what = "may be two of the choices" if meant else "is none of the choices"
    raise MalformedInput(f"{given!r} {what}, which are: {named}")


def lines_of(asked: OpenQuestion | QuestionAsked, now: int) -> list[str]:
    """Return what is asked, and what can be answered."""
    lines = asked.prompt.splitlines()
    if asked.url:
        lines.append(f"→ {asked.url}")
    for number, choice in enumerate(asked.choices, 1):
        counts = (
            f"  (counts {ago(asked.due, now)} if nobody answers)" if asked.due and number - 1 == asked.default else ""
        )
        lines.append(f"  {number}  {choice}{counts}")
    return lines


class Questions:
    """Shows the events of one thread and takes a person's answers: one question at a time, the oldest first."""

    def __init__(self, system: AgentSystem, narrator: Narrator, output: Output) -> None:
        self._system = system
        self._narrator = narrator
        self._output = output
        self._open: dict[str, QuestionAsked] = {}

    @property
    def waiting(self) -> list[QuestionAsked]:
        """The questions that wait, oldest first."""
        return list(self._open.values())

    def tell(self, event: AgentEvent) -> None:
        """Show one event."""
        if isinstance(event, QuestionAsked):
            self.add(event)
            return
        self._narrator.tell(event)
        if isinstance(event, QuestionEnded):
            shown = next(iter(self._open), "")
            self._open.pop(event.question_id, None)
            if self._open and shown == event.question_id:
                self._show()

    def add(self, event: QuestionAsked) -> None:
        """Show a question, unless another one waits before it."""
        if event.question_id in self._open:
            return
        self._open[event.question_id] = event
        if len(self._open) == 1:
            self._show()
        else:
            self._output.end_line()
            self._output.line(shorten(f"? then: {' '.join(event.prompt.split())}", self._output.room), DIM)

    def end(self) -> None:
        """End the line that is being written."""
        self._narrator.end()

    async def take(self, text: str) -> bool:
        """Answer the question that is shown if a text does so; tell whether it did."""
        shown = next(iter(self._open.values()), None)
        if shown is None:
            return False
        try:
            number = chosen(shown.choices, text)
        except MalformedInput:
            return False
        try:
            await self._system.answer(shown.question_id, number)
        except InputRefused as error:
            self._output.line(f"Error: {error}", RED)
        return True

    def _show(self) -> None:
        shown = next(iter(self._open.values()))
        first, *rest = lines_of(shown, self._system.clock.now())
        self._output.end_line()
        self._output.line(f"? {first}", BOLD)
        for line in rest:
            self._output.line(f"  {line}")
