"""AutoGen core: a `RoutedAgent` for each agent on its single-threaded runtime, with a model context of its own.

The model is a `ChatCompletionClient`, the tool a `FunctionTool`, the history an `UnboundedChatCompletionContext`. It
has no store: agents live in memory. Its OpenTelemetry spans go nowhere, since no provider is set.
"""

from dataclasses import dataclass
from typing import Any

from autogen_core import (
    AgentId,
    CancellationToken,
    FunctionCall,
    MessageContext,
    RoutedAgent,
    SingleThreadedAgentRuntime,
    message_handler,
)
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    ModelFamily,
    ModelInfo,
    RequestUsage,
    UserMessage,
)
from autogen_core.tools import FunctionTool
from measuring import Peer, main


@dataclass
class Said:
    """What a user says."""

    text: str


class Scripted(ChatCompletionClient):
    """A model that plays the two completions of a turn."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._number = 0

    async def create(self, messages: list[LLMMessage], **_: Any) -> CreateResult:
        """Say something, and call the tool unless it has just answered."""
        text = self._peer.completion()
        if isinstance(messages[-1], FunctionExecutionResultMessage):
            return CreateResult(finish_reason="stop", content=text, usage=RequestUsage(0, 0), cached=False)
        self._number += 1
        call = FunctionCall(f"call_{self._number}", '{"command":"cargo test --workspace"}', "run_command")
        return CreateResult(
            finish_reason="function_calls", content=[call], usage=RequestUsage(0, 0), cached=False, thought=text
        )

    @property
    def model_info(self) -> ModelInfo:
        """Tell what it can."""
        return ModelInfo(
            vision=False,
            function_calling=True,
            json_output=False,
            family=ModelFamily.UNKNOWN,
            structured_output=False,
        )

    capabilities = model_info

    def create_stream(self, *_: Any, **__: Any) -> Any:
        """Nobody asks for it, nor for what follows."""
        raise NotImplementedError

    async def close(self) -> None:
        """Do nothing."""

    def actual_usage(self) -> RequestUsage:
        """Count nothing."""
        return RequestUsage(0, 0)

    total_usage = actual_usage

    def count_tokens(self, *_: Any, **__: Any) -> int:
        """Count nothing."""
        return 0

    remaining_tokens = count_tokens


class Worker(RoutedAgent):
    """One agent."""

    def __init__(self, model: Scripted, tool: FunctionTool) -> None:
        super().__init__("An agent.")
        self._model, self._tool = model, tool
        self._context = UnboundedChatCompletionContext()

    @message_handler
    async def said(self, message: Said, ctx: MessageContext) -> None:
        """Do one turn."""
        context = self._context
        await context.add_message(UserMessage(content=message.text, source="user"))
        result = await self._model.create(await context.get_messages(), tools=[self._tool])
        while isinstance(result.content, list):
            said = AssistantMessage(content=result.content, thought=result.thought, source="assistant")
            await context.add_message(said)
            results = [await self._perform(call, ctx.cancellation_token) for call in result.content]
            await context.add_message(FunctionExecutionResultMessage(content=results))
            result = await self._model.create(await context.get_messages(), tools=[self._tool])
        await context.add_message(AssistantMessage(content=result.content, source="assistant"))

    async def _perform(self, call: FunctionCall, token: CancellationToken) -> FunctionExecutionResult:
        found = await self._tool.run_json({"command": "cargo test --workspace"}, token)
        said = self._tool.return_value_as_string(found)
        return FunctionExecutionResult(content=said, call_id=call.id, is_error=False, name=call.name)


class AutoGenCore(Peer):
    """The peer."""

    async def open(self) -> None:
        """Start the runtime."""

        async def run_command(command: str) -> str:
            del command
            return self.texts.result()

        model, tool = Scripted(self), FunctionTool(run_command, "Run a command and return what it printed.")
        self._runtime = SingleThreadedAgentRuntime()
        await Worker.register(self._runtime, "worker", lambda: Worker(model, tool))
        self._runtime.start()

    async def turn(self, agent: str) -> None:
        """Send the agent a message, and wait until it has dealt with it."""
        await self._runtime.send_message(Said(self.texts.user_text()), AgentId("worker", agent))

    async def close(self) -> None:
        """Stop the runtime."""
        await self._runtime.stop()


if __name__ == "__main__":
    main(AutoGenCore)
