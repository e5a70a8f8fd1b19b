"""Long work on a terminal: a line for each step with its time, and what it is at meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

PIPE_PAUSE_SECONDS = 2.0    # between two progress lines where no terminal can rewrite one


class Steps:
    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, stderr=True)

    @contextmanager
    def step(self, title: str) -> Iterator[Callable[[str], None]]:
        """Gives a function that says what the step is at. A step that fails prints nothing: its error does."""
        began = time.monotonic()
        with self._progress(title) as say:
            yield say
        self.done(f"{title} ({time.monotonic() - began:.1f} s)")

    def done(self, line: str) -> None:
        self._console.print(f"[green]✓[/green] {escape(line)}", soft_wrap=True)

    def warn(self, line: str) -> None:
        self._console.print(f"[yellow]![/yellow] {escape(line)}", soft_wrap=True)

    @contextmanager
    def _progress(self, title: str) -> Iterator[Callable[[str], None]]:
        if self._console.is_terminal:
            with self._console.status(escape(title)) as status:
                yield lambda line: status.update(escape(f"{title}: {line.splitlines()[0]}"))
        else:
            yield _Paced(self._console)


class _Paced:
    """In a log one line now and then is enough."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next = 0.0

    def __call__(self, line: str) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + PIPE_PAUSE_SECONDS
            self._console.print(f"  {escape(line)}", soft_wrap=True)
