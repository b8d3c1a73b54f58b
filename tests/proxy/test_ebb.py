"""When a crowd counts as gone."""

from __future__ import annotations

from llamad.proxy.ebb import CROWD_MIN, Ebb


def test_most_of_a_crowd_has_to_go_and_it_is_said_once():
    ebb = Ebb()
    for count in range(1, 201):
        ebb.rose(count)
    assert not ebb.came(200)
    assert not ebb.came(51)
    assert ebb.came(50)
    assert [ebb.came(0) for _ in range(3)] == [True, True, False]
    ebb.rose(CROWD_MIN)
    assert ebb.came(0)


def test_a_few_are_no_crowd():
    ebb = Ebb()
    ebb.rose(CROWD_MIN - 1)
    assert not ebb.came(0)


def test_the_rest_of_a_crowd_leaves_nothing_behind_either() -> None:
    ebb = Ebb()
    ebb.rose(1000)
    assert [ebb.came(count) for count in (300, 250, 62, 30, 15, 3, 1, 0, 0, 0)] == [
        False, True, True, False, True, True, False, True, True, False,
    ]  # fmt: skip
    ebb.rose(8)
    assert not ebb.came(0)


def test_a_few_who_come_meanwhile_are_no_crowd() -> None:
    ebb = Ebb()
    ebb.rose(100)
    assert ebb.came(20)
    ebb.rose(40)
    assert not ebb.came(10)
    assert ebb.came(5)
