"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "agent_state",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.DateTime(), nullable=True),
        sa.Column("alive_at", sa.DateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agent_state")),
    )

    op.create_table(
        "hosts",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("engine_url", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("seen_at", sa.DateTime(), nullable=True),
        sa.Column("unreachable_since", sa.DateTime(), nullable=True),
        sa.Column("trouble", sa.String(), nullable=True),
        sa.Column("capabilities", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hosts")),
        sa.UniqueConstraint("name", name=op.f("uq_hosts_name")),
    )

    op.create_table(
        "images",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("base", sa.String(), nullable=True),
        sa.Column("reference", sa.String(), nullable=True),
        sa.Column("cuda_version", sa.String(), nullable=True),
        sa.Column("has_jupyter", sa.Boolean(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("withdrawn_at", sa.DateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_images")),
        sa.UniqueConstraint("base", name=op.f("uq_images_base")),
        sa.UniqueConstraint("reference", name=op.f("uq_images_reference")),
    )

    op.create_table(
        "intent",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_intent")),
    )

    op.create_table(
        "members",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("username", sa.String(), nullable=False),
        sa.Column("display_name", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("password_hash", sa.String(), nullable=False),
        sa.Column("uid", sa.Integer(), nullable=False),
        sa.Column("language", sa.String(), nullable=True),
        sa.Column("session_epoch", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("deactivated_at", sa.DateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_members")),
        sa.UniqueConstraint("uid", name=op.f("uq_members_uid")),
        sa.UniqueConstraint("username", name=op.f("uq_members_username")),
    )

    op.create_table(
        "teams",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("gid", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_teams")),
        sa.UniqueConstraint("gid", name=op.f("uq_teams_gid")),
        sa.UniqueConstraint("name", name=op.f("uq_teams_name")),
    )

    op.create_table(
        "events",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("at", sa.DateTime(), nullable=False),
        sa.Column("actor_id", sa.String(), nullable=True),
        sa.Column("address", sa.String(), nullable=True),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("object_type", sa.String(), nullable=False),
        sa.Column("object_id", sa.String(), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["actor_id"], ["members.id"], name=op.f("fk_events_actor_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index(op.f("ix_events_at"), "events", ["at"], unique=False)
    op.create_index(op.f("ix_events_object_id"), "events", ["object_id"], unique=False)

    op.create_table(
        "host_homes",
        sa.Column("host_id", sa.String(), nullable=False),
        sa.Column("member_id", sa.String(), nullable=False),
        sa.Column("seeded_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["host_id"], ["hosts.id"], name=op.f("fk_host_homes_host_id")),
        sa.ForeignKeyConstraint(["member_id"], ["members.id"], name=op.f("fk_host_homes_member_id")),
        sa.PrimaryKeyConstraint("host_id", "member_id", name=op.f("pk_host_homes")),
    )

    op.create_table(
        "invites",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("token_hash", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("expires_at", sa.DateTime(), nullable=False),
        sa.Column("used_at", sa.DateTime(), nullable=True),
        sa.Column("member_id", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["created_by"], ["members.id"], name=op.f("fk_invites_created_by")),
        sa.ForeignKeyConstraint(["member_id"], ["members.id"], name=op.f("fk_invites_member_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_invites")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_invites_token_hash")),
    )

    op.create_table(
        "port_history",
        sa.Column("host_id", sa.String(), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("last_used_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["host_id"], ["hosts.id"], name=op.f("fk_port_history_host_id")),
        sa.PrimaryKeyConstraint("host_id", "port", name=op.f("pk_port_history")),
    )

    op.create_table(
        "ssh_keys",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("member_id", sa.String(), nullable=False),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("line", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["member_id"], ["members.id"], name=op.f("fk_ssh_keys_member_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ssh_keys")),
        sa.UniqueConstraint("member_id", "fingerprint", name=op.f("uq_ssh_keys_member_id_fingerprint")),
    )
    op.create_index(op.f("ix_ssh_keys_member_id"), "ssh_keys", ["member_id"], unique=False)

    op.create_table(
        "team_members",
        sa.Column("team_id", sa.String(), nullable=False),
        sa.Column("member_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["member_id"], ["members.id"], name=op.f("fk_team_members_member_id")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_team_members_team_id")),
        sa.PrimaryKeyConstraint("team_id", "member_id", name=op.f("pk_team_members")),
    )
    op.create_index(op.f("ix_team_members_member_id"), "team_members", ["member_id"], unique=False)

    op.create_table(
        "volumes",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("team_id", sa.String(), nullable=False),
        sa.Column("host_folder", sa.String(), nullable=True),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("read_only", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_volumes_team_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_volumes")),
        sa.UniqueConstraint("name", name=op.f("uq_volumes_name")),
    )
    op.create_index(op.f("ix_volumes_team_id"), "volumes", ["team_id"], unique=False)

    op.create_table(
        "workspaces",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("owner_id", sa.String(), nullable=False),
        sa.Column("host_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("image_id", sa.String(), nullable=False),
        sa.Column("image_reference", sa.String(), nullable=False),
        sa.Column("cpu_millis", sa.Integer(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("shm_bytes", sa.BigInteger(), nullable=False),
        sa.Column("pids", sa.Integer(), nullable=False),
        sa.Column("jupyter", sa.Boolean(), nullable=False),
        sa.Column("desired", sa.String(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("phase", sa.String(), nullable=False),
        sa.Column("phase_at", sa.DateTime(), nullable=False),
        sa.Column("health", sa.String(), nullable=False),
        sa.Column("reason", sa.JSON(), nullable=True),
        sa.Column("note", sa.JSON(), nullable=True),
        sa.Column("attempted_generation", sa.Integer(), nullable=False),
        sa.Column("observed_generation", sa.Integer(), nullable=False),
        sa.Column("container_id", sa.String(), nullable=True),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("private_image", sa.String(), nullable=True),
        sa.Column("progress", sa.JSON(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("next_try_at", sa.DateTime(), nullable=True),
        sa.Column("log_tail", sa.String(), nullable=True),
        sa.Column("started_at", sa.DateTime(), nullable=True),
        sa.ForeignKeyConstraint(["host_id"], ["hosts.id"], name=op.f("fk_workspaces_host_id")),
        sa.ForeignKeyConstraint(["image_id"], ["images.id"], name=op.f("fk_workspaces_image_id")),
        sa.ForeignKeyConstraint(["owner_id"], ["members.id"], name=op.f("fk_workspaces_owner_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workspaces")),
    )
    op.create_index(op.f("ix_workspaces_host_id"), "workspaces", ["host_id"], unique=False)
    op.create_index(op.f("ix_workspaces_owner_id"), "workspaces", ["owner_id"], unique=False)
    op.create_index(
        "uq_workspaces_live_name", "workspaces", ["owner_id", "name"], unique=True,
        sqlite_where=sa.text("desired != 'removed'"), postgresql_where=sa.text("desired != 'removed'"),
    )

    op.create_table(
        "operations",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("workspace_id", sa.String(), nullable=True),
        sa.Column("host_id", sa.String(), nullable=True),
        sa.Column("actor_id", sa.String(), nullable=True),
        sa.Column("arguments", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("expires_at", sa.DateTime(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("progress", sa.JSON(), nullable=True),
        sa.Column("result", sa.JSON(), nullable=True),
        sa.Column("reason", sa.JSON(), nullable=True),
        sa.Column("started_at", sa.DateTime(), nullable=True),
        sa.Column("ended_at", sa.DateTime(), nullable=True),
        sa.ForeignKeyConstraint(["actor_id"], ["members.id"], name=op.f("fk_operations_actor_id")),
        sa.ForeignKeyConstraint(["host_id"], ["hosts.id"], name=op.f("fk_operations_host_id")),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspaces.id"], name=op.f("fk_operations_workspace_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_operations")),
    )
    op.create_index(op.f("ix_operations_kind"), "operations", ["kind"], unique=False)
    op.create_index(op.f("ix_operations_state"), "operations", ["state"], unique=False)
    op.create_index(op.f("ix_operations_workspace_id"), "operations", ["workspace_id"], unique=False)

    op.create_table(
        "port_claims",
        sa.Column("host_id", sa.String(), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("service", sa.String(), nullable=False),
        sa.Column("claimed_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["host_id"], ["hosts.id"], name=op.f("fk_port_claims_host_id")),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspaces.id"], name=op.f("fk_port_claims_workspace_id")),
        sa.PrimaryKeyConstraint("host_id", "port", name=op.f("pk_port_claims")),
        sa.UniqueConstraint("workspace_id", "service", name=op.f("uq_port_claims_workspace_id_service")),
    )
    op.create_index(op.f("ix_port_claims_workspace_id"), "port_claims", ["workspace_id"], unique=False)

    op.create_table(
        "workspace_mounts",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("volume_id", sa.String(), nullable=False),
        sa.Column("read_only", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["volume_id"], ["volumes.id"], name=op.f("fk_workspace_mounts_volume_id")),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspaces.id"], name=op.f("fk_workspace_mounts_workspace_id")),
        sa.PrimaryKeyConstraint("workspace_id", "volume_id", name=op.f("pk_workspace_mounts")),
    )

    op.create_table(
        "workspace_secrets",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("jupyter_token", sa.String(), nullable=False),
        sa.Column("host_private_key", sa.String(), nullable=False),
        sa.Column("host_public_key", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspaces.id"], name=op.f("fk_workspace_secrets_workspace_id")),
        sa.PrimaryKeyConstraint("workspace_id", name=op.f("pk_workspace_secrets")),
    )
    # Rung by every intent from the first one on: an UPDATE needs no check whether the row is there.
    op.execute("INSERT INTO intent (id, seq) VALUES (1, 0)")


def downgrade() -> None:
    for table in (
        "workspace_secrets",
        "workspace_mounts",
        "port_claims",
        "operations",
        "workspaces",
        "volumes",
        "team_members",
        "ssh_keys",
        "port_history",
        "invites",
        "host_homes",
        "events",
        "teams",
        "members",
        "intent",
        "images",
        "hosts",
        "agent_state",
    ):
        op.drop_table(table)
