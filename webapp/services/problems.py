"""All that is wrong with a form, told at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from webapp.errors import FieldProblem, InvalidInput


class Problems:
    """Gathers problems of single fields; `raise_if_any` ends the request with all of them.

    with problems.gather():
        name = parse_workspace_name(name)
    """

    def __init__(self) -> None:
        self._found: list[FieldProblem] = []

    @contextmanager
    def gather(self) -> Iterator[None]:
        """Keeps what the block finds wrong and goes on after it; what the block assigns stays as it was."""
        try:
            yield
        except InvalidInput as invalid:
            self._found.extend(invalid.problems)

    def add(self, field: str, message: str, **facts: Any) -> None:
        self._found.append(FieldProblem(field, message, facts))

    def has(self, field: str) -> bool:
        return any(problem.field == field for problem in self._found)

    def raise_if_any(self) -> None:
        if self._found:
            raise InvalidInput(*self._found)
