"""Accounts: sessions and second factors, SSH sessions, policy and quotas, tokens and notices, members and OIDC."""

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
    """Browser sessions, second factors."""


def _ssh() -> None:
    """What is written of SSH keys in workspaces and of connections to them; secrets that are sealed."""


def _policy() -> None:
    """House rules that administrators edit, and quotas."""


def _tokens() -> None:
    """API tokens, notices, the audit."""


def _members() -> None:
    """Mail, time zone, identities of a provider."""
