"""An ensemble over two providers at once, each on a server of its own."""

import asyncio
from dataclasses import replace

import pytest

from agent_scripts import agent_node, until
from journeys.roles import REPORTED, actor, assert_same, children, playing
from treefold import (
    Ensemble,
    EnsembleError,
    Limits,
    ModelProviderException,
    Node,
    NodeState,
    Provider,
    Runtime,
)
from wire import Reply, Wait
from wire.protocols import PROTOCOLS, Protocol

PAIRS = list(zip(PROTOCOLS, [*PROTOCOLS[1:], PROTOCOLS[0]], strict=True))
RAIN = {"task": "Write about rain."}


@pytest.fixture(params=PAIRS, ids=str)
def pair(request: pytest.FixtureRequest) -> tuple[Protocol, Protocol]:
    return request.param


def word_by_word(reply: Reply, word: bytes, before: asyncio.Event, after: asyncio.Event) -> Reply:
    """Return *reply* with waits before and after the step that has *word* in it."""
    steps = reply.steps
    at = next(n for n, step in enumerate(steps) if isinstance(step, bytes) and word in step)
    waits = (Wait(before), steps[at], Wait(after))
    return replace(reply, steps=(*steps[:at], *waits, *steps[at + 1 :]))


async def test_two_providers_answer_and_one_of_them_reconciles(pair: tuple[Protocol, Protocol]):
    one, other = pair
    write = actor("writer")
    ensemble = Ensemble(
        write,
        {Provider(one.name): 1, Provider(other.name): 1},
        reconcile_by=Provider(other.name),
    )
    async with (
        playing(one, writer=[one.text("Rain is wet.")]) as (server, _),
        playing(other, writer=[other.text("Rain falls."), other.text("Wet rain falls.")]) as (
            second,
            play,
        ),
    ):
        models = {
            Provider(one.name): one.model(server),
            Provider(other.name): other.model(second),
        }
        async with Runtime([ensemble], models=models) as runtime:
            node = runtime.invoke(ensemble, RAIN)
            assert await node == "Wet rain falls."
            assert_same(runtime.get_view(node.id), node)
    assert (len(server.requests), len(second.requests)) == (1, 2)
    members, last = node.get_children()
    assert isinstance(members, list)
    assert isinstance(last, Node)
    assert [member.outputs for member in members] == ["Rain is wet.", "Rain falls."]
    assert [agent_node(member).model for member in [*members, last]] == [
        models[Provider(protocol.name)].name for protocol in (one, other, other)
    ]
    [prompt] = play.told("writer")[1].texts
    assert prompt.startswith(RAIN["task"])
    assert prompt.index("Rain is wet.") < prompt.index("Rain falls.")
    assert node.total_usage == REPORTED[one.name] + REPORTED[other.name] + REPORTED[other.name]


async def test_a_member_whose_provider_fails_is_done_without(pair: tuple[Protocol, Protocol]):
    one, other = pair
    write = actor("writer")
    ensemble = Ensemble(write, {Provider(one.name): 1, Provider(other.name): 2})
    texts = [other.text("Rain is wet."), other.text("Rain falls."), other.text("Wet rain falls.")]
    async with (
        playing(one, writer=[one.failure(401, "wrong key")] * 2) as (server, _),
        playing(other, writer=texts) as (second, play),
    ):
        models = {
            Provider(one.name): one.model(server),
            Provider(other.name): other.model(second),
        }
        async with Runtime([ensemble], models=models) as runtime:
            node = runtime.invoke(ensemble, RAIN)
            assert await node == "Wet rain falls."
    failed, *rest = children(node)
    assert isinstance(failed.exception, ModelProviderException)
    assert [one.state for one in rest][:2] == [NodeState.Success] * 2
    assert len(server.requests) == 2  # it is the first, and so was to reconcile them, too
    assert "wrong key" not in play.told("writer")[-1].texts[0]


async def test_an_ensemble_of_which_too_many_fail_hands_out_what_it_has(
    pair: tuple[Protocol, Protocol],
):
    one, other = pair
    ensemble = Ensemble(
        actor("writer"), {Provider(one.name): 1, Provider(other.name): 1}, allow_fail=0
    )
    async with (
        playing(one, writer=[one.text("Rain is wet.")]) as (server, _),
        playing(other, writer=[other.failure(400, "no rain today")]) as (second, _),
    ):
        models = {
            Provider(one.name): one.model(server),
            Provider(other.name): other.model(second),
        }
        async with Runtime([ensemble], models=models, limits=Limits(1)) as runtime:
            with pytest.raises(EnsembleError, match="no rain today") as caught:
                await runtime.invoke(ensemble, RAIN)
    assert caught.value.candidates == ("Rain is wet.",)
    [failure] = caught.value.failures
    assert isinstance(failure, ModelProviderException)


async def test_members_of_one_provider_start_when_the_first_has_begun_to_answer(
    protocol: Protocol,
):
    first_word, rest = asyncio.Event(), asyncio.Event()
    begun: list[bool] = []  # whether the first word had been allowed when a request came
    replies = [word_by_word(protocol.text("Wet", " rain", "."), b"Wet", first_word, rest)]
    replies += [protocol.text("Rain falls.")] * 2 + [protocol.text("Wet rain falls.")]

    def writing(said: object) -> Reply:
        begun.append(first_word.is_set())
        return replies.pop(0)

    ensemble = Ensemble(actor("writer"), {Provider(protocol.name): 3})
    other = actor("other")
    async with playing(protocol, writer=writing, other=[protocol.text("Yes.")]) as (server, _):
        model = protocol.model(server)
        models = {"default": model, protocol.name: model}
        async with Runtime([ensemble, other], models=models) as runtime:
            node = runtime.invoke(ensemble, RAIN)
            await until(lambda: begun)
            # while another call goes there and back, any member that did not wait would get there
            assert await runtime.invoke(other, {"task": "Ready?"}) == "Yes."
            assert begun == [False]
            first_word.set()
            await until(lambda: len(begun) == 3)
            assert children(node)[0].state is NodeState.Running  # it is still answering
            rest.set()
            assert await node == "Wet rain falls."
    assert begun == [False, True, True, True]
    assert [child.sequence for child in children(node)] == [1, 1, 1, 2]
