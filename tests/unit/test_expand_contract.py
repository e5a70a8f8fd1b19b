"""Migrations expand in one release and contract in the next: the code of the release before goes on beside them.

A migration takes away only what it names in `CONTRACTS = "<revision>"`: the release that came with that revision is the
first whose code did without.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from webapp.store.revisions import migrations_folder

FREE = {"0001", "0002"}     # nobody ran an older Berth when they came
FORBIDDEN = {
    "drop_table", "drop_column", "drop_index", "drop_constraint", "rename_table", "create_unique_constraint",
    "create_check_constraint", "create_exclude_constraint", "create_primary_key",
}
NARROWING = {"nullable", "type_", "new_column_name", "server_default"}      # of alter_column
STATEMENT = re.compile(r"\b(DROP|RENAME|DELETE|TRUNCATE|SET\s+NOT\s+NULL|UNIQUE)\b", re.IGNORECASE)


def contractions(source: str) -> list[str]:
    """What in `upgrade` and its helpers code of the release before would trip over, with the line."""
    tree = ast.parse(source)
    return [f"{found} (line {line})" for line, found in sorted(_found(tree))]


def _found(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for top in tree.body:
        if isinstance(top, ast.FunctionDef) and top.name == "downgrade":
            continue
        for node in ast.walk(top):
            if isinstance(node, ast.Call):
                yield from ((node.lineno, what) for what in _of_call(node))
            elif (word := _statement(node)) and not _is_docstring(top, node):
                yield node.lineno, word


def _statement(node: ast.AST) -> str | None:
    match = STATEMENT.search(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
    return match[1].upper() if match else None


def _of_call(call: ast.Call) -> Iterator[str]:
    name, given = _name(call), {word.arg: word.value for word in call.keywords}
    if name in FORBIDDEN:
        yield name
    elif name == "alter_column":
        yield from (f"alter_column({word}=…)" for word in NARROWING & given.keys() if not _widens(word, given[word]))
    elif name == "add_column":
        yield from (f"{of} without a default" for of in _demanding(call))
    elif name == "create_index" and _is(given.get("unique"), True):
        yield "unique index"


def _name(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _widens(word: str, value: ast.expr) -> bool:
    return word == "nullable" and _is(value, True)


def _demanding(add_column: ast.Call) -> Iterator[str]:
    """Columns that an older INSERT cannot fill."""
    for column in (node for node in ast.walk(add_column) if isinstance(node, ast.Call) and _name(node) == "Column"):
        given = {word.arg: word.value for word in column.keywords}
        if not _is(given.get("nullable"), True) and "server_default" not in given:
            yield ast.unparse(column.args[0])


def _is(value: ast.expr | None, wanted: bool) -> bool:
    return isinstance(value, ast.Constant) and value.value is wanted


def _is_docstring(top: ast.stmt, node: ast.AST) -> bool:
    return isinstance(top, ast.Expr) or any(
        isinstance(inner, ast.Expr) and inner.value is node for inner in ast.walk(top))


def migrations() -> dict[str, str]:
    return {path.name[:4]: path.read_text("utf-8") for path in sorted((migrations_folder() / "versions").glob("*.py"))}


def contracts(source: str) -> str | None:
    match = re.search(r"""^CONTRACTS = ["'](\w+)["']""", source, re.MULTILINE)
    return match[1] if match else None


@pytest.mark.parametrize("revision", sorted(migrations().keys() - FREE))
def test_migration_leaves_the_release_before_at_work(revision: str) -> None:
    source = migrations()[revision]
    since = contracts(source)
    if since is None:
        assert contractions(source) == [], "expand now, and contract in the next release: see Upgrade in the README"
    else:
        assert since in migrations() and since < revision


@pytest.mark.parametrize("line", [
    'op.drop_column("workspaces", "note")',
    'batch.drop_column("note")',
    'op.drop_table("operations")',
    'op.rename_table("images", "pictures")',
    'op.alter_column("images", "title", new_column_name="name")',
    'op.alter_column("images", "title", nullable=False)',
    'op.add_column("images", sa.Column("size", sa.Integer(), nullable=False))',
    'op.add_column("images", sa.Column("size", sa.Integer()))',
    'op.create_unique_constraint("uq", "images", ["title"])',
    'op.create_index("ix", "images", ["title"], unique=True)',
    'op.execute("ALTER TABLE images DROP COLUMN title")',
    'connection.execute(sa.text("delete from events"))',
])
def test_what_takes_something_away_is_found(line: str) -> None:
    assert contractions(f'"""Drop in."""\ndef upgrade():\n    """DROP."""\n    {line}\n')


@pytest.mark.parametrize("line", [
    'op.add_column("images", sa.Column("size", sa.Integer(), nullable=True))',
    'op.add_column("images", sa.Column("size", sa.Integer(), nullable=False, server_default="0"))',
    'op.alter_column("images", "title", nullable=True)',
    'op.create_table("more", sa.Column("id", sa.String(), nullable=False))',
    'op.create_index("ix", "images", ["title"], unique=False)',
    'op.execute("UPDATE images SET title = base")',
    'pass\ndef downgrade():\n    op.drop_table("more")',
])
def test_what_only_adds_is_free(line: str) -> None:
    assert contractions(f'"""Drop in."""\ndef upgrade():\n    {line}\n') == []


def test_folder_of_migrations_holds_nothing_else() -> None:
    assert all(re.fullmatch(r"\d{4}_\w+\.py", path.name) for path in Path(migrations_folder(), "versions").glob("*.py"))
