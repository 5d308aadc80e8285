"""What an agent sends to its provider, over real HTTP."""

import asyncio
from typing import Any

import pytest

from agent_scripts import ended, run_agent
from support import settle
from treefold import (
    AgentFunction,
    Edit,
    MemoryStore,
    ModelProviderException,
    ModelRefusedError,
    ModelText,
    Node,
    NodeState,
    Runtime,
    ThinkingPart,
    ToolResult,
    registries,
    tool,
)
from treefold.models import Retry
from treefold.testing import replay
from treefold.toolbox import Bash, TextEditor, human_in_loop
from wire import Wait, cut_after
from wire.anthropic_wire import Redacted, Text, Thinking, ToolUse as Use, message
from wire.gemini_wire import USAGE, call, chunk, reply, text
from wire.protocols import PROTOCOLS, Protocol, noting

OPENAI, ANTHROPIC, GEMINI = PROTOCOLS
MINUTES = {"type": "ephemeral", "ttl": "5m"}
HOUR = {"type": "ephemeral", "ttl": "1h"}

with registries():

    @tool
    async def look(at: str) -> str:
        """Look at something."""
        if at == "nothing":
            raise LookupError("there is nothing")
        return f"{at} is fine"


def worker(*uses: Any, **options: Any) -> AgentFunction:
    return AgentFunction(
        "work", "Work.", system_prompt="You work.", user_prompt_template="Work.", uses=uses,
        **options,
    )  # fmt: skip


def looking(id: str, at: str = "x") -> tuple[str, str, str]:
    return (id, "look", f'{{"at":"{at}"}}')


def marks(body: dict[str, Any]) -> list[tuple[int, Any]]:
    """Return where the cache watermarks are, by message, and which."""
    found: list[tuple[int, Any]] = []
    for number, one in enumerate(body["messages"]):
        blocks: Any = one["content"] if isinstance(one["content"], list) else ()
        found += [(number, block["cache_control"]) for block in blocks if "cache_control" in block]
    return found


# --- all providers


async def test_an_agent_runs_to_its_end_with_each_provider(protocol: Protocol):
    script = [
        protocol.calls(looking("a")),
        protocol.calls(looking("b"), looking("c", "nothing")),
        protocol.text("All ", "done."),
    ]
    async with protocol.server(*script) as server:
        node = await run_agent(worker(look), models=protocol.model(server))
    assert node.outputs == "All done."
    assert len(server.requests) == 3
    results = [part for part in node.get_transcript() if isinstance(part, ToolResult)]
    assert [(result.content, result.is_error) for result in results] == [
        ("x is fine", False),
        ("x is fine", False),
        ("LookupError: there is nothing", True),
    ]
    assert node.usage.total > 0


@pytest.mark.parametrize("other", PROTOCOLS, ids=str)
async def test_a_fork_takes_over_the_calls_that_another_providers_model_asked_for(
    protocol: Protocol, other: Protocol
):
    store, agent = MemoryStore(), worker(look)
    script = [protocol.calls(looking("a"), looking("b", "y")), protocol.text("Done.")]
    async with (
        protocol.server(*script) as server,
        other.server(other.text("Fine.")) as another,
        Runtime([agent], models=protocol.model(server), store=store) as runtime,
    ):
        node = runtime.invoke(agent)
        await node
        fork = runtime.fork(node, at=1, edit=Edit(model=other.model(another)))
        assert await fork == "Fine."
    results = [part for part in fork.get_transcript() if isinstance(part, ToolResult)]
    assert results == [ToolResult("a", "x is fine"), ToolResult("b", "y is fine")]
    assert "x is fine" in other.messages(another.requests[0].body)
    replay([agent], store).check()


async def test_parallel_calls_are_answered_in_one_message(protocol: Protocol):
    script = [protocol.calls(looking("a", "1"), looking("b", "2")), protocol.text("done")]
    async with protocol.server(*script) as server:
        node = await run_agent(worker(look), models=protocol.model(server))
    assert node.outputs == "done"
    body = server.requests[1].json
    if protocol.name == "anthropic":
        last = body["messages"][-1]
        assert (last["role"], [block["type"] for block in last["content"]]) == (
            "user",
            ["tool_result", "tool_result"],
        )
        assert [block["tool_use_id"] for block in last["content"]] == ["a", "b"]
        assert len(body["messages"]) == 3
    elif protocol.name == "gemini":
        last = body["contents"][-1]
        assert last["role"] == "user"
        assert [part["functionResponse"]["name"] for part in last["parts"]] == ["look", "look"]
        assert len(body["contents"]) == 3
    else:
        assert [one["role"] for one in body["messages"]] == [
            "system", "user", "assistant", "tool", "tool",
        ]  # fmt: skip


async def test_a_request_that_breaks_in_mid_stream_is_made_again_from_the_last_success(
    protocol: Protocol,
):
    whole = protocol.calls(looking("b"))
    script = [
        protocol.calls(looking("a")),
        cut_after(whole, len(whole.body) * 2 // 3),
        whole,
        protocol.text("done"),
    ]
    waits: list[float] = []
    async with protocol.server(*script) as server:
        node = await run_agent(worker(look), models=protocol.model(server, retry=noting(waits)))
    assert node.outputs == "done"
    assert waits == [5]
    assert server.requests[1].json == server.requests[2].json
    assert len(node.get_children()) == 2  # nothing was called twice
    assert len([part for part in node.get_transcript() if isinstance(part, ToolResult)]) == 2


async def test_any_transient_failure_is_tried_again_after_5_10_15_and_20_seconds_and_then_fails(
    protocol: Protocol,
):
    waits: list[float] = []
    script = [protocol.calls(looking("a")), *[protocol.failure(503)] * 5]
    async with protocol.server(*script) as server:
        model = protocol.model(server, retry=noting(waits))
        node = await run_agent(worker(look), models=model)
    assert waits == [5, 10, 15, 20]
    assert len(server.requests) == 6
    assert node.state is NodeState.Error
    error = node.exception
    assert isinstance(error, ModelProviderException)
    assert (error.status, error.attempts) == (503, 5)
    assert (error.agent, error.node_id, error.path) == ("work", node.id, "1")
    assert error.provider == type(model).__name__


async def test_a_failure_that_is_not_transient_is_not_tried_again(protocol: Protocol):
    waits: list[float] = []
    async with protocol.server(protocol.failure(401, "wrong key")) as server:
        node = await run_agent(worker(), models=protocol.model(server, retry=noting(waits)))
    assert isinstance(node.exception, ModelProviderException)
    assert "wrong key" in str(node.exception)
    assert waits == []


async def test_a_refusal_is_the_error_of_the_agent_and_no_fault_of_the_provider():
    refused = message(Thinking(["Hm."]), Text(["I will not."]), stop_reason="refusal")
    async with ANTHROPIC.server(refused) as server:
        node = await run_agent(worker(), models=ANTHROPIC.model(server))
    assert isinstance(node.exception, ModelRefusedError)
    assert len(server.requests) == 1


# --- Claude


async def test_thinking_goes_back_unaltered_and_in_sequence_with_its_signatures():
    thought = Thinking(["Hm. ", "Hm."], "U0lHTkVE")
    script = [
        message(
            thought, Redacted("UkVEQUNU"), Text(["Looking."]), Use("a", "look", ['{"at":"x"}']),
            stop_reason="tool_use",
        ),
        message(Thinking(["Aha."], "QUdBSU4="), Use("b", "look", ['{"at":"y"}']),
                stop_reason="tool_use"),
        message(Thinking(["So."], "TEFTVA=="), Text(["Done."])),
    ]  # fmt: skip
    async with ANTHROPIC.server(*script) as server:
        node = await run_agent(worker(look), models=ANTHROPIC.model(server))
    sent = server.requests[2].json["messages"]
    assert [one["role"] for one in sent] == ["user", "assistant", "user", "assistant", "user"]
    first = sent[1]["content"]
    kinds = [block["type"] for block in first]
    assert kinds == ["thinking", "redacted_thinking", "text", "tool_use"]
    assert first[0] == {"type": "thinking", "thinking": "Hm. Hm.", "signature": "U0lHTkVE"}
    assert first[1] == {"type": "redacted_thinking", "data": "UkVEQUNU"}
    thoughts = [part for part in node.get_transcript() if isinstance(part, ThinkingPart)]
    assert [(part.text, part.redacted) for part in thoughts] == [
        ("Hm. Hm.", False),
        ("", True),
        ("Aha.", False),
        ("So.", False),
    ]
    assert thoughts[0].signature == "U0lHTkVE"


async def test_every_request_of_an_agent_has_the_header_the_budget_and_automatic_choice():
    script = [ANTHROPIC.calls(looking("a")), ANTHROPIC.text("done")]
    async with ANTHROPIC.server(*script) as server:
        await run_agent(worker(look), models=ANTHROPIC.model(server))
    for request in server.requests:
        assert request.headers["anthropic-beta"] == "interleaved-thinking-2025-05-14"
        assert request.json["thinking"] == {"type": "enabled", "budget_tokens": 64_000}
        assert request.json["max_tokens"] == 32_000
        assert request.json["tool_choice"] == {"type": "auto"}
        assert request.json["system"] == "You work."


async def test_a_call_is_made_only_when_all_of_its_input_is_there():
    more = asyncio.Event()
    use = Use("a", "look", ['{"at":', Wait(more), '"x"}'])
    script = [message(Thinking(["Hm."]), use, stop_reason="tool_use"), ANTHROPIC.text("done")]
    boss = worker(look)
    async with (
        ANTHROPIC.server(*script) as server,
        Runtime([boss], models=ANTHROPIC.model(server)) as runtime,
        asyncio.timeout(60),
    ):
        node = runtime.invoke(boss)
        await server.arrived.wait()
        await settle()
        assert node.get_children() == []
        more.set()
        assert await node == "done"
        [child] = node.get_children()
        assert isinstance(child, Node)
        assert child.inputs == {"at": "x"}


async def test_a_failed_call_is_flagged_where_the_provider_has_a_field_for_that():
    script = [ANTHROPIC.calls(looking("a", "nothing"), looking("b")), ANTHROPIC.text("done")]
    async with ANTHROPIC.server(*script) as server:
        await run_agent(worker(look), models=ANTHROPIC.model(server))
    failed, fine = server.requests[1].json["messages"][-1]["content"]
    assert failed["is_error"] is True
    assert failed["content"] == "LookupError: there is nothing"
    assert not fine.get("is_error")


async def test_a_response_that_was_paused_goes_on_where_it_stopped():
    paused = message(Thinking(["Hm."]), Text(["Let me see."]), stop_reason="pause_turn")
    async with ANTHROPIC.server(paused, ANTHROPIC.text("Seen.")) as server:
        node = await run_agent(worker(look), models=ANTHROPIC.model(server))
    assert node.state is NodeState.Success
    assert node.outputs.endswith("Seen.")
    assert [one["role"] for one in server.requests[1].json["messages"]] == ["user", "assistant"]


async def test_an_agent_without_functions_never_has_a_cache_watermark():
    async with ANTHROPIC.server(ANTHROPIC.text("done")) as server:
        await run_agent(worker(), models=ANTHROPIC.model(server))
    assert "cache_control" not in server.requests[0].body.decode()


async def test_an_agent_with_leaf_functions_only_has_a_watermark_of_minutes_on_the_newest():
    script = [
        ANTHROPIC.calls(looking("a")),
        ANTHROPIC.calls(looking("b"), looking("c")),
        ANTHROPIC.text("done"),
    ]
    async with ANTHROPIC.server(*script) as server:
        await run_agent(worker(look), models=ANTHROPIC.model(server))
    found = [marks(request.json) for request in server.requests]
    assert found == [[(0, MINUTES)], [(2, MINUTES)], [(4, MINUTES)]]
    for request in server.requests:
        assert request.body.decode().count("cache_control") == 1


@pytest.mark.parametrize("other", ["agent", "human"])
async def test_any_other_agent_is_cached_for_an_hour_if_its_past_runs_made_several_calls(
    other: str,
):
    helper = AgentFunction("help", "", user_prompt_template="Help.", uses=[look])
    boss = worker(look, helper if other == "agent" else human_in_loop)
    two_calls = [
        ANTHROPIC.calls(looking("a")),
        ANTHROPIC.calls(looking("b")),
        ANTHROPIC.text("done"),
    ]
    async with (
        ANTHROPIC.server(*two_calls, *two_calls) as server,
        Runtime([boss], models=ANTHROPIC.model(server)) as runtime,
    ):
        for _ in range(2):
            node = await ended(runtime.invoke(boss))
            assert node.outputs == "done"
    found = [marks(request.json) for request in server.requests]
    assert found[:3] == [[], [], []]  # nothing is known yet, and that stays so for the whole run
    assert found[3:] == [[(0, HOUR)], [(2, HOUR)], [(4, HOUR)]]


async def test_the_past_runs_of_a_journal_count_after_a_restart(tmp_path: Any):
    boss = worker(look, human_in_loop)
    two_calls = [
        ANTHROPIC.calls(looking("a")),
        ANTHROPIC.calls(looking("b")),
        ANTHROPIC.text("done"),
    ]
    async with ANTHROPIC.server(*two_calls, *two_calls, *two_calls) as server:
        for _ in range(2):
            async with Runtime(
                [boss], models=ANTHROPIC.model(server), store=tmp_path / "run.db"
            ) as runtime:
                assert (await ended(runtime.invoke(boss))).outputs == "done"
        async with Runtime([boss], models=ANTHROPIC.model(server)) as runtime:
            await ended(runtime.invoke(boss))
    found = [marks(request.json) for request in server.requests]
    assert found[:3] == [[], [], []]
    assert found[3:6] == [[(0, HOUR)], [(2, HOUR)], [(4, HOUR)]]
    assert found[6:] == [[], [], []]  # another runtime, without the journal


async def test_any_other_agent_is_not_cached_if_its_past_runs_made_one_call_at_most():
    helper = AgentFunction("help", "", user_prompt_template="Help.")
    boss = worker(look, helper)
    one_call = [ANTHROPIC.calls(looking("a")), ANTHROPIC.text("done")]
    async with (
        ANTHROPIC.server(*one_call, *one_call) as server,
        Runtime([boss], models=ANTHROPIC.model(server)) as runtime,
    ):
        for _ in range(2):
            await ended(runtime.invoke(boss))
    assert all("cache_control" not in request.body.decode() for request in server.requests)


async def test_cache_performance_is_part_of_the_accounting_of_a_node():
    first = {"input_tokens": 4, "cache_creation_input_tokens": 100, "cache_read_input_tokens": 0,
             "output_tokens": 9}  # fmt: skip
    second = {"input_tokens": 2, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 100,
              "output_tokens": 5}  # fmt: skip
    script = [
        message(Thinking(["Hm."]), Use("a", "look", ['{"at":"x"}']), stop_reason="tool_use",
                usage=first),
        message(Text(["ok"]), usage=second),
    ]  # fmt: skip
    async with ANTHROPIC.server(*script) as server:
        node = await run_agent(worker(look), models=ANTHROPIC.model(server))
    usage = node.usage
    assert (usage.input, usage.cache_write, usage.cache_read) == (6, 120, 100)
    assert usage.reasoning + usage.output == 14
    assert node.total_usage == usage


async def test_claude_is_given_the_tools_it_was_trained_on(tmp_path: Any):
    shell, editor = Bash(cwd=tmp_path), TextEditor(tmp_path)
    write = '{"command":"create","path":"a.txt","file_text":"hello\\n"}'
    script = [
        ANTHROPIC.calls(("a", "str_replace_based_edit_tool", write)),
        ANTHROPIC.calls(("b", "bash", '{"command":"cat a.txt"}')),
        ANTHROPIC.text("done"),
    ]
    async with ANTHROPIC.server(*script) as server:
        node = await run_agent(worker(shell, editor), models=ANTHROPIC.model(server))
    assert node.outputs == "done"
    offered = server.requests[0].json["tools"]
    assert offered == [
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
    ]
    assert (tmp_path / "a.txt").read_text() == "hello\n"
    results = [part for part in node.get_transcript() if isinstance(part, ToolResult)]
    assert results[-1].content.strip() == "hello"


# --- Gemini


async def test_gemini_gets_its_content_and_thought_signatures_back():
    made = [call("look", {"at": "x"}, "c1", "c2lnbmVk")]
    script = [
        reply(chunk(made, "STOP", USAGE)),
        reply(chunk([text("done", "bGFzdA==")], "STOP", USAGE)),
    ]
    async with GEMINI.server(*script) as server:
        node = await run_agent(worker(look), models=GEMINI.model(server))
    assert node.outputs == "done"
    first, second = (request.json for request in server.requests)
    assert second["contents"][1] == {"role": "model", "parts": made}
    assert second["contents"][2]["role"] == "user"
    for field in ("tools", "generationConfig", "systemInstruction"):
        assert first[field] == second[field]


async def test_summaries_of_thoughts_are_always_off():
    script = [GEMINI.calls(looking("a")), GEMINI.text("done")]
    async with GEMINI.server(*script) as server:
        await run_agent(worker(look), models=GEMINI.model(server))
    for request in server.requests:
        config = request.json["generationConfig"]["thinkingConfig"]
        assert config["includeThoughts"] is False


async def test_gemini_is_explained_the_shell_and_the_editor_which_it_was_not_trained_on(
    tmp_path: Any,
):
    shell, editor = Bash(cwd=tmp_path), TextEditor(tmp_path)
    script = [GEMINI.calls(("a", "bash", '{"command":"echo hi"}')), GEMINI.text("done")]
    async with GEMINI.server(*script) as server:
        node = await run_agent(worker(shell, editor), models=GEMINI.model(server))
    assert node.outputs == "done"
    declared = server.requests[0].json["tools"][0]["functionDeclarations"]
    assert [one["name"] for one in declared] == ["bash", "text_editor"]
    assert all(len(one["description"]) > 40 for one in declared)


async def test_a_failed_call_is_an_error_in_geminis_words():
    script = [GEMINI.calls(looking("a", "nothing")), GEMINI.text("done")]
    async with GEMINI.server(*script) as server:
        await run_agent(worker(look), models=GEMINI.model(server))
    [part] = server.requests[1].json["contents"][-1]["parts"]
    assert part["functionResponse"]["response"] == {"error": "LookupError: there is nothing"}


async def test_a_wait_before_another_attempt_can_be_seen_on_the_node():
    seen: list[str] = []

    async def sleep(seconds: float) -> None:
        seen.append(runtime.get_view(node.id).status)

    async with OPENAI.server(OPENAI.failure(503), OPENAI.text("done")) as server:
        model = OPENAI.model(server, retry=Retry((7.0,), sleep=sleep))
        async with Runtime([worker()], models=model) as runtime:
            node = runtime.invoke(runtime.invocable_functions["work"])
            await ended(node)
            assert node.outputs == "done"
            assert runtime.get_view(node.id).status == ""
    [status] = seen
    assert "7" in status
    assert ModelText("done") in list(node.get_transcript())  # pyright: ignore
