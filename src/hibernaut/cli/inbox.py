"""`hibernaut inbox` and `hibernaut answer`: what waits for a person, and what the person says to it."""

import sys

import click
import msgspec

from hibernaut.cli import options
from hibernaut.cli.asking import chosen, lines_of
from hibernaut.cli.failures import ANSWERED
from hibernaut.cli.finding import find_thread
from hibernaut.cli.running import opened, run_async
from hibernaut.cli.starting import Setting
from hibernaut.cli.terminal import safe
from hibernaut.cli.times import ago
from hibernaut.engine.answering import OpenQuestion


@click.command(
    epilog=options.examples("hibernaut inbox --store agents.db", "hibernaut inbox --thread builds --store agents.db")
)
@options.stores(required=True)
@options.tenants
@click.option(
    "--thread", type=options.WORD, metavar="ID", help="Only of the conversation of this thread: its root and all below."
)
@options.json_lines
def inbox(store: str, tenant: str, thread: str | None, *, as_json: bool) -> None:
    """List everything that waits for a person, oldest first, and how to answer it."""
    run_async(_inbox(Setting(store, tenant), thread, as_json=as_json))


async def _inbox(setting: Setting, given: str | None, *, as_json: bool) -> int:
    async with opened(setting, must_exist=True) as system:
        root = None
        if given is not None:
            state = await (await find_thread(system, given)).state()
            root = state.root or state.thread_id
        questions = await system.questions(root)
        now = system.clock.now()
    if as_json:
        for question in questions:
            click.echo(msgspec.json.encode(question))
        return ANSWERED
    if not questions:
        click.echo("Nothing waits for a person.", err=True)
        return ANSWERED
    terminal = sys.stdout.isatty()
    for question in questions:
        for line in [*_described(question, setting, now), ""]:
            click.echo(safe(line) if terminal else line)
    return ANSWERED


def _described(question: OpenQuestion, setting: Setting, now: int) -> list[str]:
    where = f"thread {question.thread_id}"
    if question.root != question.thread_id:
        where += f", below {question.root}"
    if question.title:
        where += f' "{question.title}"'
    return [
        f"{question.tool} in {where}, {ago(question.asked, now)}:",
        *[f"  {line}" for line in lines_of(question, now)],
        f"  Answer: {how_to_answer(question.question_id, setting)}",
    ]


def how_to_answer(question_id: str, setting: Setting) -> str:
    """Return the command that answers a question, but for the number."""
    return setting.command("answer", question_id, "NUMBER")


@click.command(
    epilog=options.examples(
        "hibernaut answer q_4h8k2m9xw0a1b2c3.1@builds 1 --store agents.db",
        "hibernaut answer q_4h8k2m9xw0a1b2c3.1 yes --user anna --store agents.db",
    )
)
@click.argument("question", type=options.WORD)
@click.argument("choice", type=options.WORD)
@options.stores(required=True)
@options.tenants
@click.option("--user", type=options.WORD, metavar="NAME", help="Who answers.")
def answer(question: str, choice: str, store: str, tenant: str, user: str | None) -> None:
    """Answer a question. When this has said "accepted", the answer is stored and cannot be lost.

    QUESTION is its id, as `hibernaut inbox` shows it (what follows the @ may be left out); CHOICE is the number of a
    choice, from 1, or its words. The first answer counts. It works whether an engine runs on the store or not.
    """
    run_async(_answer(Setting(store, tenant), question, choice, user or ""))


async def _answer(setting: Setting, given: str, choice: str, user: str) -> int:
    async with opened(setting, must_exist=True) as system:
        found = [one for one in await system.questions() if given in (one.question_id, one.question_id.split("@")[0])]
        meant = chosen(found[0].choices, choice) if found else choice
        words = await system.answer(found[0].question_id if found else given, meant, user=user)
    click.echo(f"accepted: {words}")
    return ANSWERED
