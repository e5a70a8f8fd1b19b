"""The client's address behind reverse proxies. What a client says of itself is believed of nobody but those."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from typing import Any

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Wsgi = Callable[[dict[str, Any], Any], Iterable[bytes]]


class BehindProxies:
    """WSGI: REMOTE_ADDR becomes the last address in X-Forwarded-For that no trusted proxy has, walked from the right;
    whatever stands further left may be made up.
    """

    def __init__(self, app: Wsgi, trusted: str) -> None:
        """`trusted`: networks with , between, as settings have them."""
        self._app = app
        self._trusted = tuple(ipaddress.ip_network(each) for each in trusted.split(",") if each)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        client = _address(environ.get("REMOTE_ADDR", ""))
        hops = environ.get("HTTP_X_FORWARDED_FOR", "").split(",")
        while client is not None and hops and self._is_trusted(client):
            before = _address(hops.pop().strip())
            if before is None:
                break
            client = before
        if client is not None:
            environ["REMOTE_ADDR"] = str(client)
        return self._app(environ, start_response)

    def _is_trusted(self, address: Address) -> bool:
        return any(address in network for network in self._trusted if network.version == address.version)


def _address(text: str) -> Address | None:
    """`192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]:4711`; an IPv4 one inside of IPv6 is that."""
    bare = text[1:].partition("]")[0] if text.startswith("[") else text
    if bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        found = ipaddress.ip_address(bare)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
