"""The lines that people copy to reach a workspace. Pure text; nothing secret is in it."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Way:
    """How a workspace is reached by SSH."""

    workspace_id: str
    name: str               # also the alias in the config block: a checked label, nothing to quote
    username: str
    host: str               # BERTH_WORKSPACE_HOST
    port: int
    instance: str
    host_public_key: str    # "ssh-ed25519 AAAA…"

    @property
    def home(self) -> str:
        return f"/home/{self.username}"

    @property
    def host_key_alias(self) -> str:
        """Ports are used again by other workspaces; under this name a host key is looked up for this one alone."""
        return f"berth-{self.instance}-{self.workspace_id}"

    @property
    def ssh(self) -> str:
        return f"ssh -p {self.port} {self.username}@{self.host}"

    @property
    def config(self) -> str:
        return "\n".join((
            f"Host {self.name}",
            f"    HostName {self.host}",
            f"    Port {self.port}",
            f"    User {self.username}",
            f"    HostKeyAlias {self.host_key_alias}",
        ))

    @property
    def known_hosts(self) -> str:
        """One line for `ssh -p`, one for the config block."""
        return f"[{self.host}]:{self.port} {self.host_public_key}\n{self.host_key_alias} {self.host_public_key}"

    @property
    def vscode(self) -> str:
        return f"vscode://vscode-remote/ssh-remote+{quote(self.name)}{quote(self.home)}"

    @property
    def scp_in(self) -> str:
        return f"scp -P {self.port} file.txt {self.username}@{self._bracketed}:"

    @property
    def scp_out(self) -> str:
        return f"scp -P {self.port} {self.username}@{self._bracketed}:file.txt ."

    @property
    def _bracketed(self) -> str:
        """scp cuts at the first colon."""
        return f"[{self.host}]" if ":" in self.host else self.host


def jupyter_origin(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
