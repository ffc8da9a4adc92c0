"""Taking up a thread, old or new, with the model and tools that the command was given."""

import shlex
from collections.abc import Sequence

import msgspec

from hibernaut.cli.finding import launched_with
from hibernaut.cli.models import NOT_NAMED, NamedModels
from hibernaut.cli.policies import load_authority
from hibernaut.cli.tools import Given
from hibernaut.errors import UnknownThread
from hibernaut.handle import ThreadHandle
from hibernaut.system import AgentSystem
from hibernaut.tools.tool import Tool


class Setting(msgspec.Struct, frozen=True):
    """What an agent works with, as the command line gives it."""

    store: str
    tenant: str = ""
    model: str = ""
    tools: tuple[str, ...] = ()
    instructions: str = ""
    servers: tuple[str, ...] = ()
    listen: str = ""
    public: str = ""
    authority: str = ""
    """The file that says what a new thread may do."""

    def command(self, *words: str) -> str:
        """Return a command line with the same store, tenant, model and tools."""
        given = ["hibernaut", *words, "--store", self.store]
        if self.tenant and words[0] != "serve":
            given += ["--tenant", self.tenant]
        if words[0] in ("serve", "run", "chat"):
            given += ["--model", self.model] if self.model else []
            given += [word for name in self.tools for word in ("--tools", name)]
            given += [word for name in self.servers for word in ("--server", name)]
            given += ["--listen", self.listen] if self.listen else []
            given += ["--public", self.public] if self.public else []
        return shlex.join(given)


async def existing(system: AgentSystem, thread_id: str | None) -> ThreadHandle | None:
    """Return the thread of that id if this tenant has it."""
    if thread_id is None:
        return None
    try:
        return await system.thread(thread_id)
    except UnknownThread:
        return None


def check_new(setting: Setting) -> None:
    """Refuse to make a thread without a model. One that is named was found when the system was opened.

    Raises:
        ConfigurationError: none is named.
    """
    if not setting.model:
        NamedModels().resolve("")


async def check_old(system: AgentSystem, thread_id: str, setting: Setting, tools: Sequence[Given]) -> list[str]:
    """Return what a user should know who goes on with a thread: it keeps what it was launched with.

    Raises:
        ConfigurationError: it was launched without a model, and none is named now.
    """
    launch = await launched_with(system, thread_id)
    remarks = []
    if launch.model in NOT_NAMED:
        check_new(setting)
    elif setting.model and NamedModels().full_name(setting.model) != launch.model:
        remarks.append(f"the thread keeps the model it was launched with: {launch.model}")
    here = {tool.name if isinstance(tool, Tool) else tool.__name__ for tool in tools}
    if missing := [name for name in launch.tools or () if name not in here]:
        remarks.append(
            f"the thread was launched with tools that are not here: {', '.join(missing)}; give them with --tools"
        )
    if launch.tools is not None and (others := sorted(here.difference(launch.tools))):
        remarks.append(f"the thread was launched without these tools and does not get them: {', '.join(others)}")
    known = system.servers
    if launch.servers is not None:
        if missing := [name for name in launch.servers if name not in known]:
            remarks.append(
                f"the thread was launched with tool servers that are not here: {', '.join(missing)}; "
                "give them with --server"
            )
        if others := sorted(set(known).difference(launch.servers)):
            remarks.append(
                f"the thread was launched without these tool servers and does not get them: {', '.join(others)}"
            )
    if setting.authority and load_authority(setting.authority) != launch.authority:
        remarks.append("the thread keeps the authority it has; `hibernaut authority set` gives it another")
    if setting.instructions and setting.instructions != launch.instructions:
        remarks.append("the thread keeps the instructions it was launched with")
    return remarks
