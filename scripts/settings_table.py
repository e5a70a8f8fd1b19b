#!/usr/bin/env python3
"""Write the README's table of settings from webapp/settings.py: scripts/settings_table.py [--check]

With --check nothing is written; the exit code says whether the README is up to date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from webapp.settings import table

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- settings:begin -->", "<!-- settings:end -->"


def rendered(readme: str) -> str:
    """The README with the table of today between its two markers."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"README.md lacks {BEGIN} and {END}")
    lines = ["| variable | unit | default | what it is |", "|---|---|---|---|"]
    lines += [f"| `{row.variable}` | {row.unit} | {row.default} | {row.description} |" for row in table()]
    return "\n".join([before + BEGIN, *lines, END + after])


def main() -> int:
    readme = README.read_text("utf-8")
    wanted = rendered(readme)
    if "--check" in sys.argv[1:]:
        return int(readme != wanted)
    README.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
