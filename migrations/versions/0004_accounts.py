"""Accounts: sessions and second factors, SSH sessions, policy and quotas, tokens and notices, members and OIDC."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _sign_in()
    _ssh()
    _policy()
    _tokens()
    _members()


def _sign_in() -> None:
    """Browser sessions."""
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("member_id", sa.String(), nullable=False),
        sa.Column("token_hash", sa.String(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("seen_at", sa.DateTime(), nullable=False),
        sa.Column("proven_at", sa.DateTime(), nullable=False),
        sa.Column("address", sa.String(), nullable=True),
        sa.Column("browser", sa.String(), nullable=False),
        sa.Column("ended_at", sa.DateTime(), nullable=True),
        sa.ForeignKeyConstraint(["member_id"], ["members.id"], name=op.f("fk_sessions_member_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_sessions_token_hash")),
    )
    op.create_index(op.f("ix_sessions_member_id"), "sessions", ["member_id"])


def _ssh() -> None:
    """What is written of SSH keys in workspaces and of connections to them; secrets that are sealed."""


def _policy() -> None:
    """Quotas of the house, of teams and of members."""
    op.create_table(
        "quotas",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("team_id", sa.String(), nullable=True),
        sa.Column("member_id", sa.String(), nullable=True),
        sa.Column("workspaces", sa.Integer(), nullable=True),
        sa.Column("cards", sa.Integer(), nullable=True),
        sa.Column("cpu_millis", sa.Integer(), nullable=True),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("changed_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_quotas_team_id")),
        sa.ForeignKeyConstraint(["member_id"], ["members.id"], name=op.f("fk_quotas_member_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_quotas")),
    )


def _tokens() -> None:
    """API tokens, notices, the audit."""


def _members() -> None:
    """Mail, time zone, identities of a provider."""
