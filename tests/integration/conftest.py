"""The broker that this ring runs on, and a corner of it for each test."""

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster, provide, unique_prefix


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A real broker for the whole session; see tests/cluster.py for the faces it has."""
    with provide(tmp_path_factory.mktemp("broker")) as cluster:
        yield cluster


@pytest.fixture
def prefix() -> str:
    """A topic prefix that no other test has."""
    return unique_prefix()
