"""The same fixtures as in tests/faults."""

from faults.conftest import ground, make_house  # noqa: F401
