"""Many trees that several threads start at once in a shared store."""

from concurrent.futures import ThreadPoolExecutor

from cluster.conftest import Workers
from treefold import registries, tool

with registries():

    @tool(repeatable=True)
    async def double(number: int) -> int:
        """Double a number."""
        return 2 * number


def test_trees_that_threads_start_at_once_have_ids_of_their_own(workers: Workers):
    runtime = workers(double)

    with ThreadPoolExecutor(8) as pool:
        nodes = list(pool.map(lambda n: runtime.invoke(double, {"number": n}), range(200)))

    assert [node.result() for node in nodes] == [2 * number for number in range(200)]
    assert len({node.id for node in nodes}) == 200
