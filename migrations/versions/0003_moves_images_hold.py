"""Changes of workspaces, images as they are on hosts, operations on images, and the hold after a restore."""

from collections import defaultdict

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _images()
    _operations()
    _hold()
    _workspaces()


def _images() -> None:
    with op.batch_alter_table("images") as images:
        images.add_column(sa.Column("dockerfile", sa.String(), nullable=True))
        images.add_column(sa.Column("digest", sa.String(), nullable=True))
        images.add_column(sa.Column("architecture", sa.String(), nullable=True))
        images.add_column(sa.Column("size_bytes", sa.BigInteger(), nullable=True))
        images.add_column(sa.Column("owner_id", sa.String(), nullable=True))
        images.add_column(sa.Column("team_id", sa.String(), nullable=True))
        images.add_column(sa.Column("host_id", sa.String(), nullable=True))
        images.add_column(sa.Column("saved_from", sa.String(), nullable=True))
        images.add_column(sa.Column("deleted_at", sa.DateTime(), nullable=True))
        images.create_foreign_key(op.f("fk_images_owner_id"), "members", ["owner_id"], ["id"])
        images.create_foreign_key(op.f("fk_images_team_id"), "teams", ["team_id"], ["id"])
        images.create_foreign_key(op.f("fk_images_host_id"), "hosts", ["host_id"], ["id"])
    op.create_index(op.f("ix_images_owner_id"), "images", ["owner_id"])
    op.create_index(op.f("ix_images_team_id"), "images", ["team_id"])
    op.create_table(
        "host_images",
        sa.Column("host_id", sa.String(), nullable=False),
        sa.Column("image_id", sa.String(), nullable=False),
        sa.Column("engine_id", sa.String(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["host_id"], ["hosts.id"], name=op.f("fk_host_images_host_id")),
        sa.ForeignKeyConstraint(["image_id"], ["images.id"], name=op.f("fk_host_images_image_id")),
        sa.PrimaryKeyConstraint("host_id", "image_id", name=op.f("pk_host_images")),
    )
    op.create_index(op.f("ix_host_images_image_id"), "host_images", ["image_id"])


def _operations() -> None:
    with op.batch_alter_table("operations") as operations:
        operations.add_column(sa.Column("image_id", sa.String(), nullable=True))
        operations.add_column(sa.Column("cancel_asked_at", sa.DateTime(), nullable=True))
        operations.add_column(sa.Column("log", sa.String(), nullable=True))
        operations.create_foreign_key(op.f("fk_operations_image_id"), "images", ["image_id"], ["id"])
    op.create_index(op.f("ix_operations_image_id"), "operations", ["image_id"])


def _hold() -> None:
    op.add_column("agent_state", sa.Column("hold", sa.JSON(), nullable=True))
    op.create_table(
        "hold_findings",
        sa.Column("host_id", sa.String(), nullable=False),
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("found_at", sa.DateTime(), nullable=False),
        sa.Column("decision", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["host_id"], ["hosts.id"], name=op.f("fk_hold_findings_host_id")),
        sa.PrimaryKeyConstraint("host_id", "workspace_id", name=op.f("pk_hold_findings")),
    )


def _workspaces() -> None:
    """Containers that are there already say nothing of their shared memory and mounts: those of the row, as it is."""
    op.add_column("workspaces", sa.Column("before_change", sa.JSON(), nullable=True))
    op.add_column("workspaces", sa.Column("applied_limits", sa.JSON(), nullable=True))
    op.add_column("workspaces", sa.Column("shape_unlabelled", sa.String(), nullable=True))
    connection = op.get_bind()
    mounts: dict[str, list[str]] = defaultdict(list)
    rows = connection.execute(sa.text("SELECT workspace_id, volume_id, read_only FROM workspace_mounts"))
    for workspace_id, volume_id, read_only in rows:
        mounts[workspace_id].append(f"{volume_id}:{'ro' if read_only else 'rw'}")
    for workspace_id, shm in connection.execute(sa.text("SELECT id, shm_bytes FROM workspaces")).all():
        shape = f"shm={shm} mounts={','.join(sorted(mounts[workspace_id]))}"
        connection.execute(sa.text("UPDATE workspaces SET shape_unlabelled = :shape WHERE id = :id"),
                           {"shape": shape, "id": workspace_id})
