"""The front door: an `AgentSystem` runs agents on a store, a `ThreadHandle` talks to one of them."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from hibernaut.auditing import AuditsThreads
from hibernaut.clock import Clock, SystemClock
from hibernaut.codec import to_json
from hibernaut.deletions import KnowsDeletions
from hibernaut.doors import admitted, check_name, cleaned_reason, models_and_default, refuse, tools_by_name
from hibernaut.effects import HandlesEffects
from hibernaut.engine.answering import OpenQuestion, open_questions
from hibernaut.engine.answering import answer as answer_question
from hibernaut.engine.interruptions import LOOK_EVERY
from hibernaut.engine.live import LiveFeed
from hibernaut.engine.local import LocalEngine
from hibernaut.engine.servers import Remote
from hibernaut.engine.step import StepEngine, StepResult
from hibernaut.errors import (
    AlreadyAnswered,
    ConfigurationError,
    MalformedInput,
    StoreError,
    TokenRefused,
)
from hibernaut.forking import ForksThreads
from hibernaut.handle import ThreadHandle
from hibernaut.ids import Ids, RandomIds
from hibernaut.kernel.authority import Authority
from hibernaut.kernel.commit import Blob, NewThread
from hibernaut.kernel.config import LaunchConfig, checked_config, encode_config
from hibernaut.kernel.head import Head, encode_head, registry_of
from hibernaut.kernel.limits import ThreadOptions, check_options
from hibernaut.messages.inputs import (
    Ask,
    Command,
    Drop,
    Edit,
    InputMessage,
    ToolResult,
    UserText,
)
from hibernaut.messages.parts import Content
from hibernaut.messages.published import decode_published
from hibernaut.metrics import Metrics
from hibernaut.models.protocol import Closes, Model, ModelSource
from hibernaut.moving import MovesTrees, secrets_of
from hibernaut.observing import Observes
from hibernaut.reach import Callbacks, Servers, configured, names_of, reach
from hibernaut.state import ThreadState, state_of
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.owners import this_owner
from hibernaut.stores.protocol import Outcome, Store
from hibernaut.tools.results import outcome as outcome_of
from hibernaut.tools.tokens import KeyRing
from hibernaut.tools.tokens import read as read_token
from hibernaut.tools.tool import AnyTool

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from hibernaut.engine.traces import Traces
    from hibernaut.rap.tool_servers import ToolServers

logger = logging.getLogger(__name__)


class AgentSystem(AuditsThreads, HandlesEffects, MovesTrees, ForksThreads, KnowsDeletions, Observes):
    """Runs agents: `async with AgentSystem(model=…, tools=[…], store="agents.db") as system`.

    Args:
        model: the model of threads that do not name one: a `Model`, a `ModelSource`, or a name that `models` knows.
        models: where models are found by name, if not among the providers (see `docs/models.md`): then a name is
            `provider:model`, or one that the file `hibernaut.toml` gives. What is handed in is not closed.
        tools: what agents may use that are launched without tools of their own: functions decorated with `@tool` (or
            plain async functions). Without any and with `run=False`: all tools of the process that runs them.
        store: a path (SQLite), ":memory:", or a `Store`. A store that is handed in is not closed. Systems that share
            one `Store` do not hear of each other's answers and events; let each open the file for itself.
        instructions: what agents are told that are launched without instructions of their own.
        options: how threads behave that are launched without options of their own.
        authority: what threads may do that are launched without an authority of their own.
        tenant: whose threads this system sees and makes, and its engine runs.
        run: whether an engine runs here. Without one, this is a client of a store on which another process runs one.
        only: the threads that the engine runs; others are left to other processes. All by default.
        all_tenants: whether the engine runs the threads of all tenants, with the models and tools that are here.
        servers: tool servers whose tools agents may use that are launched without servers of their own: base URLs,
            `RemoteServer`s, or a `ToolServers` of the program's.
        callbacks: where those post what becomes of calls, and anybody else the result of a deferred call. Given, this
            process listens for them with or without servers of its own, and even without an engine.
        max_slices: slices that run at the same time.
        tracer_provider: where spans of slices, completions and calls go; without one there are none. It needs the extra
            `otel`.
        clock, ids: where time and names come from; a test passes its own.

    Raises:
        ConfigurationError: something does not fit together; the text says what.
        StoreError: the store cannot be opened.
    """

    def __init__(
        self,
        *,
        model: Model | ModelSource | str | None = None,
        models: ModelSource | None = None,
        tools: Iterable[AnyTool | Callable[..., Any]] = (),
        store: Store | str | Path = ":memory:",
        instructions: str = "",
        options: ThreadOptions | None = None,
        authority: Authority | None = None,
        tenant: str = "",
        run: bool = True,
        only: Sequence[str] | None = None,
        all_tenants: bool = False,
        servers: Servers = (),
        callbacks: Callbacks | None = None,
        max_slices: int = 512,
        clock: Clock | None = None,
        ids: Ids | None = None,
        tracer_provider: "TracerProvider | None" = None,
    ) -> None:
        if max_slices < 1:
            raise ConfigurationError(f"max_slices is {max_slices}; with none at a time nothing would ever run")
        self._tools = tools_by_name(tools)
        self._servers = configured(servers)
        self._models, self._model = models_and_default(model, models)
        self._models_given = models is not None or not isinstance(model, str)
        self._store_given = store
        self._store: Store | None = None
        if options is not None:
            check_options(options)
        self._defaults = checked_config(
            LaunchConfig(
                instructions=instructions,
                model=self._model,
                tools=tuple(self._tools) if run or self._tools else None,
                servers=names_of(self._servers) if run or names_of(self._servers) else None,
                tenant=tenant,
                options=options or ThreadOptions(),
                authority=authority or Authority(),
            )
        )
        self._run = run
        self._max_slices = max_slices
        self._only = only
        self._runs_for = None if all_tenants else tenant
        self._callbacks = callbacks
        self._metrics = Metrics()
        self._traces: Traces | None = None
        if tracer_provider is not None:
            from hibernaut.engine import traces  # noqa: PLC0415  # it needs an extra

            self._traces = traces.Traces(tracer_provider)
        self._remote: Remote | None = None
        self._clock = clock or SystemClock()
        self._ids = ids or RandomIds()
        self._stack = AsyncExitStack()
        self._engine: LocalEngine | None = None
        self._feed: LiveFeed | None = None

    @property
    def servers(self) -> tuple[str, ...]:
        """The names of the tool servers that it knows."""
        return names_of(self._servers)

    @property
    def tools(self) -> Mapping[str, AnyTool]:
        """The tools of this program, by their names."""
        return self._tools

    @property
    def tool_servers(self) -> "ToolServers | None":
        """How it reaches tool servers, once it runs; None if it has none."""
        return self._remote.servers if self._remote is not None and self.servers else None

    @property
    def server_places(self) -> Mapping[str, str]:
        """The base URLs of its tool servers that have one, by name."""
        servers = self._servers if isinstance(self._servers, dict) else {}
        return {name: server.url for name, server in servers.items() if server.url}

    @property
    def callbacks(self) -> str:
        """The base URL that tool servers post callbacks to; "" when it does not listen."""
        return self._remote.public if self._remote is not None else ""

    # Its life

    async def __aenter__(self) -> Self:
        try:
            await self._begin()
        except BaseExceptionGroup as group:
            # What kept the engine from starting is one error, and leaves as it is.
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
                error = error.exceptions[0]
            raise error from None
        return self

    async def _begin(self) -> None:
        async with AsyncExitStack() as stack:
            self._store = store = await self._open(stack)
            if not self._models_given and isinstance(self._models, Closes):
                stack.push_async_callback(self._models.close)
            self._feed = feed = LiveFeed(store, self.tenant)
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            if names_of(self._servers) or self._callbacks is not None:
                self._remote = await reach(
                    self._servers,
                    self._callbacks or Callbacks(),
                    store,
                    self._clock,
                    stack,
                    feed.view,
                    whole=self._run and self._only is None,
                    metrics=self._metrics,
                    tenant=self._runs_for,
                )
            if self._run:
                owner = this_owner(self._ids)
                self._engine = LocalEngine(
                    store,
                    owner,
                    self._tools,
                    self._models,
                    feed,
                    self._clock,
                    max_slices=self._max_slices,
                    only=self._only,
                    remote=self._remote,
                    tenant=self._runs_for,
                    metrics=self._metrics,
                    traces=self._traces,
                )
                running = tasks.create_task(self._engine.run())
                started = tasks.create_task(self._engine.started())
                await asyncio.wait([running, started], return_when=asyncio.FIRST_COMPLETED)
                if not started.done():
                    started.cancel()
                    running.result()
                stack.callback(self._engine.stop)
            else:
                watching = tasks.create_task(self._watch())
                stack.callback(watching.cancel)
                stack.push_async_callback(self.save_counts)
            stack.callback(feed.close)
            self._stack = stack.pop_all()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if isinstance(error, Exception):
            # The task group would wrap it: what the body raises leaves as it is, and the engine ends as it always does.
            await self._stack.aclose()
            return None
        return await self._stack.__aexit__(kind, error, trace)

    async def _open(self, stack: AsyncExitStack) -> Store:
        given = self._store_given
        if not isinstance(given, str | Path):
            return given
        store: Store
        if str(given) == ":memory:":
            store = MemoryStore()
        else:
            from hibernaut.stores.sqlite import SqliteStore  # noqa: PLC0415  # loaded only where a file is used

            store = await SqliteStore.open(given)
        stack.push_async_callback(store.close)
        return store

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(LOOK_EVERY)
            try:
                if await self.store.changed_elsewhere():
                    self.feed.moved_elsewhere()
            except StoreError:
                logger.exception("the store could not be looked at; trying again")

    @property
    def store(self) -> Store:
        """The store that the system runs on."""
        if self._store is None:
            raise ConfigurationError("the system is not open; use it in `async with AgentSystem(…) as system`")
        return self._store

    @property
    def feed(self) -> LiveFeed:
        """What happens right now."""
        if self._feed is None:
            raise ConfigurationError("the system is not open; use it in `async with AgentSystem(…) as system`")
        return self._feed

    @property
    def clock(self) -> Clock:
        """Where this system's time comes from."""
        return self._clock

    @property
    def tenant(self) -> str:
        """Whose threads this system sees and makes."""
        return self._defaults.tenant

    @property
    def ids(self) -> Ids:
        """Where this system's names come from."""
        return self._ids

    @property
    def completions(self) -> int:
        """Turns that this process's engine has completed and stored."""
        return self._engine.engine.runner.completions if self._engine else 0

    # Threads

    async def launch(
        self,
        instructions: str | None = None,
        *,
        thread_id: str | None = None,
        message: str | Content | None = None,
        model: str | None = None,
        tools: Sequence[str] | None = None,
        servers: Sequence[str] | None = None,
        options: ThreadOptions | None = None,
        authority: Authority | None = None,
        user: str = "",
        metadata: Mapping[str, Any] | None = None,
    ) -> ThreadHandle:
        """Make an agent; it sleeps until it is spoken to.

        What it is launched with is stored and survives restarts.

        Args:
            instructions: what it is told to be, for all its life.
            thread_id: its name, if it shall have a certain one; one that exists already is returned.
            message: what is said to it at once, in the same transaction.
            model: name of its model.
            tools: names of its tools; all tools of this system by default. Tools of servers are not among them.
            servers: names of the tool servers whose tools it has besides; all servers of this system by default.
            options: how it behaves.
            authority: what it may do.
            user: on whose behalf it works.
            metadata: values that its tools are given.

        Raises:
            ConfigurationError: a tool, server or model of that name does not exist.
            UnknownThread: the thread is another tenant's.
            ThreadClosed: the thread exists and takes no message any more.
            MalformedInput: the message is blank. TooLarge.
        """
        config = self._config(instructions, model, tools, servers, options, authority, user)
        name = thread_id or self._ids.new("thread")
        thread = self._new_thread(name, config, metadata)
        said = [self.user_message(name, message, None, user, None)] if message is not None else []
        messages, blobs = [one for one, _ in said], [blob for _, beside in said for blob in beside]
        now, tenant = self._clock.now(), config.tenant
        for outcome in await self.store.create([thread], messages, now, blobs=blobs, tenant=tenant):
            refuse(outcome, name)
        return await self.thread(name)

    async def thread(self, thread_id: str) -> ThreadHandle:
        """Return the handle of a thread.

        Raises:
            UnknownThread: this tenant has no such thread.
        """
        await self.row(thread_id)
        return ThreadHandle(self, thread_id)

    async def threads(
        self, *, limit: int = 100, before: tuple[int, str] | None = None, roots: bool = False
    ) -> list[ThreadState]:
        """Return this tenant's threads, the last updated first; with `roots` only those that no other thread has made.

        `before` is (updated, thread_id) of the last one seen: the ones after it are returned.
        """
        rows = await self.store.list_threads(self._defaults.tenant, limit=limit, before=before, roots=roots)
        return [state_of(row, ready=False) for row in rows]

    async def send(
        self,
        thread_id: str,
        content: str | Content,
        *,
        message_id: str | None = None,
        user: str = "",
        metadata: Mapping[str, Any] | None = None,
    ) -> str:
        """Say something to a thread, which is made if it does not exist. Returns the message id; then it is stored.

        Raises:
            MalformedInput: it is blank. TooLarge. ThreadClosed. UnknownThread: it is another tenant's.
        """
        message, blobs = self.user_message(thread_id, content, message_id, user, metadata)
        if await self.store.read_head(thread_id) is not None:
            return await self.put(message, blobs)
        thread, now = self._new_thread(thread_id, self._defaults, None), self._clock.now()
        (outcome,) = await self.store.create([thread], [message], now, blobs=blobs, tenant=self.tenant)
        refuse(outcome, thread_id)
        return message.message_id

    async def deliver(self, token: str, result: object, *, is_error: bool = False) -> None:
        """Bring the result of a deferred call, from anywhere, any time. When it returns, the result is stored.

        Raises:
            TokenRefused: the token is forged or expired, or for a call of an earlier thread of that id.
            AlreadyAnswered. ThreadClosed. UnknownThread: it is another tenant's.
        """
        grant = read_token(KeyRing(await secrets_of(self.store)), token, self._clock.now())
        grant.check("tool_result", grant.thread_id, grant.call_id)
        row = await self.row(grant.thread_id)
        message_id = f"result:{grant.call_id}"
        is_here = row.status == "closed" or grant.call_id in registry_of(row.head).calls
        if not (is_here or await self.store.knows(grant.thread_id, message_id)):
            raise TokenRefused(f"this callback token is for a call that thread {grant.thread_id!r} has not made")
        outcome = outcome_of(result)
        content = ToolResult(grant.call_id, outcome.content, is_error or outcome.is_error)
        message = InputMessage(message_id, grant.thread_id, content, "token")
        (stored,) = await self.store.put([message], self._clock.now(), blobs=outcome.blobs, tenant=self.tenant)
        if stored is Outcome.DUPLICATE:
            raise AlreadyAnswered(f"call {grant.call_id} has its answer already")
        refuse(stored, grant.thread_id)

    async def questions(self, root: str | None = None) -> list[OpenQuestion]:
        """Return what waits for a person, oldest first: in all of this tenant's threads, or in the tree of one root."""
        return await open_questions(self.store, self._defaults.tenant, root)

    async def answer(self, question_id: str, choice: int | str, *, user: str = "") -> str:
        """Answer a question, from anywhere: by the number of the choice, the first being 0, or by its words.

        Returns the words; then the answer is stored, and the first one counts.

        Raises:
            UnknownQuestion. AlreadyAnswered. QuestionOver: it was dismissed, or its time was up. MalformedInput: there
                is no such choice.
        """
        if user:
            check_name("user", user)
        return await answer_question(self.store, self._clock, self._defaults.tenant, question_id, choice, user)

    async def step(self, messages: Sequence[InputMessage | bytes | str], *, due: bool = True) -> StepResult:
        """Take a batch of messages, run their threads until they rest, and keep nothing: the serverless face.

        Messages are `InputMessage`s, or JSON in the published form (see `hibernaut.messages.published`). A user text
        for a thread that does not exist makes it. Needs no engine (`run=False`).

        Raises:
            MalformedInput: a message cannot be read; none was stored.
        """
        batch = [
            message
            if isinstance(message, InputMessage)
            else decode_published(message, self._ids.new("msg"), sender="step")
            for message in messages
        ]
        taken = [admitted(message) for message in batch]
        texts = {message.thread_id for message, _ in taken if isinstance(message.content, UserText)}
        new = [self._new_thread(name, self._defaults, None) for name in sorted(texts)]
        if new:
            await self.store.create(new, [], self._clock.now())
        engine = StepEngine(
            self.store,
            self._tools,
            self._models,
            self.feed,
            self._clock,
            self._remote,
            self._runs_for,
            self._metrics,
            self._traces,
        )
        blobs = [blob for _, beside in taken for blob in beside]
        own = [message for message, _ in taken]
        return await engine.step(this_owner(self._ids), own, due=due, blobs=blobs, tenant=self.tenant)

    async def prune(self, before: int) -> int:
        """Remove this tenant's threads that closed before that moment (milliseconds since 1970); return how many.

        A tree in which anything is open stays whole, but for the children in it that have ended and that no living one
        inherits from.
        """
        return await self.store.prune(before, tenant=self._defaults.tenant)

    async def wait_idle(self) -> None:
        """Return when no thread of this process's engine has anything to do (sleeping and deferred ones have not)."""
        if self._engine is None:
            raise ConfigurationError("no engine runs here")
        await self._engine.wait_quiet()

    # Used by handles

    def user_message(
        self,
        thread_id: str,
        content: str | Content,
        message_id: str | None,
        user: str,
        metadata: Mapping[str, Any] | None,
        *,
        form: str | None = None,
    ) -> tuple[InputMessage, tuple[Blob, ...]]:
        """Make the message that says something to a thread, and what is to be stored beside it.

        With a `form` a program waits for the answer; see `hibernaut.messages.inputs.Ask`.

        Raises:
            MalformedInput: it is blank. TooLarge.
        """
        check_name("thread id", thread_id)
        if message_id is not None:
            check_name("message id", message_id)
        if user:
            check_name("user", user)
        given = "" if metadata is None else to_json(dict(metadata))
        text = UserText(content, user) if form is None else Ask(content, user, form)
        said = InputMessage(message_id or self._ids.new("msg"), thread_id, text, "api", given)
        return admitted(said)

    async def put(self, message: InputMessage, blobs: Sequence[Blob] = ()) -> str:
        """Store a message for a thread of this tenant, with what it refers to. Returns the message id.

        Raises:
            UnknownThread, ThreadClosed.
        """
        (outcome,) = await self.store.put([message], self._clock.now(), blobs=blobs, tenant=self.tenant)
        refuse(outcome, message.thread_id)
        return message.message_id

    def _config(
        self,
        instructions: str | None,
        model: str | None,
        tools: Sequence[str] | None,
        servers: Sequence[str] | None,
        options: ThreadOptions | None,
        authority: Authority | None,
        user: str,
    ) -> LaunchConfig:
        defaults = self._defaults
        if tools is not None:
            unknown = [name for name in tools if name not in self._tools]
            if unknown:
                raise ConfigurationError(
                    f"no tool is called {unknown[0]!r}; there are: {', '.join(self._tools) or 'none'}"
                )
        known = names_of(self._servers)
        if servers is not None and (unknown := [name for name in servers if name not in known]):
            raise ConfigurationError(
                f"no tool server is called {unknown[0]!r}; there are: {', '.join(known) or 'none'}"
            )
        if model is not None:
            self._models.resolve(model)
        if options is not None:
            check_options(options)
        return checked_config(
            replace(
                defaults,
                instructions=defaults.instructions if instructions is None else instructions,
                model=model or defaults.model,
                tools=defaults.tools if tools is None else tuple(tools),
                servers=defaults.servers if servers is None else tuple(servers),
                options=options or defaults.options,
                authority=authority or defaults.authority,
                user=user,
            )
        )

    def _new_thread(self, name: str, config: LaunchConfig, metadata: Mapping[str, Any] | None) -> NewThread:
        check_name("thread id", name)
        digest, body = encode_config(config)
        given = "" if metadata is None else to_json(dict(metadata))
        head = Head(name, self._ids.salt(), digest, metadata=given)
        return NewThread(name, config.tenant, encode_head(head), digest, body, self._clock.now())

    async def command(self, thread_id: str, command: Command | Drop | Edit, blobs: Sequence[Blob] = ()) -> None:
        """Steer a thread as an operator; durable when it returns. `blobs`: what the command names.

        Raises:
            UnknownThread, ThreadClosed. MalformedInput: it names what does not come with it. TooLarge: the reason is.
        """
        named = command.authority if isinstance(command, Command) else b""
        if named and named not in [blob.digest for blob in blobs]:
            raise MalformedInput("an authority comes with the command that names it; see `ThreadHandle.authorize`")
        command = replace(command, reason=cleaned_reason(command.reason))
        await self.put(InputMessage(self._ids.new("cmd"), thread_id, command, "operator"), blobs)
