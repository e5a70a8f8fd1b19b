"""One check per kind of setting: text in, the same text in its one spelling out, or ValueError with a way out."""

from __future__ import annotations

import ipaddress
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from webapp.domain.house import MIN_MEMORY_BYTES
from webapp.domain.names import excerpt
from webapp.domain.ports import PortRange
from webapp.domain.references import parse_reference
from webapp.domain.sizes import parse_cpus, parse_size
from webapp.errors import InvalidInput, fill

__all__ = [
    "MOST_CPU_MILLIS", "absolute_path", "as_range", "cpus", "database_url", "engine_url", "excerpt", "host_name",
    "instance", "ip_address", "listen", "memory", "mirror", "networks", "one_of", "port_range", "public_url",
    "same_host", "truth", "volume_roots", "without_password",
]

MOST_CPU_MILLIS = 99_999_990    # what the grammar of domain.sizes can say
_SQLITE = "sqlite:///"
_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
# What may follow the ?: libpq's names for the way to the server. A password belongs before the @, where it is blanked.
_POSTGRESQL_OPTIONS = frozenset((
    "channel_binding", "connect_timeout", "gssencmode", "host", "options", "passfile", "sslcert", "sslcrl", "sslkey",
    "sslmode", "sslrootcert", "target_session_attrs"))
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.IGNORECASE)
_INSTANCE = re.compile(r"[a-z0-9]{4,12}")
_RANGE = re.compile(r"([0-9]{4,5})-([0-9]{4,5})")
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
# A folder of these in somebody's workspace would be a way out of it.
_NEVER_ROOTS = tuple(map(Path, (
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/root", "/run", "/sbin", "/sys", "/usr", "/var/lib",
    "/var/run")))


def absolute_path(text: str) -> str:
    if not text.startswith("/") or ".." in text.split("/") or "\0" in text:
        raise ValueError("write a full path, such as /var/lib/berth")
    return os.path.normpath(text)


def database_url(text: str) -> str:
    """The address as SQLAlchemy has it. No message repeats any of it: there may be a password inside."""
    scheme = text.partition(":")[0].lower()
    if scheme in _POSTGRESQL:
        return _postgresql_url(text)
    if scheme != "sqlite":
        raise ValueError("SQLite and PostgreSQL are supported: sqlite:////var/lib/berth/berth.db, or "
                         "postgresql://berth:PASSWORD@db.example.org/berth")
    path = text.removeprefix(_SQLITE)
    if not text.startswith(_SQLITE) or not path.startswith("/") or "?" in path:
        raise ValueError("write sqlite:/// and a full path: sqlite:////var/lib/berth/berth.db")
    return _SQLITE + absolute_path(path)


def without_password(url: str) -> str:
    """As people write it, with … for the password."""
    parts = urlsplit(url)
    if parts.password is None:
        return url.replace("postgresql+psycopg:", "postgresql:", 1)
    user, _, host = parts.netloc.rpartition("@")
    return parts._replace(scheme="postgresql", netloc=f"{user.partition(':')[0]}:…@{host}").geturl()


def _postgresql_url(text: str) -> str:
    problem = ValueError("write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, in the password %40 for @, %2F for /, "
                         "%23 for #, %3F for ?; for a socket postgresql://USER@/DATABASE?host=/run/postgresql")
    try:
        parts = urlsplit(text)
        port, options = parts.port, parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise problem from None
    address = text.partition(":")[2]
    if not address.startswith("//") or port == 0 or parts.fragment or parts.netloc.count("@") > 1:
        raise problem
    if not re.fullmatch(r"/[^/\s]+", parts.path):
        raise problem
    unknown = sorted({name for name, _ in options} - _POSTGRESQL_OPTIONS)
    if unknown:
        raise ValueError(f"after the ? these can be given: {', '.join(sorted(_POSTGRESQL_OPTIONS))}")
    return f"postgresql+psycopg:{address}"


def public_url(text: str) -> str:
    problem = ValueError("write scheme and host, a port if needed, and no path: https://berth.example.org")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise problem from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise problem
    if parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise problem
    host_name(parts.hostname)
    return f"{parts.scheme}://{parts.netloc.lower()}"


def listen(text: str) -> str:
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not bare or (":" in host and bare == host) or not _is_port(port):
        raise ValueError("write an address of this server and a port: 127.0.0.1:8000, 0.0.0.0:8000 or [::1]:8000")
    host_name(bare)
    return text


def host_name(text: str) -> str:
    if _as_ip(text) is not None:
        return text
    labels = text.removesuffix(".").split(".")
    if len(text) > 253 or not all(map(_LABEL.fullmatch, labels)) or labels[-1].isdigit():
        raise ValueError("write a host name or an IP address, such as gpu1.example.org, without port")
    return text.lower()


def ip_address(text: str) -> str:
    if _as_ip(text) is None:
        raise ValueError("write an IP address of this server, such as 192.0.2.10, or 0.0.0.0 for all of them")
    return text


def networks(text: str) -> str:
    """Addresses and networks, each in its one spelling."""
    try:
        return ",".join(str(ipaddress.ip_network(each.strip())) for each in text.split(",") if each.strip())
    except ValueError:
        raise ValueError("write addresses or networks with commas between, such as 127.0.0.1,10.0.0.0/24") from None


def mirror(text: str) -> str:
    """A registry, and perhaps a path in it below which the images of Docker Hub are."""
    bare = text.rstrip("/")
    try:
        registry = parse_reference(f"{bare}/library/debian:12").registry
    except InvalidInput:
        registry = None
    if registry is None or "://" in text:
        raise ValueError("write host, port and path of a registry, without https://: cache.example.org:5000/hub")
    return bare


def truth(text: str) -> str:
    if text.lower() not in (*_TRUE, *_FALSE):
        raise ValueError("write true or false")
    return "true" if text.lower() in _TRUE else "false"


def engine_url(text: str) -> str:
    parts = urlsplit(text)
    if text == "fake://":
        return text     # the twin that ships with Berth: everything works but nothing runs
    if text.startswith("unix:///"):
        return text
    if parts.scheme in ("tcp", "http", "https") and parts.hostname and "@" not in parts.netloc:
        return text
    raise ValueError("write the socket of a Docker Engine, such as unix:///var/run/docker.sock")


def instance(text: str) -> str:
    if not _INSTANCE.fullmatch(text):
        raise ValueError("use 4 to 12 of a-z and 0-9")
    return text


def port_range(text: str) -> str:
    as_range(text)
    return text


def as_range(text: str) -> PortRange:
    match = _RANGE.fullmatch(text)
    try:
        if match:
            return PortRange(int(match[1]), int(match[2]))
    except ValueError:
        pass
    raise ValueError("write first-last, both from 1024 to 65535, such as 20000-29999")


def volume_roots(text: str) -> str:
    return ":".join(_volume_root(path) for path in text.split(":") if path)


def _volume_root(text: str) -> str:
    path = Path(absolute_path(text))
    if path == Path("/") or any(path == never or path.is_relative_to(never) for never in _NEVER_ROOTS):
        raise ValueError(f"{path} belongs to the system. Use a folder made for data, such as /data")
    # One that is not there now, such as a share that is not mounted yet, is judged when a volume of it is mounted.
    if path.exists():
        seen = path.stat()
        if not stat.S_ISDIR(seen.st_mode):
            raise ValueError(f"{path} is no folder. Name the folder that holds the data")
        if seen.st_uid != 0 or seen.st_mode & 0o022:
            raise ValueError(f"others than root may change {path}. Run: chown root {path} && chmod go-w {path}")
    return str(path)


def cpus(text: str) -> str:
    return _by_grammar(text, lambda: parse_cpus(text, field="", maximum=MOST_CPU_MILLIS))


def memory(text: str) -> str:
    return _by_grammar(text, lambda: parse_size(text, field="", minimum=MIN_MEMORY_BYTES, maximum=None))


def one_of(*words: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(f"write {', '.join(words[:-1])} or {words[-1]}")
        return text.lower()
    return check


def same_host(one: str, other: str) -> bool:
    """The same name or address, whatever the spelling: case, a dot at the end, an IPv6 address in another form."""
    return _plain_host(one) == _plain_host(other)


def _by_grammar(text: str, parse: Callable[[], int]) -> str:
    try:
        parse()
    except InvalidInput as error:
        problem = error.problems[0]
        raise ValueError(fill(problem.message, problem.facts).rstrip(".")) from None
    return text


def _plain_host(host: str) -> str:
    bare = host.strip("[]").removesuffix(".").lower()
    address = _as_ip(bare)
    return str(address) if address else bare


def _as_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 1 <= int(text) <= 65535
