"""What the agent noticed about a host's set-up, as sentences with a way out."""

from __future__ import annotations

from dataclasses import dataclass

from webapp.domain.reasons import Wording
from webapp.errors import N_
from webapp.store.reads.house import HostRow


@dataclass(frozen=True, slots=True)
class Finding:
    code: str
    wording: Wording
    command: str = ""       # to copy


WORDINGS = {
    "network_missing": Wording(
        N_("The network of the workspaces is not there."),
        N_("It is made when the agent starts. If it stays, restart Berth and look at its log."),
    ),
    "host_rules_missing": Wording(
        N_("Workspaces can reach services of this host."),
        N_("The firewall rules that prevent it are set when the agent starts: restart Berth."),
    ),
    "host_rules_no_tool": Wording(
        N_("Workspaces can reach services of this host: there is no iptables to keep them out."),
        N_("Install it, then restart Berth."),
    ),
    "host_rules_not_permitted": Wording(
        N_("Workspaces can reach services of this host: Berth may not set firewall rules."),
        N_("Run the agent as root, or keep services of this host off 0.0.0.0."),
    ),
    "host_rules_remote": Wording(
        N_("Workspaces may reach services of this host: its engine runs on another machine than the agent."),
        N_("Set firewall rules there, or keep its services off 0.0.0.0."),
    ),
    "rlimits_lowered": Wording(
        N_("Limits on locked memory, stack or open files are lower than programs for GPUs want."),
        N_("Raise the limits of the Docker service, then restart it."),
    ),
}
COMMANDS = {"host_rules_no_tool": "apt-get install iptables"}


def findings_of(host: HostRow) -> list[Finding]:
    """A code of a newer agent is shown as it is."""
    return [Finding(code, WORDINGS.get(code, Wording(code, "")), COMMANDS.get(code, "")) for code in host.findings]
