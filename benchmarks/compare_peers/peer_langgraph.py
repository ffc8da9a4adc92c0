"""LangGraph: a graph of a model node and its `ToolNode`, with its in-memory or its SQLite checkpointer.

The model is a node, which is a plain function. `durability` is the peer's own setting: "exit" stores once a turn and is
the fastest, "sync" stores each step before the next, which is what ours always does. `delta` keeps the messages in a
`DeltaChannel` (beta), so that a checkpoint does not hold all of them.
"""

from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import MessagesState
from langgraph.prebuilt import ToolNode, tools_condition
from measuring import Peer, main


def extend(state: list[AnyMessage], writes: list[list[AnyMessage]]) -> list[AnyMessage]:
    """Add what nodes have written to what is there."""
    return state + [message for write in writes for message in write]


class DeltaState(TypedDict):
    """Messages of which a checkpoint holds the new ones."""

    messages: Annotated[list[AnyMessage], DeltaChannel(extend)]


class LangGraph(Peer):
    """The peer."""

    def __init__(self, texts: Any, path: str, *, durability: str, delta: bool = False) -> None:
        super().__init__(texts, path)
        self._durability, self._state = durability, DeltaState if delta else MessagesState
        self._calls = 0

    async def open(self) -> None:
        """Compile the graph."""

        @tool
        async def run_command(command: str) -> str:
            """Run a command and return what it printed."""
            del command
            return self.texts.result()

        async def model(state: dict[str, Any]) -> dict[str, Any]:
            if isinstance(state["messages"][-1], ToolMessage):
                return {"messages": [AIMessage(self.completion())]}
            self._calls += 1
            call = {"name": "run_command", "args": {"command": "cargo test --workspace"}, "id": f"toolu_{self._calls}"}
            return {"messages": [AIMessage(self.completion(), tool_calls=[call])]}

        graph = StateGraph(self._state)
        graph.add_node("model", model)
        graph.add_node("tools", ToolNode([run_command]))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: END})
        graph.add_edge("tools", "model")
        self._saver = AsyncSqliteSaver.from_conn_string(self.path) if self.path else None
        saver = await self._saver.__aenter__() if self._saver else InMemorySaver()
        self._graph = graph.compile(checkpointer=saver)

    async def turn(self, agent: str) -> None:
        """Invoke the graph on the agent's thread."""
        said = {"messages": [HumanMessage(self.texts.user_text())]}
        place = {"configurable": {"thread_id": agent}}
        await self._graph.ainvoke(said, place, durability=self._durability, output_keys=[])

    async def close(self) -> None:
        """Close the file."""
        if self._saver:
            await self._saver.__aexit__(None, None, None)


if __name__ == "__main__":
    main(LangGraph)
