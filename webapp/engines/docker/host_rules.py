"""Firewall rules that keep workspaces away from the host's own services and from the cloud's metadata service.

Docker's bridge lets a container reach every service of the host that listens on 0.0.0.0, through the gateway
(measured). Two chains per instance hold the rules; one jump each leads there, for packets from the instance's bridge:

    INPUT        to the host itself: replies and DNS may pass, the rest is refused
    DOCKER-USER  through the host: 169.254.0.0/16 is refused (metadata of clouds, credentials in it)

Chains RETURN instead of ACCEPT: what the host's own rules close stays closed. Building the rules is apart from
running them. DOCKER-USER is the chain that Docker keeps for others and never flushes.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from webapp.engines.docker.network import bridge_name, short_hash
from webapp.engines.findings import Finding

log = structlog.get_logger(__name__)

RUN_SECONDS = 20.0
_WAIT = ("-w", "10")    # Docker holds the lock of xtables often; without -w the call fails at once

Rule = tuple[str, ...]
Run = Callable[[Sequence[str], str], "Outcome"]     # command line, standard input


@dataclass(frozen=True, slots=True)
class Outcome:
    ok: bool
    text: str = ""


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain of ours: its rules in order, and the jump that leads to it."""

    name: str
    parent: str
    jump: Rule
    rules: tuple[Rule, ...]


def chains(instance: str, *, tool: str, forward_parent: str = "DOCKER-USER") -> tuple[Chain, ...]:
    """What `tool` (iptables or ip6tables) needs for this instance."""
    bridge, mark = bridge_name(instance), short_hash(instance)
    to_host = Chain(
        name=f"BERTH-{mark}-IN", parent="INPUT", jump=("-i", bridge, "-j", f"BERTH-{mark}-IN"), rules=_to_host(tool)
    )
    if tool == "ip6tables":
        return (to_host,)   # the network has no IPv6: only link-local addresses of the host can be tried
    through = Chain(
        name=f"BERTH-{mark}-FWD",
        parent=forward_parent,
        jump=("-i", bridge, "-j", f"BERTH-{mark}-FWD"),
        rules=(("-d", "169.254.0.0/16", "-j", "REJECT"), ("-j", "RETURN")),
    )
    return (to_host, through)


def _to_host(tool: str) -> tuple[Rule, ...]:
    neighbours: tuple[Rule, ...] = (("-p", "ipv6-icmp", "-j", "RETURN"),) if tool == "ip6tables" else ()
    return (
        # Answers to what the host asked: docker-proxy for ports published on 127.0.0.1, and the agent's probes.
        ("-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "RETURN"),
        # The engine's DNS asks from inside the container; the host may be its resolver.
        ("-p", "udp", "--dport", "53", "-j", "RETURN"),
        ("-p", "tcp", "--dport", "53", "-j", "RETURN"),
        *neighbours,
        ("-j", "REJECT"),
    )


def restore_script(wanted: Sequence[Chain], jumps_there: Sequence[int]) -> str:
    """Input for `iptables-restore --noflush`: one transaction, so there is no moment without rules.

    A line `:NAME -` makes a chain or empties it; the others of the table are left alone.

    Args:    jumps_there: how many of each chain's jumps are in its parent already; they are replaced by one on top.
    """
    lines = ["*filter", *(f":{chain.name} - [0:0]" for chain in wanted)]
    for chain, there in zip(wanted, jumps_there, strict=True):
        lines += [" ".join(("-A", chain.name, *rule)) for rule in chain.rules]
        lines += [" ".join(("-D", chain.parent, *chain.jump))] * there
        lines += [" ".join(("-I", chain.parent, "1", *chain.jump))]
    return "\n".join([*lines, "COMMIT", ""])


class HostRules:
    """The rules of one instance on this machine. `local`: whether the engine is reached by a socket of this machine."""

    def __init__(self, instance: str, *, local: bool, run: Run | None = None) -> None:
        self._instance = instance
        self._local = local
        self._run = run or run_command

    def ensure(self) -> Finding | None:
        """Set what is missing. None = in place now; else why not."""
        finding = self.check()
        if finding is not Finding.RULES_MISSING:
            return finding
        for tool in self._tools():
            wanted = self._chains(tool)
            script = restore_script(wanted, [self._parent(tool, chain).count(_jump(chain)) for chain in wanted])
            outcome = self._run((f"{tool}-restore", "--noflush", *_WAIT), script)
            if not outcome.ok:
                log.warning("host_rules.refused", instance=self._instance, tool=tool, detail=outcome.text)
                return _why(outcome)
        log.info("host_rules.set", instance=self._instance, bridge=bridge_name(self._instance))
        return self.check()

    def check(self) -> Finding | None:
        """None = every rule is in place."""
        if not self._local or not Path("/sys/class/net", bridge_name(self._instance)).exists():
            return Finding.RULES_REMOTE
        outcome = self._list("iptables", "INPUT")
        if not outcome.ok:
            return _why(outcome)
        complete = all(self._is_complete(tool, chain) for tool in self._tools() for chain in self._chains(tool))
        return None if complete else Finding.RULES_MISSING

    def remove(self) -> None:
        """Take everything of this instance away; absent = done."""
        for tool in self._tools():
            for chain in self._chains(tool):
                for _ in range(self._parent(tool, chain).count(_jump(chain))):
                    self._run((tool, *_WAIT, "-D", chain.parent, *chain.jump), "")
                self._run((tool, *_WAIT, "-F", chain.name), "")
                self._run((tool, *_WAIT, "-X", chain.name), "")

    def _tools(self) -> Iterator[str]:
        yield "iptables"
        if Path("/proc/net/if_inet6").exists() and self._list("ip6tables", "INPUT").ok:
            yield "ip6tables"

    def _chains(self, tool: str) -> tuple[Chain, ...]:
        """FORWARD where Docker made no DOCKER-USER: `iptables: false`, or 29 with its nftables backend."""
        parent = "DOCKER-USER" if self._list(tool, "DOCKER-USER").ok else "FORWARD"
        return chains(self._instance, tool=tool, forward_parent=parent)

    def _is_complete(self, tool: str, chain: Chain) -> bool:
        """Listing says how many rules there are, `-C` knows how each is written: both together = the same rules."""
        own = self._list(tool, chain.name)
        return (
            own.ok
            and own.text.count(f"-A {chain.name} ") == len(chain.rules)
            and all(self._run((tool, *_WAIT, "-C", chain.name, *rule), "").ok for rule in chain.rules)
            and is_reached(self._parent(tool, chain), chain)
        )

    def _parent(self, tool: str, chain: Chain) -> list[str]:
        return self._list(tool, chain.parent).text.splitlines()

    def _list(self, tool: str, chain_name: str) -> Outcome:
        return self._run((tool, *_WAIT, "-S", chain_name), "")


def is_reached(parent: Sequence[str], chain: Chain) -> bool:
    """Whether the jump is in its parent and no rule before it accepts packets that it is about.

    Jumps into chains of others may stand before it (fail2ban puts one there): the rules behind ours would otherwise be
    moved back and forth for ever.
    """
    if _jump(chain) not in parent:
        return False
    before = parent[: parent.index(_jump(chain))]
    return not any(rule.endswith("-j ACCEPT") and " -i " not in rule for rule in before)


def _jump(chain: Chain) -> str:
    return f"-A {chain.parent} {' '.join(chain.jump)}"      # as `-S` prints it


def _why(outcome: Outcome) -> Finding:
    return Finding.RULES_NO_TOOL if "No such file" in outcome.text else Finding.RULES_NOT_PERMITTED


def run_command(argv: Sequence[str], standard_input: str) -> Outcome:
    """Run one command; what it printed, or why it could not."""
    try:
        done = subprocess.run(
            argv, input=standard_input, capture_output=True, text=True, timeout=RUN_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Outcome(False, str(error))
    return Outcome(done.returncode == 0, done.stdout if done.returncode == 0 else done.stderr.strip())
