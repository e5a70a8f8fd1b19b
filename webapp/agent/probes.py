"""Is it up? Asked over the published ports, as a person's own programs would."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator

from webapp.domain.workspace import Service

SSH_GREETING = b"SSH-2.0-"
LONGEST_GREETING = 255          # RFC 4253, 4.2
OUR_GREETING = b"SSH-2.0-Berth_probe\r\n"    # whoever goes without one is an error in sshd's log, every ten seconds
TRY_SECONDS = 2.0               # one try; a loaded machine may need hundreds of milliseconds to greet
FIRST_PAUSE_SECONDS = 0.05      # the first ones decide how fast a launch feels
LONGEST_PAUSE_SECONDS = 0.5


def answers(service: Service, address: str, port: int) -> bool:
    return ssh_answers(address, port) if service is Service.SSH else jupyter_answers(address, port)


def ssh_answers(address: str, port: int) -> bool:
    """True when an SSH server greets. A mere connection proves nothing: Docker's proxy accepts for anybody."""
    try:
        with socket.create_connection((address, port), timeout=TRY_SECONDS) as connection, \
                connection.makefile("rb") as stream:
            greets = stream.readline(LONGEST_GREETING).startswith(SSH_GREETING)
            if greets:
                connection.sendall(OUR_GREETING)
            return greets
    except OSError:
        return False


def jupyter_answers(address: str, port: int) -> bool:
    """True when Jupyter's `/api`, open to anybody, answers 200."""
    connection = http.client.HTTPConnection(address, port, timeout=TRY_SECONDS)
    try:
        connection.request("GET", "/api")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def pauses() -> Iterator[float]:
    """Seconds between tries: 50 ms at first, growing to half a second; endless."""
    pause = FIRST_PAUSE_SECONDS
    while True:
        yield pause
        pause = min(pause * 1.25, LONGEST_PAUSE_SECONDS)
