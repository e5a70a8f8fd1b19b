"""Codes for what an adapter notices about its engine and machine; the doctor turns them into sentences."""

from __future__ import annotations

from enum import StrEnum


class Finding(StrEnum):
    NETWORK_MISSING = "network_missing"             # prepare() was not called yet, or the network was removed by hand
    RULES_MISSING = "host_rules_missing"            # workspaces reach the host's services; prepare() would set them
    RULES_NO_TOOL = "host_rules_no_tool"            # there is no iptables on the agent's machine
    RULES_NOT_PERMITTED = "host_rules_not_permitted"    # the agent may not set firewall rules
    RULES_REMOTE = "host_rules_remote"              # the engine's network is not on the agent's machine
    RLIMITS_LOWERED = "rlimits_lowered"             # the engine cannot raise memlock, stack or nofile as far as wanted
