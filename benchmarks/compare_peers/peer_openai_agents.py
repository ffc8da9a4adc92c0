"""OpenAI Agents SDK: an `Agent` with a `Model` of ours, run by `Runner` with a `SQLiteSession` for each agent.

Tracing is switched off, as its documentation says for programs that do not want it. In memory each session is an SQLite
database of its own, which is what the SDK offers; on a file all sessions share it, and are made when they are needed.
"""

from typing import Any

from agents import Agent, Model, ModelResponse, Runner, SQLiteSession, Usage, function_tool, set_tracing_disabled
from measuring import Peer, main
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

ARGUMENTS = '{"command":"cargo test --workspace"}'


class Scripted(Model):
    """A model that plays the two completions of a turn."""

    def __init__(self, peer: "OpenAIAgents") -> None:
        self._peer = peer
        self._number = 0

    async def get_response(self, system_instructions: str | None, input: Any, *_: Any, **__: Any) -> ModelResponse:  # noqa: A002
        """Say something, and call the tool unless it has just answered."""
        del system_instructions
        self._number += 1
        text = ResponseOutputText(text=self._peer.completion(), type="output_text", annotations=[])
        output: list[Any] = [
            ResponseOutputMessage(
                id=f"msg_{self._number}", content=[text], role="assistant", status="completed", type="message"
            )
        ]
        last = input[-1] if isinstance(input, list) else {}
        if last.get("type") != "function_call_output":
            output.append(
                ResponseFunctionToolCall(
                    arguments=ARGUMENTS, call_id=f"call_{self._number}", name="run_command", type="function_call"
                )
            )
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        """Nobody asks for it."""
        raise NotImplementedError


class OpenAIAgents(Peer):
    """The peer."""

    async def open(self) -> None:
        """Make the agent."""
        set_tracing_disabled(disabled=True)

        @function_tool
        async def run_command(command: str) -> str:
            """Run a command and return what it printed."""
            del command
            return self.texts.result()

        self._agent = Agent(name="agent", model=Scripted(self), tools=[run_command])
        self._sessions: dict[str, SQLiteSession] = {}

    async def turn(self, agent: str) -> None:
        """Run the agent on its session."""
        if self.path:
            session = SQLiteSession(agent, self.path)
            await Runner.run(self._agent, self.texts.user_text(), session=session)
            session.close()
            return
        if agent not in self._sessions:
            self._sessions[agent] = SQLiteSession(agent)
        await Runner.run(self._agent, self.texts.user_text(), session=self._sessions[agent])


if __name__ == "__main__":
    main(OpenAIAgents)
