"""Pydantic AI: an `Agent` on a `FunctionModel`, its documented way to script a model, with histories kept beside it.

In memory a history is the list of messages that the last run returned, handed to the next one. In SQLite, as in the
chat example of its documentation, each run's new messages are a row of JSON, and are read again before the next run.
The file is in WAL mode with `synchronous=FULL`, on one connection in a thread of its own, one transaction a run.
"""

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from measuring import Peer, main
from pydantic_ai import Agent, ModelMessage, ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel


class PydanticAI(Peer):
    """The peer."""

    async def open(self) -> None:
        """Make the agent, and the table."""
        self._agent = Agent(FunctionModel(self._answer))
        self._histories: dict[str, list[ModelMessage]] = {}
        self._thread = ThreadPoolExecutor(1)

        @self._agent.tool_plain
        async def run_command(command: str) -> str:
            """Run a command and return what it printed."""
            del command
            return self.texts.result()

        if self.path:
            await self._run(self._prepare)

    async def _answer(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        text = TextPart(self.completion())
        if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
            return ModelResponse(parts=[text])
        call = ToolCallPart("run_command", {"command": "cargo test --workspace"})
        return ModelResponse(parts=[text, call])

    async def turn(self, agent: str) -> None:
        """Run the agent on its history."""
        if not self.path:
            found = await self._agent.run(self.texts.user_text(), message_history=self._histories.get(agent))
            self._histories[agent] = found.all_messages()
            return
        history: list[ModelMessage] = []
        for (row,) in await self._run(self._read, agent):
            history.extend(ModelMessagesTypeAdapter.validate_json(row))
        found = await self._agent.run(self.texts.user_text(), message_history=history)
        await self._run(self._write, agent, found.new_messages_json())

    async def _run(self, function: Any, *given: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *given)

    def _prepare(self) -> None:
        self._connection = connection = sqlite3.connect(self.path)
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("PRAGMA synchronous = full")
        connection.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, agent TEXT, message_list BLOB)")
        connection.execute("CREATE INDEX messages_of ON messages (agent)")
        connection.commit()

    def _read(self, agent: str) -> list[tuple[bytes]]:
        wanted = "SELECT message_list FROM messages WHERE agent = ? ORDER BY id"
        return self._connection.execute(wanted, (agent,)).fetchall()

    def _write(self, agent: str, messages: bytes) -> None:
        self._connection.execute("INSERT INTO messages (agent, message_list) VALUES (?, ?)", (agent, messages))
        self._connection.commit()

    async def close(self) -> None:
        """Close the file."""
        if self.path:
            await self._run(self._connection.close)
        self._thread.shutdown()


if __name__ == "__main__":
    main(PydanticAI)
