"""ContextItem, ContextQueue and ContextPool on their own."""

from typing import Any

import pytest

from treefold import ContextItem, ContextPool, ContextPoolHook, ContextQueue, ContextQueueHook, hook


def contents(box: ContextQueue | ContextPool) -> list[Any]:
    return [item.content for item in box.items]


def test_an_item_has_content_and_perhaps_an_id_and_a_description() -> None:
    bare, full = ContextItem("x"), ContextItem("x", "i", "d")

    assert (bare.content, bare.id, bare.description) == ("x", None, None)
    assert (full.content, full.id, full.description) == ("x", "i", "d")


async def test_a_queue_keeps_the_newest_items_in_order() -> None:
    queue = ContextQueue(3)
    await queue.append(ContextItem("a"), ContextItem("b"))
    await queue.append(ContextItem("c"), ContextItem("d"))

    assert contents(queue) == ["b", "c", "d"]


async def test_more_items_than_the_limit_at_once_leave_the_last_ones() -> None:
    queue = ContextQueue(limit=2)
    await queue.append(*[ContextItem(letter) for letter in "abcde"])

    assert contents(queue) == ["d", "e"]


async def test_a_cleared_queue_is_empty() -> None:
    queue = ContextQueue(2)
    await queue.append(ContextItem("a"))
    await queue.clear()

    assert contents(queue) == []


async def test_a_branch_of_a_queue_goes_its_own_way() -> None:
    queue = ContextQueue(2)
    await queue.append(ContextItem("a"), ContextItem("b"))
    branch = queue.branch()
    await branch.append(ContextItem("c"))

    assert (contents(queue), contents(branch)) == (["a", "b"], ["b", "c"])


async def test_the_list_of_items_does_not_lead_into_the_queue() -> None:
    queue = ContextQueue(1)
    await queue.append(ContextItem("a"))
    items: Any = list(queue.items)
    items.append(ContextItem("b"))

    assert contents(queue) == ["a"]


async def test_the_hooks_of_a_queue() -> None:
    told: list[tuple[str, list[Any]]] = []
    queue = ContextQueue(1)

    for point in ("before_append", "after_append", "before_clear", "after_clear", "on_evict"):

        async def note(*args: Any, name: str = point) -> None:
            told.append((name, contents(queue)))

        getattr(queue, point)(note)

    await queue.append(ContextItem("a"))
    await queue.append(ContextItem("b"))
    await queue.clear()

    assert [entry for entry in told if entry[0] != "on_evict"] == [
        ("before_append", []),
        ("after_append", ["a"]),
        ("before_append", ["a"]),
        ("after_append", ["b"]),
        ("before_clear", ["b"]),
        ("after_clear", []),
    ]
    assert [name for name, _ in told].count("on_evict") == 1
    assert [name for name, _ in told].index("on_evict") == 3


async def test_a_pool_finds_items_by_id() -> None:
    pool = ContextPool()
    first, second = ContextItem("a", id="1"), ContextItem("b", id="2")
    await pool.add(first)
    await pool.add(second)
    found = (pool.get("1"), pool.get("2"), list(pool.items))
    await pool.remove("1")

    assert found == (first, second, [first, second])
    assert list(pool.items) == [second]
    with pytest.raises(KeyError):
        pool.get("1")


async def test_a_pool_without_limit_keeps_everything() -> None:
    pool = ContextPool()
    for number in range(1000):
        await pool.add(ContextItem(number, id=str(number)))

    assert contents(pool) == list(range(1000))


async def test_a_pool_with_a_limit_evicts_the_oldest() -> None:
    evictions = 0
    pool = ContextPool(limit=2)

    @pool.on_evict
    async def count(*args: Any) -> None:
        nonlocal evictions
        evictions += 1

    for letter in "abc":
        await pool.add(ContextItem(letter, id=letter))

    assert (contents(pool), evictions) == (["b", "c"], 1)


async def test_the_catalogue_of_a_pool_names_ids_and_descriptions_and_no_content() -> None:
    pool = ContextPool()
    await pool.add(ContextItem("Berlin", id="city", description="Where the user lives"))
    await pool.add(ContextItem("blue", id="colour", description="What the user likes"))

    lines = pool.catalogue().splitlines()

    assert len(lines) == 2
    assert "city" in lines[0]
    assert "Where the user lives" in lines[0]
    assert "colour" in lines[1]
    assert "Berlin" not in pool.catalogue()


async def test_a_branch_of_a_pool_goes_its_own_way() -> None:
    pool = ContextPool()
    await pool.add(ContextItem("a", id="a"))
    branch = pool.branch()
    await branch.add(ContextItem("b", id="b"))
    await branch.remove("a")

    assert (contents(pool), contents(branch)) == (["a"], ["b"])


async def test_the_hooks_of_a_pool() -> None:
    told: list[tuple[str, list[Any]]] = []
    pool = ContextPool()
    points = "before_add after_add before_remove after_remove before_clear after_clear"

    for point in points.split():

        async def note(*args: Any, name: str = point) -> None:
            told.append((name, contents(pool)))

        getattr(pool, point)(note)

    await pool.add(ContextItem("a", id="a"))
    await pool.remove("a")
    await pool.add(ContextItem("b", id="b"))
    await pool.clear()

    assert told == [
        ("before_add", []),
        ("after_add", ["a"]),
        ("before_remove", ["a"]),
        ("after_remove", []),
        ("before_add", []),
        ("after_add", ["b"]),
        ("before_clear", ["b"]),
        ("after_clear", []),
    ]


async def test_global_context_hooks_select_by_tag() -> None:
    count = 0

    @hook([ContextQueueHook.AFTER_APPEND, ContextPoolHook.AFTER_ADD], tags={"io"})
    async def tick(*args: Any) -> None:
        nonlocal count
        count += 1

    await ContextQueue(1, tags=["io"]).append(ContextItem("a"))
    await ContextQueue(1).append(ContextItem("a"))
    await ContextPool(tags=["io"]).add(ContextItem("a", id="a"))
    await ContextPool(tags=["other"]).add(ContextItem("a", id="a"))

    assert count == 2


async def test_what_a_context_hook_raises_comes_out_and_nothing_is_added() -> None:
    queue = ContextQueue(1)

    @queue.before_append
    async def refuse(*args: Any) -> None:
        raise PermissionError

    with pytest.raises(PermissionError):
        await queue.append(ContextItem("a"))

    assert contents(queue) == []
