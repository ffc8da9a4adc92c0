"""`hibernaut rap serve`: a tool server that runs until it is told to stop."""

import os
import sys

import click

from hibernaut.cli import options
from hibernaut.cli.failures import ANSWERED
from hibernaut.cli.running import run_async
from hibernaut.cli.stopping import stop_signals
from hibernaut.cli.terminal import fit_for
from hibernaut.errors import ConfigurationError
from hibernaut.imports import find, load, split
from hibernaut.rap.kit import program
from hibernaut.rap.kit.program import SECRET
from hibernaut.rap.kit.server import ToolServer
from hibernaut.rap.listening import LOOPBACK


@click.command(
    epilog=options.examples(
        "hibernaut rap serve clock.py:server --port 8800 --state clock.db",
        "RAP_SECRET=… hibernaut rap serve desk.tools:server --host 0.0.0.0",
    )
)
@click.argument("server", type=options.WORD, metavar="MODULE:SERVER")
@click.option("--host", default=LOOPBACK, show_default=True, help="Where to listen; elsewhere it needs a secret.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=0, show_default=True, help="The port; 0 is any that is free."
)
@click.option(
    "--secret-env",
    default=SECRET,
    show_default=True,
    metavar="NAME",
    help="Environment variable with the secret that every request must bear.",
)
@click.option("--state", default="", metavar="FILE", help="File of what must outlive the process.")
def serve(server: str, host: str, port: int, secret_env: str, state: str) -> None:
    """Run a tool server until Ctrl-C or SIGTERM.

    MODULE:SERVER is where the `ToolServer` stands: module:name or path/to/file.py:name; a module alone if there is one
    server in it. With --state, calls, results and subscriptions outlive the process.

    With RAP_EMBEDDED=1, as under a runtime that starts it, the first and only line on stdout is {"port": …}.
    """
    kept = program.keep_stdout()
    found = load_server(server)
    if state:
        found.state = state
    if secret := os.environ.get(secret_env, ""):
        found.secret = secret
    elif secret_env != SECRET:
        raise ConfigurationError(f"the environment has no {secret_env}; set it, or leave --secret-env out")
    click.get_current_context().exit(run_async(_serve(found, host, port, kept)))


def load_server(name: str) -> ToolServer:
    """Return the server that is named.

    Raises:
        ConfigurationError: it cannot be had.
    """
    place, attribute = split(name)
    if attribute:
        value = find(place, attribute.split("."))
        if not isinstance(value, ToolServer):
            raise ConfigurationError(f"{name} is no ToolServer, but a {type(value).__name__}")
        return value
    servers = [value for value in vars(load(place)).values() if isinstance(value, ToolServer)]
    if len(servers) != 1:
        raise ConfigurationError(f"{place} has {len(servers)} servers; name the one you mean as {place}:name")
    return servers[0]


async def _serve(server: ToolServer, host: str, port: int, kept: int | None) -> int:
    with stop_signals() as stopping:
        await program.serve(server, host, port, stopping, kept, _say)
    return ANSWERED


def _say(line: str) -> None:
    print(fit_for(sys.stdout, line), flush=True)
