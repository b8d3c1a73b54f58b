"""A whole front, shared by the tests of a module, and the supervisor that it asks. A module may override each part."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import wait_until
from tests.process.fake_supervisor import FakeSupervisor
from tests.process.proxy_harness import Front, whole_front


@pytest.fixture(scope="module")
def front_parts() -> Iterator[tuple[Front, FakeSupervisor]]:
    with whole_front() as parts:
        yield parts


@pytest.fixture
def front(front_parts: tuple[Front, FakeSupervisor]) -> Front:
    return front_parts[0]


@pytest.fixture
def supervisor(front_parts: tuple[Front, FakeSupervisor]) -> Iterator[FakeSupervisor]:
    supervisor = front_parts[1]
    supervisor.told.clear()
    supervisor.answers.clear()
    yield supervisor
    wait_until(lambda: supervisor.open_leases() == 0)
