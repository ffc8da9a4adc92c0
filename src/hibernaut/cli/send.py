"""`hibernaut send`: put a message into a thread's inbox."""

import click
import msgspec
from msgspec.structs import replace

from hibernaut.cli import options
from hibernaut.cli.failures import ANSWERED
from hibernaut.cli.running import MEMORY, opened, run_async
from hibernaut.cli.starting import Setting, existing
from hibernaut.cli.tools import load_tools
from hibernaut.doors import check_own_id, refuse
from hibernaut.errors import MalformedInput
from hibernaut.ids import RandomIds
from hibernaut.messages.inputs import Event, ToolResult, UserText, event_message
from hibernaut.messages.published import decode_published
from hibernaut.stores.protocol import Outcome
from hibernaut.system import AgentSystem
from hibernaut.tools.results import fit


class Letter(msgspec.Struct, frozen=True):
    """What the command line asks to be sent."""

    thread_id: str
    text: str
    message_id: str
    user: str
    published: bool


@click.command(
    epilog=options.examples(
        'hibernaut send builds "Build abc456" --store agents.db',
        "hibernaut send builds - --published --store agents.db < message.json",
    )
)
@click.argument("thread", type=options.WORD)
@click.argument("text")
@options.stores(required=True)
@options.tenants
@click.option(
    "--id", "message_id", type=options.WORD, metavar="ID", help="Id of the message: sent twice, it is one message."
)
@click.option("--user", type=options.WORD, metavar="NAME", help="Who speaks.")
@click.option(
    "--published", is_flag=True, help="TEXT is a message in the published JSON form; its group_id must be THREAD."
)
@options.models
@options.tools
@options.instructions
@options.authority
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def send(
    thread: str,
    text: str,
    store: str,
    tenant: str,
    message_id: str | None,
    user: str | None,
    model: str,
    tools: tuple[str, ...],
    instructions: str,
    authority: str | None,
    *,
    published: bool,
    as_json: bool,
) -> None:
    """Say something to a thread. When this has said "accepted", it is stored and cannot be lost.

    TEXT is the text, or - to read it from standard input. It works whether an engine runs on the store or not; the
    agent answers when one does. A text for a thread that does not exist makes it: --model, --tools and --instructions
    are for that.
    """
    setting = Setting(store, tenant, model, tools, instructions, authority=authority or "")
    if store == MEMORY:
        raise click.UsageError("send needs a file as its store: a store in memory ends with this command")
    letter = Letter(thread, options.text_or_stdin(text), message_id or RandomIds().new("msg"), user or "", published)
    run_async(_send(setting, letter, as_json=as_json))


async def _send(setting: Setting, letter: Letter, *, as_json: bool) -> int:
    async with opened(setting, tools=load_tools(setting.tools)) as system:
        is_new = await existing(system, letter.thread_id) is None
        if letter.published:
            outcome = await _send_published(system, letter)
        else:
            await system.send(letter.thread_id, letter.text, message_id=letter.message_id, user=letter.user)
            outcome = Outcome.ACCEPTED
    if as_json:
        record = {
            "thread_id": letter.thread_id,
            "message_id": letter.message_id,
            "outcome": outcome.value,
            "new": is_new,
        }
        click.echo(msgspec.json.encode(record))
    else:
        click.echo(f"{outcome.value} {letter.message_id}{f' (a new thread: {letter.thread_id})' if is_new else ''}")
    return ANSWERED


async def _send_published(system: AgentSystem, letter: Letter) -> Outcome:
    message = decode_published(letter.text, letter.message_id, sender="cli")
    if message.thread_id != letter.thread_id:
        raise MalformedInput(f"the message is for group {message.thread_id!r}, not for thread {letter.thread_id!r}")
    content = message.content
    if isinstance(content, UserText):
        metadata = msgspec.json.decode(message.metadata) if message.metadata else None
        if not isinstance(metadata, dict | None):
            raise MalformedInput("the metadata of a message must be an object")
        await system.send(
            letter.thread_id, content.content, message_id=letter.message_id, user=letter.user, metadata=metadata
        )
        return Outcome.ACCEPTED
    await system.row(letter.thread_id)
    if not isinstance(content, ToolResult | Event):
        raise MalformedInput(f"a {type(content).__name__} cannot be sent")
    check_own_id(message.message_id, content)
    fitted, blobs = fit(content.content)
    content = replace(content, content=fitted)
    kept = replace(message, content=content)
    if isinstance(content, Event) and content.event_id:
        kept = event_message(message.thread_id, content, message.sender, message.metadata)
    (outcome,) = await system.store.put([kept], system.clock.now(), blobs=blobs, tenant=system.tenant)
    if outcome is not Outcome.DUPLICATE:
        refuse(outcome, letter.thread_id)
    return outcome
