"""HTTP over the engine's Unix socket, with one pool of connections for all calls.

docker-py's own adapter keeps a pool per *address* of a request (transport/unixconn.py in 7.2: `pools.get(url)` with the
whole address), so connections are hardly ever used twice, and it leaves the socket of a failed connect open.
"""

from __future__ import annotations

import socket
from typing import Any

import urllib3
from docker.transport.basehttpadapter import BaseHTTPAdapter
from docker.transport.unixconn import UnixHTTPConnection

POOL_SIZE = 64      # requests in flight at once; 20 launches, each with a log or an exec beside it


class EngineSocketAdapter(BaseHTTPAdapter):
    """For requests; `path` is the socket's."""

    def __init__(self, path: str) -> None:
        self._pool = _Pool(path)
        super().__init__()

    def get_connection(self, url: Any, proxies: Any = None) -> urllib3.HTTPConnectionPool:
        return self._pool

    def request_url(self, request: Any, proxies: Any) -> str:
        path: str = request.path_url    # not the whole address, which a proxy would want
        return path

    def close(self) -> None:
        self._pool.close()
        super().close()


class _Pool(urllib3.HTTPConnectionPool):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", maxsize=POOL_SIZE)
        self._path = path

    def _new_conn(self) -> Any:
        return _Connection("http://localhost", self._path)


class _Connection(UnixHTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(self.unix_socket)
        except OSError:
            self.sock.close()
            self.sock = None
            raise
