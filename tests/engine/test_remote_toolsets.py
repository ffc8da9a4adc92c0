"""What tools a tree has from servers: found once, kept, stale while a server is down, refused when names clash."""

from typing import Any

from hibernaut.models.scripted import ScriptedModel, call, say
from hibernaut.rap.manifest import RemoteTool, Toolset
from hibernaut.tools.tool import tool
from tests.engine.far import CI, FORGE, SCHEMA, agents, far
from tests.engine.scenario import run, story


def test_a35_a_server_that_changes_its_list_is_asked_anew_for_a_new_root_and_not_within_a_tree() -> None:
    there = far()

    async def scenario() -> None:
        async with agents(there, [say("a"), say("b"), say("c")]) as it:
            agent = await it.launch()
            for text in ("one", "two"):
                await agent.send(text)
                await it.wait_idle()
            assert there.servers.discoveries == ["ci"]
            there.servers.toolsets["ci"] = Toolset("ci", CI.endpoint, (RemoteTool("deploy", "Deploy.", SCHEMA),))
            other = await it.launch()
            await other.send("three")
            await it.wait_idle()
            assert there.servers.discoveries == ["ci", "ci"]
            shown = [[spec.name for spec in request.tools] for request in model_of(it).requests]
            assert [("build" in names, "deploy" in names) for names in shown] == [(True, False)] * 2 + [(False, True)]

    run(scenario)


def model_of(it: Any) -> ScriptedModel:
    model = it._models.resolve("default")
    assert isinstance(model, ScriptedModel)
    return model


def test_a36_a_server_that_is_down_takes_no_other_servers_tools_along_and_comes_back() -> None:
    there = far(CI, FORGE)
    there.servers.unreachable.add("ci")

    async def scenario() -> None:
        async with agents(there, [say("a"), say("b")]) as it:
            agent = await it.launch()
            await agent.send("one")
            await it.wait_idle()
            there.servers.unreachable.clear()
            await agent.send("two")
            await it.wait_idle()
            shown = [{spec.name for spec in request.tools} & {"build", "search"} for request in model_of(it).requests]
            assert shown == [{"search"}, {"build", "search"}]
            assert "notice: server_down ci: it is switched off; its tools come when it can be reached" in await story(
                agent
            )

    run(scenario)


def test_what_a_server_had_serves_a_new_root_while_it_is_down_even_after_a_restart() -> None:
    there = far()

    async def scenario() -> None:
        async with agents(there, [say("a")]) as it:
            agent = await it.launch()
            await agent.send("one")
            await it.wait_idle()
        there.servers.unreachable.add("ci")
        async with agents(there, [say("b")]) as it:
            other = await it.launch()
            await other.send("two")
            await it.wait_idle()
            assert "build" in {spec.name for spec in model_of(it).requests[0].tools}
            assert "notice: server_down ci: it is switched off; what it had before serves" in await story(other)

    run(scenario)


def test_a26_a_name_that_two_servers_or_the_program_have_is_refused_and_reported() -> None:
    twin = Toolset(
        "twin", "http://twin.test/", (RemoteTool("build", "Another.", SCHEMA), RemoteTool("note", "N.", SCHEMA))
    )
    there = far(CI, twin)

    @tool
    async def note(text: str) -> str:
        """Note something."""
        return text

    async def scenario() -> None:
        async with agents(there, [say("a")], note) as it:
            agent = await it.launch()
            await agent.send("one")
            await it.wait_idle()
            shown = [spec.name for spec in model_of(it).requests[0].tools]
            assert ("build" in shown, shown.count("note")) == (False, 1)
            told = "\n".join(await story(agent))
            assert "notice: tool_refused the tool 'build' is refused for all of them: ci and twin each have one" in told
            assert "notice: tool_refused the tool 'note' of twin is refused: there is one of that name already" in told

    run(scenario)


def test_a26_arguments_that_do_not_fit_never_reach_a_server() -> None:
    there = far()

    async def scenario() -> None:
        async with agents(there, [call("build", commit=7), say("I see.")]) as it:
            agent = await it.launch()
            await agent.send("Build 7")
            await it.wait_idle()
            assert there.servers.calls == []
            assert any(line.startswith("error: Not run. The arguments do not fit:") for line in await story(agent))

    run(scenario)
