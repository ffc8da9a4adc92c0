"""`hibernaut models`: which models can be named, and what is known of them."""

import os
import sys
from collections.abc import Iterator

import click
import msgspec

from hibernaut.cli import options
from hibernaut.cli.models import BUILT_IN as OWN
from hibernaut.cli.models import RECORDED, NamedModels
from hibernaut.cli.running import run_async
from hibernaut.cli.terminal import table
from hibernaut.credentials import BY_NAME, is_named
from hibernaut.models.configuration import find_configuration
from hibernaut.models.prices import Prices
from hibernaut.models.protocol import ModelInfo
from hibernaut.models.providers import Providers, Wanted


@click.group(
    invoke_without_command=True,
    epilog=options.examples(
        "hibernaut models",
        "hibernaut models list anthropic",
        "hibernaut models show anthropic:claude-sonnet-4-5",
    ),
)
@click.pass_context
def models(ctx: click.Context) -> None:
    """See which models can be named, and what is known of them.

    Alone it lists the providers: where each is, and whether its key is there. What the file `hibernaut.toml` in this
    directory (or HIBERNAUT_CONFIG) says of providers and models counts.
    """
    if ctx.invoked_subcommand is None:
        _providers(Providers(find_configuration()))


def _providers(providers: Providers) -> None:
    rows = [(name, "built in", "", "") for name in sorted(OWN)]
    rows.append((f"{RECORDED}FILE", "a file", "", "what a model once said"))
    for name in providers.names:
        wanted = providers.wanted(name)
        like = wanted.kind if wanted.kind != name else ""
        rows.append((f"{name}:…", wanted.url, _key(wanted), f"like {like}" if like else ""))
    rows += [(name, "", "", f"is {providers.stands_for(name)}") for name in providers.given]
    for line in table(("NAME", "WHERE", "KEY", ""), rows):
        click.echo(line)
    for problem in providers.problems:
        click.echo(f"warning: {problem}", err=True)


def _key(wanted: Wanted) -> str:
    if not wanted.key:
        return ""
    if not is_named(wanted.key):
        return "in the file"
    variable = wanted.key.removeprefix(BY_NAME).strip()
    return variable if os.environ.get(variable, "").strip() else f"{variable} (not set)"


@models.command("list")
@click.argument("provider", type=options.WORD)
@options.json_lines
def list_models(provider: str, *, as_json: bool) -> None:
    """Ask PROVIDER which models it has."""
    sys.exit(run_async(_list(provider, as_json=as_json)))


async def _list(name: str, *, as_json: bool) -> int:
    providers = Providers(find_configuration())
    try:
        found = await providers.provider(name).models()
    finally:
        await providers.close()
    rows = []
    for one in sorted(found, key=lambda listed: listed.id):
        info = providers.about(f"{name}:{one.id}")[1].info
        if as_json:
            click.echo(msgspec.json.encode({"id": one.id, "name": one.name, "info": info}))
        rows.append((f"{name}:{one.id}", f"{info.context_window:,}" if info.context_window else "?", one.name))
    if not as_json:
        for line in table(("MODEL", "WINDOW", "NAME"), rows, right=(1,)):
            click.echo(line)
    return 0


@models.command()
@click.argument("name", type=options.WORD)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(name: str, *, as_json: bool) -> None:
    """Show what is known of a model, and how it is asked. Nobody is asked for that."""
    named = NamedModels()
    if not named.providers.knows(name):
        info = named.resolve(name).info
        if as_json:
            click.echo(msgspec.json.encode(info))
        else:
            _tell(("Model", name), *_known(info, "unknown: it does not say"))
        return
    provider, about = named.providers.about(name)
    if as_json:
        click.echo(msgspec.json.encode({"provider": provider, **msgspec.to_builtins(about)}))
        return
    settings, wanted = about.settings, named.providers.wanted(provider)
    _tell(
        ("Model", about.model_id),
        ("Provider", provider),
        ("Where", wanted.url),
        ("Key", _key(wanted)),
        *_known(about.info, "unknown: the catalogue has no such model"),
        ("Thinks", f"effort {settings.effort or 'as the provider likes'}" if about.info.reasoning else ""),
        ("Further", msgspec.json.encode(settings.parameters).decode() if settings.parameters else ""),
    )


def _known(info: ModelInfo, no_window: str) -> Iterator[tuple[str, str]]:
    """Yield what is known of a model, whoever offers it."""
    yield "Window", f"{info.context_window:,} tokens" if info.context_window else no_window
    yield "Answers", f"up to {info.max_output:,} tokens" if info.max_output else ""
    yield "Takes", "text and images" if info.images else "text"
    yield "Prices", _prices(info.prices) if info.prices else "unknown"


def _tell(*facts: tuple[str, str]) -> None:
    for what, value in facts:
        if value:
            click.echo(f"{what:<10}{value}")


def _prices(prices: Prices) -> str:
    words = [f"${prices.input:g} for a million tokens of prompts", f"${prices.output:g} of answers"]
    words += [f"${prices.cached:g} of cached prompts"] if prices.cached is not None else []
    words += [f"more above {tier.above:,} tokens" for tier in prices.tiers]
    return ", ".join(words)
