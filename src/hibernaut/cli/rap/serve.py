"""`hibernaut rap serve`: a tool server that runs until it is told to stop."""

import os

import click
import msgspec

from hibernaut.cli import options
from hibernaut.cli.failures import ANSWERED
from hibernaut.cli.imports import find, load, split
from hibernaut.cli.running import run_async
from hibernaut.cli.stopping import stop_signals
from hibernaut.errors import ConfigurationError
from hibernaut.rap.kit.server import SECRET, ToolServer
from hibernaut.rap.listening import LOOPBACK

EMBEDDED = "RAP_EMBEDDED"
"""Environment variable: set to 1 by a runtime that starts the server as a command, and reads where it listens."""

STDOUT, STDERR = 1, 2


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
    announce = _embedded() if os.environ.get(EMBEDDED) == "1" else None
    found = load_server(server)
    if state:
        found.state = state
    if secret := os.environ.get(secret_env, ""):
        found.secret = secret
    elif secret_env != SECRET:
        raise ConfigurationError(f"the environment has no {secret_env}; set it, or leave --secret-env out")
    click.get_current_context().exit(run_async(_serve(found, host, port, announce)))


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


def _embedded() -> int:
    """Leave stdout to the one line, whatever the server or a program that it starts prints; return where that goes."""
    kept = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    return kept


async def _serve(server: ToolServer, host: str, port: int, announce: int | None) -> int:
    with stop_signals() as stopping:
        async with server.running(host, port) as address:
            if announce is not None:
                os.write(announce, msgspec.json.encode({"port": address.port}) + b"\n")
            names = ", ".join(tool.name for tool in server.tools)
            _say(f"{server.name} listens at {address.url} (process {os.getpid()}, tools {names}); Ctrl-C stops")
            await stopping.wait()
            _say("stopping: what is not done is left to the next start; Ctrl-C again stops at once")
    _say("stopped")
    return ANSWERED


def _say(line: str) -> None:
    print(line, flush=True)
