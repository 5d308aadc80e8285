"""Limits, rates and budgets that all workers of a store keep together."""

import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import warm_python
from cluster.conftest import Workers, on
from cluster.gauge import Gauge, GaugedModel
from cluster.leases import connect, end_lease
from cluster.limited_agents import HELPER, LEAD, reply
from cluster.quick import QUICK
from cluster.test_shared_runtime import PATIENCE, eventually
from postgres_server import PostgresServer, new_name, with_query
from treefold import (
    AgentFunction,
    Budget,
    BudgetExceeded,
    CodeFunction,
    Edit,
    Limits,
    NodeState,
    Rate,
    RunContext,
    Runtime,
    TokenUsage,
    ToolUse,
    attach,
)
from treefold.errors import InvalidValueError, StoreError
from treefold.events import LeaseAwaited, RateAwaited
from treefold.stores import (
    Estimate,
    Load,
    Orders,
    Overdrawn,
    Ownership,
    SqliteStore,
    StoredAccount,
    WorkerInfo,
)
from treefold.stores.postgres import PostgresStore
from treefold.testing import ScriptedModel
from work_engines import EXHAUSTIVE
from wrapped_part import WrappedPart

TREES = int(os.environ.get("TREEFOLD_CLUSTER_TREES", "1000" if EXHAUSTIVE else "24"))
LIMIT = 7
WORKER = Path(__file__).parent / "limited_worker.py"
SPENDER = Path(__file__).parent / "spender.py"


@pytest.fixture
def gauges() -> Iterator[Any]:
    with ExitStack() as stack:

        def start(**options: Any) -> Gauge:
            gauge = Gauge(**options)
            stack.callback(gauge.close)
            return gauge

        yield start


def answerer(name: str = "answerer", **options: Any) -> AgentFunction:
    return AgentFunction(name, "Answer.", user_prompt_template="Answer.", **options)


# Slots


def test_no_more_requests_than_allowed_are_under_way_in_all_runtimes(workers: Workers, gauges: Any):
    gauge, function = gauges(seconds=0.05, limit=2), answerer()
    model = GaugedModel(lambda _: "Yes.", gauge.port)
    runtimes = [
        workers(function, models=model, limits=Limits(cluster_requests=2)) for _ in range(3)
    ]
    nodes = [runtime.invoke(function) for _ in range(5) for runtime in runtimes]
    assert {node.result(PATIENCE) for node in nodes} == {"Yes."}
    assert gauge.most == 2


def test_every_pattern_that_matches_counts(workers: Workers, gauges: Any):
    gauge, function = gauges(seconds=0.05, limit=2), answerer()
    limits = {"openai:small": 1, "openai:*": 2}
    small = GaugedModel(lambda _: "Small.", gauge.port, "openai:small")
    large = GaugedModel(lambda _: "Large.", gauge.port, "openai:large")
    runtimes = [
        workers(function, models=model, limits=Limits(cluster_requests=limits))
        for model in (small, large)
    ]
    nodes = [runtime.invoke(function) for _ in range(6) for runtime in runtimes]
    assert {node.result(PATIENCE) for node in nodes} == {"Small.", "Large."}
    assert gauge.most == 2


def test_without_a_shared_store_the_limit_is_one_of_the_process(gauges: Any):
    gauge, function = gauges(seconds=0.02, limit=1), answerer()
    model = GaugedModel(lambda _: "Yes.", gauge.port)
    limits = Limits(cluster_requests={"openai:*": 1, "*": 3})
    with (
        Runtime([function], models=model, limits=limits) as one,
        Runtime([function], models=model, limits=limits) as other,
    ):
        nodes = [runtime.invoke(function) for _ in range(4) for runtime in (one, other)]
        assert {node.result(PATIENCE) for node in nodes} == {"Yes."}
    assert gauge.most == 1


def test_a_request_that_waits_for_a_slot_says_so_and_can_be_cancelled(
    workers: Workers, gauges: Any
):
    gauge, function = gauges(seconds=60), answerer()
    model, limits = GaugedModel(lambda _: "Yes.", gauge.port), Limits(cluster_requests=1)
    one, other = (workers(function, models=model, limits=limits) for _ in range(2))
    first = one.invoke(function)
    eventually(lambda: gauge.under_way == 1)
    second = other.invoke(function)
    with attach(workers.url) as observer:
        eventually(lambda: "fewer requests" in observer.get_view(second.id).status)
    assert any(isinstance(event, LeaseAwaited) for event in _events(other, second.id))
    other.cancel(second.id)
    eventually(lambda: second.state is NodeState.Canceled)
    third = other.invoke(function)
    one.cancel(first.id)
    eventually(lambda: gauge.begun == 2, "the request of the third")
    other.cancel(third.id)


def _events(runtime: Runtime, node: int) -> list[Any]:
    """Return the events up to the first that says what a request waits for."""

    async def read() -> list[Any]:
        found: list[Any] = []
        async with asyncio.timeout(PATIENCE):
            async for event in runtime.events(node):
                found.append(event)
                if isinstance(event, LeaseAwaited | RateAwaited):
                    break
        return found

    return asyncio.run(read())


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server that no other file uses: its sessions are ended, and it is restarted."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def own_url(own_server: PostgresServer) -> str:
    return with_query(own_server.url(), schema=new_name())


@pytest.mark.parametrize("fault", ["cuts", "restart", "crash"])
def test_a_request_keeps_its_slot_when_connections_are_lost(
    own_server: PostgresServer, own_url: str, gauges: Any, fault: str
):
    gauge, function, workers = gauges(seconds=1.0), answerer(), Workers(own_url)
    model, limits = GaugedModel(lambda _: "Yes.", gauge.port), Limits(cluster_requests=2)
    try:
        one, other = (workers(function, models=model, limits=limits) for _ in range(2))
        nodes = [one.invoke(function) for _ in range(2)]
        eventually(lambda: gauge.under_way == 2)
        nodes += [other.invoke(function) for _ in range(2)]
        if fault == "cuts":
            for _ in range(3):
                _cut_connections(own_url)
                time.sleep(0.1)
        elif fault == "restart":
            own_server.restart()
        else:
            own_server.kill()
            own_server.start()
        assert {node.result(PATIENCE) for node in nodes} == {"Yes."}
    finally:
        workers.close()
    assert gauge.most == 2


def _cut_connections(url: str) -> None:
    """End all sessions of the server but one."""
    with connect(url) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )


class StoppedStore(PostgresStore):
    """Behaves as if its process was stopped when it had just taken slots, until it is woken."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.stopped, self.woken = threading.Event(), threading.Event()
        members: Any = StoppedMembers(self)
        limits: Any = StoppedLimits(self)
        self.cluster = replace(self.cluster, members=members, limits=limits)


class StoppedLimits(WrappedPart):
    def __init__(self, store: StoppedStore) -> None:
        super().__init__(store.cluster.limits)
        self._store = store

    def set_slots(
        self, slots: Mapping[str, int], *, limits: Mapping[str, int] | None = None
    ) -> bool:
        is_set = self.inner.set_slots(slots, limits=limits)
        if is_set and limits:
            self._store.stopped.set()
            assert self._store.woken.wait(2 * PATIENCE)
        return is_set


class StoppedMembers(WrappedPart):
    def __init__(self, store: StoppedStore) -> None:
        super().__init__(store.cluster.members)
        self._store = store

    def beat(self, load: Load) -> Orders:
        if self._store.stopped.is_set():
            assert self._store.woken.wait(2 * PATIENCE)
        return self.inner.beat(load)


@pytest.mark.parametrize("budget", [None, Budget(calls=1, name="june")])
def test_a_request_is_not_sent_with_slots_that_others_have_by_now(
    workers: Workers, gauges: Any, budget: Budget | None
):
    gauge, function = gauges(seconds=1.0), answerer()
    model, limits = GaugedModel(lambda _: "Yes.", gauge.port), Limits(cluster_requests=1)
    # They do not take each other's trees over.
    own, others = (replace(QUICK, queues=[name]) for name in ("own", "others"))
    with StoppedStore(workers.url) as store:
        one = workers(function, models=model, limits=limits, store=store, budget=budget, worker=own)
        other = workers(function, models=model, limits=limits, worker=others)
        first = one.invoke(function)
        eventually(store.stopped.is_set)
        second = other.invoke(function)
        eventually(lambda: gauge.under_way == 1, "the request of the other")
        store.woken.set()
        assert (first.result(PATIENCE), second.result(PATIENCE)) == ("Yes.", "Yes.")
        workers.close(one)
    assert gauge.most == 1
    if budget is not None:
        with connect(workers.url) as rows:
            assert rows.execute("SELECT calls FROM accounts").fetchall() == [(1,)]


class RefusingStore(PostgresStore):
    """Fails for some budgets, always."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        limits: Any = RefusingLimits(self.cluster.limits)
        self.cluster = replace(self.cluster, limits=limits)


class RefusingLimits(WrappedPart):
    refused = 0

    def set_aside(self, accounts: Sequence[StoredAccount], **options: Any) -> Overdrawn | None:
        if any("spoiled" in account.name for account in accounts):
            self.refused += 1
            raise StoreError("the store", "the rights do not suffice")
        return self.inner.set_aside(accounts, **options)


def test_a_request_for_which_the_store_always_fails_keeps_no_other_waiting(
    workers: Workers, gauges: Any
):
    gauge, function = gauges(seconds=0.0), answerer()
    model, limits = GaugedModel(lambda _: "Yes.", gauge.port), Limits(cluster_requests=9)
    with RefusingStore(workers.url) as store:
        one = workers(function, models=model, limits=limits, store=store)
        spoiled = [
            one.invoke(function, budget=Budget(calls=9, name=f"spoiled {n}")) for n in range(4)
        ]
        refusing: Any = store.cluster.limits
        eventually(lambda: refusing.refused >= len(spoiled))
        for name in ("june", "july"):
            node = one.invoke(function, budget=Budget(calls=9, name=name))
            assert node.result(PATIENCE) == "Yes."
        assert not any(node.state.final for node in spoiled)
        workers.close(one)


def test_limits_that_are_none_are_refused():
    wrong: Any
    for wrong in (0, {"*": 0}, {"*": "7"}):
        with pytest.raises(InvalidValueError, match="would let no request through"):
            Limits(cluster_requests=wrong)
    wrong = {"*": 50}
    with pytest.raises(InvalidValueError, match="rates map patterns"):
        Limits(rates=wrong)
    with pytest.raises(InvalidValueError, match="give rpm or tpm"):
        Rate()
    with pytest.raises(InvalidValueError, match="rpm=0"):
        Rate(rpm=0)


# Rates


@pytest.mark.parametrize("shared", [True, False])
def test_rates_are_kept_on_average(workers: Workers, *, shared: bool):
    function = answerer()
    limits = Limits(50, rates={"*": Rate(rpm=300)})
    runtimes = [_rated(workers, function, limits, shared=shared) for _ in range(2)]
    began = time.monotonic()
    # 30 may be sent at once, and 5 more in each second.
    nodes = [runtime.invoke(function) for _ in range(17) for runtime in runtimes]
    assert {node.result(PATIENCE) for node in nodes} == {"Yes."}
    assert time.monotonic() - began >= 0.75


def _rated(workers: Workers, function: AgentFunction, limits: Limits, *, shared: bool) -> Runtime:
    model = ScriptedModel(lambda _: "Yes.")
    if shared:
        return workers(function, models=model, limits=limits)
    return workers.add(Runtime([function], models=model, limits=limits))


def test_a_request_that_waits_for_a_rate_says_so(workers: Workers):
    function = answerer()
    limits = Limits(rates={"*": Rate(rpm=1)})
    model = ScriptedModel(lambda _: "Yes.")
    one, other = (workers(function, models=model, limits=limits) for _ in range(2))
    assert one.invoke(function).result(PATIENCE) == "Yes."
    node = other.invoke(function)
    awaited = _events(other, node.id)[-1]
    assert isinstance(awaited, RateAwaited)
    assert 50 < awaited.seconds <= 60
    assert "fits into the rate" in other.get_view(node.id).status
    other.cancel(node.id)


def test_tokens_are_charged_with_what_a_request_took(url: str):
    rates = {"*": Rate(tpm=6000)}
    with PostgresStore(url) as one, PostgresStore(url) as other:
        assert one.cluster.limits.take_rates(rates, 100) == 0
        one.cluster.limits.charge_rates(rates, 1100)  # 600 were there
        assert other.cluster.limits.take_rates(rates, 100) == pytest.approx(7, abs=0.5)
        other.cluster.limits.charge_rates(rates, -1100)
        assert other.cluster.limits.take_rates(rates, 400) == 0
        # More than fits into the bucket needs a full one.
        assert one.cluster.limits.take_rates(rates, 5000) == pytest.approx(5, abs=0.5)


# Budgets


def fan_out(calls: int, helper: AgentFunction, **options: Any) -> CodeFunction:
    async def lead(ctx: RunContext) -> int:
        nodes = [ctx.invoke(helper) for _ in range(calls)]
        done = 0
        for node in nodes:
            try:
                await node
                done += 1
            except BudgetExceeded:
                pass
        return done

    return CodeFunction(callable=lead, uses=[helper], **options)


@pytest.mark.parametrize("where", ["call", "function", "runtime"])
def test_a_budget_counts_what_other_workers_spend(any_workers: Workers, gauges: Any, where: str):
    gauge = gauges(seconds=0.05)
    model = GaugedModel(lambda _: "Yes.", gauge.port)
    budget = Budget(calls=5, name="nightly" if where == "runtime" else None)
    lead = fan_out(9, HELPER, budget=budget if where == "function" else None)
    options: dict[str, Any] = {"budget": budget} if where == "runtime" else {}
    runtimes = [any_workers(lead, models=model, limits=Limits(50), **options) for _ in range(3)]
    node = runtimes[0].invoke(lead, budget=budget if where == "call" else None)
    assert node.result(PATIENCE) == 5
    assert gauge.begun == 5


@pytest.mark.parametrize("budget", [Budget(calls=2**64), Budget(tokens=2**64)])
def test_a_budget_may_be_larger_than_any_number_of_the_store(workers: Workers, budget: Budget):
    agent = answerer()
    runtime = workers(agent, models=ScriptedModel("ok"), budget=budget)
    assert runtime.invoke(agent).result(PATIENCE) == "ok"


@pytest.mark.parametrize("budget", [Budget(tokens=1000), Budget(usd=10)])
def test_workers_do_not_overdraw_a_budget_together(
    any_workers: Workers, gauges: Any, budget: Budget
):
    gauge = gauges(seconds=0.02)
    model = GaugedModel(
        lambda _: "Yes.",
        gauge.port,
        usage=TokenUsage(output=500),
        price=lambda usage: Decimal(usage.total) / 100,
    )
    lead = fan_out(9, HELPER, budget=budget)
    runtimes = [any_workers(lead, models=model, limits=Limits(50)) for _ in range(3)]
    assert runtimes[0].invoke(lead).result(PATIENCE) == 2
    assert gauge.begun == 2


class Job:
    """Counts its requests, each of which is answered by a call; the second waits for a person."""

    def __init__(self) -> None:
        self.requests = 0
        self.model = ScriptedModel(self._reply)
        look = CodeFunction(name="look", callable=lambda ctx: "nothing", repeatable=True)
        wait = CodeFunction(name="wait", callable=self._wait, repeatable=True)
        self.function = answerer("job", uses=[look, wait])

    def _reply(self, request: Any) -> Any:
        self.requests += 1
        calls = sum(isinstance(part, ToolUse) for part in request.transcript)
        return [ToolUse(f"{calls}", "wait" if calls == 1 else "look", {})]

    @staticmethod
    async def _wait(ctx: RunContext) -> str:
        return await ctx.ask(str, "May it go on?")


def test_the_budget_of_a_runtime_that_is_gone_is_one_for_all_who_continue_its_run(
    workers: Workers,
):
    job = Job()
    begins = workers(job.function, models=job.model, budget=Budget(calls=8))
    run = begins.invoke(job.function).id
    eventually(lambda: len(begins.questions()) == 1)
    workers.close(begins)
    one, other = (workers(job.function, models=job.model) for _ in range(2))
    forked = other.fork(run, at=1, edit=Edit(system="Again."))
    eventually(lambda: len(one.questions()) == 2)
    for question in one.questions():
        one.answer(question.id, "yes")
    eventually(lambda: all(one.get_view(id).state.final for id in (run, forked.id)))
    for id in (run, forked.id):
        assert "8 of 8 requests" in str(one.get_view(id).exception)
    assert job.requests == 8


def begun(workers: Workers, job: Job, *, forks: int = 0) -> tuple[int, list[int]]:
    """Have a run, and its forks, wait for a person, whose runtime with a budget is gone."""
    begins = workers(job.function, models=job.model, budget=Budget(calls=8))
    run = begins.invoke(job.function).id
    eventually(lambda: len(begins.questions()) == 1)
    forked = [begins.fork(run, at=1, edit=Edit(system="Again.")).id for _ in range(forks)]
    eventually(lambda: len(begins.questions()) == 1 + forks)
    workers.close(begins)
    return run, forked


def test_a_run_whose_spending_cannot_be_read_fails_and_no_other_waits_for_it(workers: Workers):
    job, function = Job(), answerer()
    run, [forked] = begun(workers, job, forks=1)
    model = ScriptedModel(lambda _: "Yes.")
    limits = Limits(rates={"*": Rate(rpm=6000)})
    goes_on = workers(job.function, function, models=job.model, limits=limits)
    with connect(workers.url) as rows:
        rows.execute("UPDATE events SET body = '{}' WHERE tree = %s AND place = 1", (forked,))
    question = min(goes_on.questions(), key=lambda one: one.node_id)  # of the run
    goes_on.answer(question.id, "yes")
    eventually(lambda: goes_on.get_view(run).state.final)
    assert f"node:{forked} has a wrong checksum" in str(goes_on.get_view(run).exception)
    assert goes_on.invoke(function, model=model).result(PATIENCE) == "Yes."


class ForgettingStore(PostgresStore):
    """Has each fork deleted as soon as it was found."""

    def forks(self, tree: int) -> list[int]:
        found = super().forks(tree)
        for one in found:
            self.delete(one)
        return found


def test_a_fork_that_is_deleted_while_its_spending_is_read_counts_no_more(workers: Workers):
    job = Job()
    run, [forked] = begun(workers, job, forks=1)
    ends = workers(job.function, models=job.model)
    ends.cancel(forked)
    eventually(lambda: ends.get_view(forked).state.final)
    workers.close(ends)
    with ForgettingStore(workers.url) as store:
        goes_on = workers(job.function, models=job.model, store=store)
        [question] = goes_on.questions()
        goes_on.answer(question.id, "yes")
        eventually(lambda: goes_on.get_view(run).state.final)
        assert "8 of 8 requests" in str(goes_on.get_view(run).exception)
        assert [row.id for row in store.trees()] == [run]
        workers.close(goes_on)


class CountingStore(SqliteStore):
    """Counts how often the forks of a tree are asked for."""

    asked = 0

    def forks(self, tree: int) -> list[int]:
        self.asked += 1
        return super().forks(tree)


def test_what_a_family_has_spent_is_read_once_by_the_process_that_goes_on(tmp_path: Path):
    job, path, forks = Job(), tmp_path / "run.db", 3
    with Runtime([job.function], models=job.model, store=path, budget=Budget(calls=9)) as begins:
        run = begins.invoke(job.function).id
        eventually(lambda: len(begins.questions()) == 1)
        for _ in range(forks):
            begins.fork(run, at=1, edit=Edit(system="Again."))
        eventually(lambda: len(begins.questions()) == 1 + forks)
        begins.close()
    with (
        CountingStore(path) as store,
        Runtime([job.function], models=job.model, store=store) as goes_on,
    ):
        goes_on.recover()
        for question in goes_on.questions():
            goes_on.answer(question.id, "yes")
        eventually(lambda: all(row.state.final for row in store.trees()))
        assert job.requests == 9
        assert store.asked == 1 + forks


@pytest.fixture
def accounts(url: str) -> Iterator["Accounts"]:
    with connect(url) as connection, PostgresStore(url) as store:
        yield Accounts(store, connection)


class Accounts:
    """Reserves requests in one account, for a drive that a worker owns."""

    def __init__(self, store: PostgresStore, connection: Any) -> None:
        self.store = store
        self.connection = connection
        self.owner = Ownership(1, tree=1, epoch=1)
        connection.execute(
            "INSERT INTO workers (name, host, process, functions, queues, lease, seen, server)"
            " VALUES ('w', 'h', 1, '[]', '[]', '1 minute', clock_timestamp(),"
            " pg_postmaster_start_time())"
        )
        connection.execute(
            "INSERT INTO drives (node, tree, epoch, owner, queue, priority)"
            " SELECT 1, 1, 1, id, 'default', 0 FROM workers"
        )

    def ask(self, account: StoredAccount, **amounts: Any) -> Any:
        """Return the id of the reservation, or why there is none."""
        id, estimate = uuid4(), Estimate(**amounts)
        limits = self.store.cluster.limits
        refused = limits.set_aside([account], id=id, estimate=estimate, ownership=self.owner)
        return refused or id

    def read(self, query: str) -> Any:
        return self.connection.execute(query).fetchone()


def test_budgets_in_tokens_and_money_are_kept_by_the_store(url: str, accounts: Accounts):
    account = StoredAccount(
        name="1:0", tree=1, most_tokens=1000, most_usd=Decimal("0.30"), history=1, tokens=100
    )
    ask, store = accounts.ask, accounts.store
    first = ask(account, tokens=500, usd=Decimal("0.1"))
    second = ask(account, tokens=400, usd=Decimal("0.1"))
    waits = ask(account, tokens=1, least_tokens=1)
    assert (waits.name, waits.tokens, waits.usd) == ("1:0", 1000, Decimal("0.2"))
    assert waits.must_wait
    store.cluster.limits.charge(first, calls=1, tokens=200, usd=Decimal("0.1"))
    store.cluster.limits.charge(first, calls=1, tokens=200, usd=Decimal("0.1"))
    with PostgresStore(url) as other:
        other.cluster.limits.charge(second, calls=0, tokens=0, usd=Decimal(0))
    assert not hasattr(ask(account, tokens=700, usd=Decimal("0.2")), "name")
    assert ask(account, tokens=0, usd=Decimal("0.01"), least_usd=Decimal("0.01")).must_wait
    refused = ask(account, tokens=900, least_tokens=701, least_usd=Decimal("0.1"))
    assert (refused.tokens, refused.usd, refused.must_wait) == (300, Decimal("0.1"), False)


def test_a_request_alone_needs_only_its_least(accounts: Accounts):
    account = StoredAccount(name="1:0", tree=1, most_tokens=100)
    first = accounts.ask(account, tokens=9000, least_tokens=60)
    assert accounts.ask(account, tokens=9000, least_tokens=60).must_wait
    accounts.store.cluster.limits.charge(first, calls=1, tokens=50, usd=Decimal(0))
    assert not accounts.ask(account, tokens=9000, least_tokens=60).must_wait
    assert not hasattr(accounts.ask(account, tokens=9000, least_tokens=50), "name")


def test_one_request_at_a_time_is_excused(accounts: Accounts):
    account = StoredAccount(name="1:0", tree=1, most_tokens=100)
    accounts.ask(account, tokens=60, least_tokens=10)
    excused = accounts.ask(account, tokens=9000, least_tokens=10)
    assert accounts.ask(account, tokens=9000, least_tokens=10).must_wait
    assert not hasattr(accounts.ask(account, tokens=30, least_tokens=10), "name")
    accounts.store.cluster.limits.charge(excused, calls=1, tokens=9000, usd=Decimal(0))
    assert not accounts.ask(account, tokens=1, least_tokens=1).must_wait


def test_a_request_of_a_dead_worker_is_charged_with_what_was_reserved_until_it_is_known(
    accounts: Accounts,
):
    account = StoredAccount(name="1:0", tree=1, most_calls=3, most_tokens=800)
    lost, excused = (accounts.ask(account, tokens=500, least_tokens=10) for _ in range(2))
    accounts.read("UPDATE workers SET lease = interval '0' RETURNING 1")
    assert not hasattr(accounts.ask(account, tokens=10), "name")
    assert accounts.read("SELECT calls, tokens FROM accounts") == (2, 510)
    # It was not dead after all, and they are not charged twice.
    for _ in range(2):
        accounts.store.cluster.limits.charge(lost, calls=1, tokens=50, usd=Decimal(0))
        accounts.store.cluster.limits.charge(excused, calls=0, tokens=0, usd=Decimal(0))
    assert accounts.read("SELECT calls, tokens FROM accounts") == (1, 50)
    assert not hasattr(accounts.ask(account, tokens=10), "name")
    assert accounts.ask(account, tokens=10).calls == 3


def test_a_request_counts_until_it_is_charged_also_if_its_drive_was_given_up(accounts: Accounts):
    account = StoredAccount(name="=june", most_tokens=100)
    excused = accounts.ask(account, tokens=900, least_tokens=10)
    accounts.read("UPDATE drives SET owner = NULL, epoch = 2 RETURNING 1")
    assert accounts.ask(account, tokens=900, least_tokens=10).must_wait
    accounts.store.cluster.limits.charge(excused, calls=1, tokens=91, usd=Decimal(0))
    assert not accounts.ask(account, tokens=900, least_tokens=10).must_wait


def test_nobody_waits_for_a_request_of_a_dead_worker(accounts: Accounts):
    account = StoredAccount(name="=june", most_tokens=100)
    accounts.ask(account, tokens=900, least_tokens=10)
    assert accounts.ask(account, tokens=900, least_tokens=10).must_wait
    accounts.read("UPDATE workers SET lease = interval '0' RETURNING 1")
    assert not hasattr(accounts.ask(account, tokens=900, least_tokens=10), "name")
    assert accounts.read("SELECT calls, tokens FROM accounts") == (1, 10)


def test_what_a_tree_spent_before_counts_once_in_an_account(accounts: Accounts):
    shared: dict[str, Any] = {"name": "~b", "tree": 1, "most_calls": 9}
    accounts.ask(StoredAccount(**shared, history=1, calls=3), tokens=1)
    accounts.ask(StoredAccount(**shared, history=1, calls=4), tokens=1)
    accounts.ask(StoredAccount(**shared, history=2, calls=2), tokens=1)
    assert accounts.read("SELECT calls FROM accounts") == (5,)


# Real processes


class Crew:
    """Worker processes, some of which are killed and replaced."""

    def __init__(self, placed: Workers, port: int, limit: int, stack: ExitStack) -> None:
        self._url = placed.url
        self._command = (str(WORKER), placed.url, placed.engine, str(port), str(limit))
        self._stack = stack
        self.kills = 0
        self.members: list[warm_python.Talk] = []

    def add(self) -> warm_python.Talk:
        process = warm_python.Talk(*self._command)
        self._stack.callback(process.kill)
        self.members.append(process)
        return process

    def kill(self, process: warm_python.Talk) -> None:
        self.kills += 1
        self.members.remove(process)
        process.kill()
        end_lease(self._url, process.program.pid)


@pytest.fixture
def crews() -> Iterator[Any]:
    with ExitStack() as stack:

        def start(placed: Workers, gauge: Gauge, limit: int, size: int) -> Crew:
            crew = Crew(placed, gauge.port, limit, stack)
            for process in [crew.add() for _ in range(size)]:
                assert process.readline() == "ready\n", process.complaints
            return crew

        yield start


def test_long_answers_of_two_processes_exceed_a_budget_by_one_of_them_at_most(url: str):
    tokens, long = 200_000, 40_000
    command = (str(SPENDER), url, str(tokens), str(long))
    processes = [warm_python.Talk(*command) for _ in range(2)]
    try:
        spent = sum(int(process.readline()) for process in processes)
    finally:
        for process in processes:
            process.kill()
    assert tokens - 10 < spent <= tokens + long
    with connect(url) as connection:
        assert connection.execute("SELECT tokens FROM accounts").fetchall() == [(spent,)]


def test_slots_of_a_killed_process_are_free_when_its_lease_is_over(
    placed: Workers, gauges: Any, crews: Any
):
    gauge = gauges(seconds=60)
    runtime = placed.submitter(LEAD, models=ScriptedModel(reply))
    crew = crews(placed, gauge, 1, 1)
    for _ in range(2):
        runtime.invoke(LEAD)
    eventually(lambda: gauge.under_way == 1)
    with PostgresStore(placed.url) as store:
        store.join(WorkerInfo(name="another", host="here", process=1), lease=60.0)
        assert not store.cluster.limits.set_slots({"*": 1}, limits={"*": 1})
        crew.kill(crew.members[0])
        assert store.cluster.limits.set_slots({"*": 1}, limits={"*": 1})


def test_slots_of_a_stopped_process_are_free_when_its_lease_is_over(
    placed: Workers, gauges: Any, crews: Any
):
    gauge = gauges(seconds=60)
    runtime = placed.submitter(LEAD, models=ScriptedModel(reply))
    crew = crews(placed, gauge, 1, 1)
    runtime.invoke(LEAD)
    eventually(lambda: gauge.under_way == 1)
    stopped = crew.members[0].program.pid
    os.kill(stopped, signal.SIGSTOP)
    try:
        crew.add()
        eventually(lambda: gauge.begun == 2, "the request of another process")
    finally:
        os.kill(stopped, signal.SIGCONT)
    # It learns that another has its tree.
    eventually(lambda: gauge.under_way == 1)
    assert gauge.begun == 2


@on("procrastinate")
def test_the_limit_holds_for_many_trees_with_random_kills(placed: Workers, gauges: Any, crews: Any):
    gauge = gauges(seconds=0.03, limit=LIMIT)
    runtime = placed.submitter(LEAD, models=ScriptedModel(reply))
    crew = crews(placed, gauge, LIMIT, 4)
    rng, kills = random.Random(7), max(3, TREES // 50)
    nodes = [runtime.invoke(LEAD) for _ in range(TREES)]
    end = time.monotonic() + max(120.0, 2.0 * TREES)
    with attach(placed.url) as observer:
        while any(row.open for row in observer.trees()):
            assert time.monotonic() < end, f"{gauge.answered} were answered; {_open_drives(placed)}"
            # All along the way: after as many answers each time.
            if crew.kills < kills and gauge.answered * (kills + 1) > 4 * TREES * (crew.kills + 1):
                crew.kill(rng.choice(crew.members))
                crew.add()
            time.sleep(0.02)
        assert {observer.get_view(node.id).outputs for node in nodes} == {"Done."}
    assert gauge.most <= LIMIT
    assert gauge.most > 1
    with connect(placed.url) as connection:
        [row] = connection.execute(
            "SELECT (SELECT sum(calls) FROM accounts)::integer, (SELECT count(*) FROM holds)"
        ).fetchall()
    charged = sum(int(str(number)) for number in row)
    # Each request that was sent has been charged; one that a kill has kept from being sent, too.
    assert 4 * TREES <= gauge.begun <= charged <= gauge.begun + LIMIT * crew.kills


def _open_drives(placed: Workers) -> str:
    """Describe the drives that have not ended, and the workers, for the message of a failure."""
    with connect(placed.url) as connection:
        drives = connection.execute(
            "SELECT * FROM drives WHERE wanted IS NOT NULL OR owner IS NOT NULL"
        ).fetchall()
        crew = connection.execute("SELECT id, process, seen, lease, load FROM workers").fetchall()
        calls = connection.execute("SELECT * FROM nodes WHERE open").fetchall()
    return f"drives: {drives}; workers: {crew}; calls: {calls}"


def test_nested_agents_end_with_one_slot(any_workers: Workers, gauges: Any):
    gauge = gauges(seconds=0.005, limit=1)
    model, limits = GaugedModel(reply, gauge.port), Limits(cluster_requests=1)
    one = any_workers(LEAD, models=model, limits=limits)
    any_workers(LEAD, models=model, limits=limits)
    nodes = [one.invoke(LEAD) for _ in range(4)]
    assert {node.result(PATIENCE) for node in nodes} == {"Done."}
    assert gauge.most == 1
