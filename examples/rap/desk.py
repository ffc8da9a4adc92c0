"""An approval desk: nothing is spent before a person has said yes, and large sums need two of them.

    hibernaut rap serve examples/rap/desk.py:server --state desk.db --port 8801

The tool waits for people as long as it takes. Should the server be stopped meanwhile, the tool is run again from its
beginning (it is `idempotent`): the answers that were given are there, and only what was not asked yet is asked. The
ledger has a line for each call, named by `call_id`, so running it twice spends once. The port is fixed, since the
answers of people come back to it.
"""

from pathlib import Path

from hibernaut import ToolContext, ToolError
from hibernaut.rap import ToolServer

TWO_PERSONS = 1_000
"""Euros from which a second person has to agree."""

ASKED_AGAIN_AFTER = 3 * 86_400
"""Seconds after which silence is a no."""

server = ToolServer("desk", description="Spends money, once people have agreed.")


@server.tool(idempotent=True, long_running=True, display_script='"spend " + args.what')
async def spend(context: ToolContext, what: str, euros: int) -> str:
    """Spend money on something. People are asked first.

    Args:
        context: Who asks.
        what: What for.
        euros: How much.
    """
    if euros <= 0:
        raise ToolError("that is no sum")
    askings = [f"Spend {euros} euros on {what}?"]
    if euros >= TWO_PERSONS:
        askings.append(f"Somebody has agreed to spend {euros} euros on {what}. Do you, too?")
    for asking in askings:
        if await context.ask(asking, ["Yes", "No"], default=1, timeout=ASKED_AGAIN_AFTER) == "No":
            raise ToolError(f"no: {euros} euros for {what} were not approved")
    return enter(context.call_id, what, euros)


def enter(call: str, what: str, euros: int) -> str:
    """Write a line into the ledger, unless it is there."""
    ledger = Path("ledger.tsv")
    lines = ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []
    if not any(line.startswith(f"{call}\t") for line in lines):
        lines.append(f"{call}\t{euros}\t{' '.join(what.split())}")
        ledger.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return f"{euros} euros are approved for {what}"


@server.tool(read_only=True, idempotent=True)
def spent() -> int:
    """Say how many euros were spent in all."""
    ledger = Path("ledger.tsv")
    lines = ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []
    return sum(int(line.split("\t")[1]) for line in lines)
