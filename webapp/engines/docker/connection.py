"""One client for one engine: made at first use, shared by all threads, with a deadline on every call."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import docker
import docker.errors
import requests
import urllib3.exceptions

from webapp.engines.docker.translation import is_version_mismatch, translated

CONNECT_SECONDS = 5.0    # a machine that takes longer to say hello is silent
ANSWER_SECONDS = 30.0    # calls that only look; list and inspect take 2–10 ms
POOL_SIZE = 64           # requests in flight at once; 20 launches, each with a log or an exec beside it

# What docker-py lets through: its own errors, those of requests below it, and now and then one of urllib3 or of the
# socket itself (a reset while a stream is read). ValueError: an answer that is no JSON.
SDK_ERRORS = (
    docker.errors.DockerException,
    requests.exceptions.RequestException,
    urllib3.exceptions.HTTPError,
    OSError,
    ValueError,
)


class Client(docker.APIClient):
    """docker-py's low-level client with a deadline per call instead of one per client.

    docker-py switches time-outs off for pull and events (`timeout=None`), so its own parameter cannot be relied on.
    """

    def __init__(self, url: str) -> None:
        self._seconds = threading.local()
        # version "auto": 20.10 speaks up to 1.41 and 29 nothing below 1.44, so no fixed version serves both.
        super().__init__(base_url=url, version="auto", max_pool_size=POOL_SIZE)

    def limit(self, seconds: float) -> None:
        """From now on this thread's calls get so long for each read."""
        self._seconds.value = seconds

    def _set_request_timeout(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        return {**kwargs, "timeout": self._timeout()}

    def _timeout(self) -> tuple[float, float]:
        return CONNECT_SECONDS, getattr(self._seconds, "value", ANSWER_SECONDS)

    def open_stream(
        self, method: str, path: str, params: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> requests.Response:
        """An answer to be read piece by piece. docker-py's own streams drop the time-out of the socket."""
        url = f"{self.base_url}/v{self.api_version}{path}"
        response = self.request(
            method, url, params=dict(params), headers=dict(headers or {}), stream=True, timeout=self._timeout()
        )
        try:
            response.raise_for_status()
        except requests.exceptions.HTTPError as error:
            docker.errors.create_api_error_from_http_exception(error)
        return response


class Connection:
    """The way to one engine. `host` names the machine in errors."""

    def __init__(self, url: str, host: str) -> None:
        self.url = url
        self.host = host
        self._client: Client | None = None
        self._making = threading.Lock()

    @contextmanager
    def api(self, seconds: float = ANSWER_SECONDS, *, image: str = "") -> Iterator[Client]:
        """The client for one call or stream; whatever goes wrong inside leaves as an EngineError.

        Args:    seconds: the longest wait for each read.   image: the reference that a 404 is about.
        Raises:  EngineUnreachable, EngineRejected and its kinds, ImageNotFound.
        """
        try:
            client = self._connected()
            client.limit(seconds)
            yield client
        except SDK_ERRORS as error:
            if is_version_mismatch(error):
                self.close()    # the engine was upgraded under us; the next call negotiates again
            raise translated(error, host=self.host, image=image) from error

    def _connected(self) -> Client:
        """Not made in __init__: negotiating the version is a call, and the engine may be away now."""
        with self._making:
            if self._client is None:
                self._client = Client(self.url)
            return self._client

    def close(self) -> None:
        with self._making:
            client, self._client = self._client, None
        if client is not None:
            client.close()
