"""Who waits for one of few places, and in which order."""

from __future__ import annotations

import asyncio

from llamad.proxy.turns import Turns


def test_so_many_at_once_and_turns_go_round_the_clients():
    done: list[str] = []
    inside = most = 0

    async def read(turns: Turns, client: str) -> None:
        nonlocal inside, most
        async with turns.turn(client):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1
            done.append(client)

    async def crowd() -> None:
        turns = Turns(1)
        greedy = [asyncio.create_task(read(turns, "greedy")) for _ in range(50)]
        await asyncio.sleep(0)
        await asyncio.gather(*greedy, read(turns, "modest"), read(turns, "other"))

    asyncio.run(crowd())
    assert most == 1
    assert {"modest", "other"} <= set(done[:6])
    assert len(done) == 52


def test_who_leaves_in_line_or_in_turn_leaves_the_place_to_others():
    async def leaving() -> None:
        turns = Turns(2)
        for _ in range(5):

            async def hold() -> None:
                async with turns.turn("a"):
                    await asyncio.sleep(3600)

            tasks = [asyncio.create_task(hold()) for _ in range(6)]
            await asyncio.sleep(0)
            tasks[4].cancel()
            await asyncio.sleep(0)
            tasks[0].cancel()
            tasks[2].cancel()  # its turn may have come in this very moment
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        async with asyncio.timeout(5), turns.turn("b"), turns.turn("c"):
            pass

    asyncio.run(leaving())
