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
    assert not ebb.came(0)
    ebb.rose(CROWD_MIN)
    assert ebb.came(0)


def test_a_few_are_no_crowd():
    ebb = Ebb()
    ebb.rose(CROWD_MIN - 1)
    assert not ebb.came(0)
