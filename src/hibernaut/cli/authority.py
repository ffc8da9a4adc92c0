"""`hibernaut authority`: what threads may do, shown, explained and changed."""

import json
import sys
from typing import Any

import click

from hibernaut.authorizing import facts_of
from hibernaut.cli import bounds, options
from hibernaut.cli.failures import Leave
from hibernaut.cli.finding import find_thread, launched_with
from hibernaut.cli.policies import load_authority, written
from hibernaut.cli.running import opened, run_async
from hibernaut.cli.starting import Setting
from hibernaut.cli.terminal import safe
from hibernaut.errors import ConfigurationError, MalformedInput
from hibernaut.kernel.authority import Authority, Decision, Judge, Judgement
from hibernaut.kernel.head import decode_head
from hibernaut.tools.arguments import parse_arguments

SAID: dict[Decision, str] = {
    "allow": "it runs",
    "ask": "it waits until a person allows it",
    "deny": "it is refused",
}

REFUSED = 1
"""Exit code of `explain` for a call that is refused."""


@click.group(
    short_help="What threads may do.",
    epilog=options.examples(
        "hibernaut authority show builds --store agents.db",
        """hibernaut authority explain builds deploy '{"to": "production"}' --store agents.db""",
        'hibernaut authority set builds careful.toml --store agents.db --reason "audit"',
    ),
)
def authority() -> None:
    """See, test and change what threads may do: which calls run, which wait for a person, which are refused."""


@authority.command()
@click.argument("thread", type=options.WORD)
@options.stores(required=True)
@options.tenants
@options.json_lines
def show(thread: str, store: str, tenant: str, *, as_json: bool) -> None:
    """Show what a thread may do, as it would stand in a file."""
    run_async(_show(Setting(store, tenant), thread, as_json=as_json))


@authority.command()
@click.argument("thread", type=options.WORD)
@click.argument("tool", type=options.WORD)
@click.argument("arguments", default="{}", type=options.WORD)
@options.stores(required=True)
@options.tenants
@options.tools
@options.json_lines
def explain(
    thread: str, tool: str, arguments: str, store: str, tenant: str, tools: tuple[str, ...], *, as_json: bool
) -> None:
    """Say what would become of a call, and by which rule.

    ARGUMENTS is a JSON object, or - for standard input. What a function tool says of itself (destructive, idempotent)
    is known if the tool is given with --tools. The exit code is 1 for a call that is refused.
    """
    setting = Setting(store, tenant, tools=tools)
    values = _arguments(options.text_or_stdin(arguments))
    click.get_current_context().exit(run_async(_explain(setting, thread, tool, values, as_json=as_json)))


@authority.command(name="set")
@click.argument("thread", type=options.WORD)
@click.argument("file", type=options.WORD)
@options.stores(required=True)
@options.tenants
@click.option("--reason", default="", metavar="TEXT", help="Why; whoever looks at the thread reads it.")
@click.option("--tree", is_flag=True, help="Also of all threads below it.")
def set_(thread: str, file: str, store: str, tenant: str, reason: str, *, tree: bool) -> None:
    """Give a thread another authority, from a TOML file. It counts from the thread's next step on."""
    run_async(_set(Setting(store, tenant), thread, load_authority(file), reason, tree=tree))


@authority.command()
@click.argument("thread", type=options.WORD)
@options.stores(required=True)
@options.tenants
@click.option("--reason", default="", metavar="TEXT", help="Why; whoever looks at the thread reads it.")
@click.option("--tree", is_flag=True, help="Also of all threads below it.")
def reset(thread: str, store: str, tenant: str, reason: str, *, tree: bool) -> None:
    """Give a thread the authority again that it was launched with."""
    run_async(_set(Setting(store, tenant), thread, None, reason, tree=tree))


@authority.command()
@click.argument("file", type=options.WORD)
def check(file: str) -> None:
    """Say whether a file is an authority that can be meant."""
    rules = len(load_authority(file).rules)
    click.echo(f"{file}: an authority with {rules} rule{'' if rules == 1 else 's'}")


def _arguments(text: str) -> dict[str, Any]:
    try:
        return parse_arguments(text)
    except MalformedInput as error:
        raise ConfigurationError(f"ARGUMENTS: {error}") from error


async def _show(setting: Setting, given: str, *, as_json: bool) -> int:
    async with opened(setting, must_exist=True) as system:
        handle = await find_thread(system, given)
        found = await handle.authority()
        given_options = (await launched_with(system, handle.thread_id)).options
    if as_json:
        print(json.dumps(_plain(found)))
        return 0
    judge = Judge(found)
    print(safe(written(found) or "# everything is allowed"))
    print(f"\n# its limits, those of its options included: {bounds.limits(judge, given_options)}")
    print(f"# events: {bounds.events(judge, given_options)}")
    return 0


async def _explain(setting: Setting, given: str, tool: str, values: dict[str, Any], *, as_json: bool) -> int:
    from hibernaut.cli.tools import load_tools

    async with opened(setting, must_exist=True, tools=load_tools(setting.tools)) as system:
        handle = await find_thread(system, given)
        judgement, judge = await handle.explain(tool, values), Judge(await handle.authority())
        given_options = (await launched_with(system, handle.thread_id)).options
        head = decode_head((await system.row(handle.thread_id)).head).head
        server = (await facts_of(system.store, system.tools, head, tool)).server
    if as_json:
        fields = {"decision": judgement.decision, "reason": judgement.reason, "rule": _plain(judgement.rule)}
        print(json.dumps(fields | {"events": bounds.events_record(judge, given_options, tool, server)}))
    else:
        print(safe(_told(tool, judgement)))
        print(safe(f"if it subscribes: {bounds.events_of(judge, given_options, tool, server)}"))
    if judgement.decision == "deny":
        sys.stdout.flush()
        raise Leave(REFUSED)
    return 0


async def _set(setting: Setting, given: str, wanted: Authority | None, reason: str, *, tree: bool) -> int:
    async with opened(setting, must_exist=True) as system:
        handle = await find_thread(system, given)
        await handle.authorize(wanted, options.decoded(reason), tree=tree)
    click.echo(f"accepted: authorize {handle.thread_id}. An engine on this store carries it out.")
    return 0


def _told(tool: str, judgement: Judgement) -> str:
    why = f" ({judgement.reason})" if judgement.reason else ""
    lines = [f"{tool}: {SAID[judgement.decision]}{why}"]
    if judgement.rule is None:
        lines.append("no rule is about it; the default counts")
    else:
        lines += ["by this rule:", *[f"  {line}" for line in written_rule(judgement).splitlines()]]
    return "\n".join(lines)


def written_rule(judgement: Judgement) -> str:
    """Return the rule that decided as it stands in a file."""
    return written(Authority(rules=(judgement.rule,))) if judgement.rule is not None else ""


def _plain(value: object) -> object:
    import msgspec

    return msgspec.to_builtins(value)
