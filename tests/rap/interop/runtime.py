"""A runtime as a process of its own, to be killed: `python -m … STORE SERVER TEXT` says TEXT to its thread "t"."""

import asyncio
import sys

from hibernaut import AgentSystem, ScriptedModel
from hibernaut.reach import Callbacks
from tests.rap.interop.parties import obedient


async def main(store: str, server: str, text: str) -> None:
    model = ScriptedModel(obedient)
    async with AgentSystem(model=model, store=store, servers=[server], callbacks=Callbacks()) as system:
        await system.launch(thread_id="t", message=text)
        sys.stdout.write(f"{system.callbacks}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
