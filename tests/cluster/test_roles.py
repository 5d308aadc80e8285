"""Workers whose database role may do what the guide grants it, and nothing else."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from cluster.conftest import Workers
from cluster.test_shared_runtime import PATIENCE, eventually
from postgres_server import new_name, shared_url, with_query
from treefold import AgentFunction, Budget, CodeFunction, Limits, Rate, RunContext
from treefold.stores.postgres import PostgresStore, grant
from treefold.testing import ScriptedModel
from work_engines import make_engine

GUIDE = Path(__file__).parents[2] / "docs" / "operate" / "cluster.md"


def sql(statement: str) -> None:
    with psycopg.connect(shared_url(), autocommit=True) as connection:
        connection.execute(statement.encode())


@pytest.fixture
def granted(engine: str) -> Iterator[Workers]:
    """Open runtimes as a role that has got the rights of a worker, as the guide says."""
    name, schema = new_name("worker"), new_name()
    url = with_query(shared_url(), schema=schema)
    sql(f"CREATE ROLE {name} LOGIN")
    PostgresStore(url).close()
    grant(url, "worker", name)
    if engine == "procrastinate":
        _grant_jobs(url, engine, name)
    workers = Workers(url.replace("://postgres@", f"://{name}@"), engine)
    yield workers
    workers.close()
    sql(f"DROP OWNED BY {name}; DROP ROLE {name}")


def _grant_jobs(url: str, engine: str, name: str) -> None:
    """Have the owner create the jobs, and grant what the guide says."""

    async def create() -> None:
        jobs = make_engine(engine, url)
        await jobs.open()
        await jobs.close()

    asyncio.run(create())
    [statements] = re.findall(r"```sql\n(GRANT .*?)```", GUIDE.read_text(), re.DOTALL)
    sql(statements.replace(" TO app;", f" TO {name};"))


def test_a_worker_needs_no_other_rights_than_the_guide_grants(granted: Workers):
    async def ask(ctx: RunContext, question: str) -> str:
        return await ctx.ask(question, ["yes", "no"])

    asking = CodeFunction(callable=ask, repeatable=True, remote=True)

    async def work(ctx: RunContext) -> list[str]:
        return [await ctx.invoke(answerer), await ctx.invoke(asking, {"question": "Is it?"})]

    answerer = AgentFunction("answerer", "Answer.", user_prompt_template="Answer.")
    function = CodeFunction(callable=work, uses=[answerer, asking], repeatable=True)
    limits = Limits(cluster_requests=2, rates={"*": Rate(rpm=600)})
    models = ScriptedModel(lambda _: "Yes.")
    runtimes = [granted(function, models=models, limits=limits) for _ in range(2)]

    node = runtimes[0].invoke(function, budget=Budget(calls=3))

    eventually(runtimes[1].questions, "the question")
    runtimes[1].answer(runtimes[1].questions()[0].id, "yes")
    assert node.result(PATIENCE) == ["Yes.", "yes"]
