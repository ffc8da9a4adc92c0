"""`hibernaut rap check`: a server, held against the rules of the protocol."""

import sys
import textwrap
from collections.abc import Callable

import click

from hibernaut.cli import options
from hibernaut.cli.failures import ANSWERED, REFUSED
from hibernaut.cli.rap.reaching import (
    NamedCall,
    as_json,
    authorized,
    called_back,
    headers_of,
    run,
    server,
)
from hibernaut.cli.rap.reporting import WIDEST, lines_of
from hibernaut.cli.terminal import columns, safe
from hibernaut.rap.check.checking import check as checked
from hibernaut.rap.check.findings import Finding
from hibernaut.rap.check.rules import BY_ID, RULES
from hibernaut.rap.check.session import Named, Settings

_CODES = """\
\b
Exit codes:
    0  no rule of level MUST is broken
    1  one is
    2  the command line is not right
    3  the server cannot be reached
"""
_USED = options.examples(
    "hibernaut rap check http://127.0.0.1:8800",
    'hibernaut rap check http://127.0.0.1:8800 --tool \'add={"a":1,"b":2}\' --subscribe watch',
    "hibernaut rap check https://tools.example --bearer env:TOKEN \\",
    "    --listen 0.0.0.0:8900 --public-url https://me.example:8900",
)


class RuleId(click.ParamType[str]):
    """The id of a rule."""

    name = "rule"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in BY_ID:
            return value
        there = textwrap.fill(
            ", ".join(BY_ID),
            min(columns(), WIDEST),
            break_on_hyphens=False,
            initial_indent="  ",
            subsequent_indent="  ",
        )
        return self.fail(f"there is no rule {safe(value)!r}; there are:\n{there}", param, ctx)


def _calls(name: str, what: str) -> Callable[[options.F], options.F]:
    return click.option(name, type=NamedCall(), multiple=True, metavar="NAME[=JSON]", help=f"{what} Repeatable.")


@click.command(epilog=f"{_USED}\n\n{_CODES}")
@server
@_calls("--tool", "A tool that may be called, and its arguments.")
@_calls("--slow", "One that takes several seconds; it is cancelled.")
@_calls("--subscribe", "One that subscribes.")
@_calls("--choose", "One that asks a person; the default is chosen.")
@click.option("--rule", type=RuleId(), multiple=True, metavar="ID", help="Try only this rule. Repeatable.")
@authorized
@called_back
@click.option(
    "--timeout",
    type=click.FloatRange(0.1, 600),
    default=15.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a callback is waited for.",
)
@click.option(
    "--quiet",
    type=click.FloatRange(0.1, 600),
    default=3.0,
    show_default=True,
    metavar="SECONDS",
    help="How long nothing must come until it is believed that nothing comes.",
)
@click.option(
    "--deadline",
    type=click.FloatRange(1, 3600),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="How long all of it may take.",
)
@click.option("--json", "json", is_flag=True, help="Print the report as one JSON object, and nothing else.")
def check(
    url: str,
    tool: tuple[Named, ...],
    slow: tuple[Named, ...],
    subscribe: tuple[Named, ...],
    choose: tuple[Named, ...],
    rule: tuple[str, ...],
    bearer: str | None,
    header: tuple[tuple[str, str], ...],
    listen: tuple[str, int],
    public_url: str,
    timeout: float,
    quiet: float,
    deadline: float,
    *,
    json: bool,
) -> None:
    """Play a runtime against the tool server at URL, and report rule by rule what it keeps and breaks.

    Only tools that say that they are readOnly are called unasked. Any other must be named; it is then called once or,
    where the server has no other call that is answered, about ten times.
    """
    settings = Settings(
        tools=tool,
        slow=slow,
        subscribe=subscribe,
        choose=choose,
        only=rule,
        headers=headers_of(bearer, header),
        host=listen[0],
        port=listen[1],
        public_url=public_url,
        called_back_within=round(timeout * 1_000),
        quiet=round(quiet * 1_000),
        deadline=round(deadline * 1_000),
    )
    run(_check(url, settings, json=json))


async def _check(url: str, settings: Settings, *, json: bool) -> int:
    progress = Progress(len(settings.only) or len(RULES))
    try:
        report = await checked(url, settings, progress.tell)
    finally:
        progress.clear()
    if json:
        click.echo(as_json(report.fields()))
    else:
        for line in lines_of(report):
            click.echo(line)
    return ANSWERED if report.passed else REFUSED


class Progress:
    """A line on a terminal's stderr that says how far a check is; nothing anywhere else."""

    def __init__(self, rules: int) -> None:
        self._rules = rules
        self._seen: set[str] = set()
        self._shown = sys.stderr.isatty()

    def tell(self, finding: Finding) -> None:
        """Take one finding into account."""
        self._seen.add(finding.rule.id)
        self._write(f"{len(self._seen)} of {self._rules} rules: {finding.rule.id}")

    def clear(self) -> None:
        """Leave nothing behind."""
        self._write("")

    def _write(self, text: str) -> None:
        if self._shown:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
