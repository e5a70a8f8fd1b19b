"""GPUs of hosts, who holds them, and what a workspace asks for."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "gpus",
        sa.Column("host_id", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("uuid", sa.String(), nullable=True),
        sa.Column("parent_uuid", sa.String(), nullable=True),
        sa.Column("index", sa.Integer(), nullable=True),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("pci_bus_id", sa.String(), nullable=True),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("shares_host_memory", sa.Boolean(), nullable=False),
        sa.Column("mig_mode", sa.String(), nullable=True),
        sa.Column("condition", sa.String(), nullable=False),
        sa.Column("condition_at", sa.DateTime(), nullable=False),
        sa.Column("refusal", sa.JSON(), nullable=True),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("seen_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["host_id"], ["hosts.id"], name=op.f("fk_gpus_host_id")),
        sa.PrimaryKeyConstraint("host_id", "key", name=op.f("pk_gpus")),
    )
    op.create_index(op.f("ix_gpus_uuid"), "gpus", ["uuid"])

    op.create_table(
        "gpu_claims",
        sa.Column("gpu_uuid", sa.String(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("host_id", sa.String(), nullable=False),
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("claimed_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["host_id"], ["hosts.id"], name=op.f("fk_gpu_claims_host_id")),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspaces.id"], name=op.f("fk_gpu_claims_workspace_id")),
        sa.PrimaryKeyConstraint("gpu_uuid", "slot", name=op.f("pk_gpu_claims")),
    )
    op.create_index(op.f("ix_gpu_claims_host_id"), "gpu_claims", ["host_id"])
    op.create_index(op.f("ix_gpu_claims_workspace_id"), "gpu_claims", ["workspace_id"])

    op.add_column("hosts", sa.Column("gpus_seen_at", sa.DateTime(), nullable=True))
    op.add_column("hosts", sa.Column("driver_version", sa.String(), nullable=True))
    op.add_column("hosts", sa.Column("cuda_version", sa.String(), nullable=True))
    op.add_column("hosts", sa.Column("gpu_trouble", sa.JSON(), nullable=True))
    op.add_column("hosts", sa.Column("gpu_links", sa.JSON(), nullable=True))

    op.add_column("workspaces", sa.Column("gpu_count", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("workspaces", sa.Column("gpu_model", sa.String(), nullable=True))
    op.add_column("workspaces", sa.Column("gpu_uuids", sa.JSON(), nullable=False, server_default="[]"))
    op.add_column("workspaces", sa.Column("gpu_check", sa.JSON(), nullable=True))
