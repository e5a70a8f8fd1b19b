"""One client for one engine: made at first use, shared by all threads, with a deadline on every call."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import docker
import docker.errors
import requests
import urllib3.exceptions

from webapp.engines.docker.translation import is_version_mismatch, translated
from webapp.engines.docker.transport import POOL_SIZE, EngineSocketAdapter

CONNECT_SECONDS = 5.0    # a machine that takes longer to say hello is silent
ANSWER_SECONDS = 30.0    # calls that only look; list and inspect take 2–10 ms

_ANY_VERSION = "1.41"    # until the engine has said its own

# What docker-py lets through: its own errors, those of requests below it, and now and then one of urllib3 or of the
# socket itself (a reset while a stream is read). ValueError, KeyError: an answer that is no JSON, or
# not the engine's.
SDK_ERRORS = (
    docker.errors.DockerException,
    requests.exceptions.RequestException,
    urllib3.exceptions.HTTPError,
    OSError,
    ValueError,
    KeyError,
)


class Client(docker.APIClient):
    """docker-py's low-level client with a deadline per call instead of one per client.

    docker-py switches time-outs off for pull and events (`timeout=None`), so its own parameter cannot be relied on.
    """

    def __init__(self, url: str, first_seconds: float = ANSWER_SECONDS) -> None:
        self._seconds = threading.local()
        self.limit(first_seconds)
        super().__init__(base_url=url, version=_ANY_VERSION, max_pool_size=POOL_SIZE)
        if url.startswith("unix://"):
            self.mount("http+docker://", EngineSocketAdapter(url.removeprefix("unix://")))
        # 20.10 speaks up to 1.41 and 29 nothing below 1.44, so no fixed version serves both. docker-py's own "auto"
        # would ask before the adapter above is in place.
        self._version = str(self.version(api_version=False)["ApiVersion"])

    def limit(self, seconds: float) -> None:
        """From now on this thread's calls get so long for each read."""
        self._seconds.value = seconds

    def merge_environment_settings(self, *arguments: Any, **named: Any) -> Any:
        """Engines are reached directly: the proxy that HTTP_PROXY names is for the way out of the house."""
        self.trust_env = False
        return super().merge_environment_settings(*arguments, **named)

    def _set_request_timeout(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        return {**kwargs, "timeout": self._timeout()}

    def _timeout(self) -> tuple[float, float]:
        return CONNECT_SECONDS, getattr(self._seconds, "value", ANSWER_SECONDS)

    def open_stream(
        self, method: str, path: str, params: Mapping[str, Any], headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> requests.Response:
        """An answer to be read piece by piece. docker-py's own streams drop the time-out of the socket."""
        url = f"{self.base_url}/v{self.api_version}{path}"
        response = self.request(
            method, url, params=dict(params), headers=dict(headers or {}), data=body, stream=True,
            timeout=self._timeout(),
        )
        try:
            response.raise_for_status()
        except requests.exceptions.HTTPError as error:
            docker.errors.create_api_error_from_http_exception(error)
        return response


    def ask(self, method: str, path: str, *, params: Mapping[str, Any] | None = None, body: Any = None) -> Any:
        """The JSON of an answer to what docker-py has no call for, or none with all its parameters."""
        response = self.request(method, f"{self.base_url}/v{self.api_version}{path}", params=params, json=body,
                                timeout=self._timeout())
        try:
            response.raise_for_status()
        except requests.exceptions.HTTPError as error:
            docker.errors.create_api_error_from_http_exception(error)
        return response.json()


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
            client = self._connected(seconds)
            client.limit(seconds)
            yield client
        except SDK_ERRORS as error:
            if is_version_mismatch(error):
                self.close()    # the engine was upgraded under us; the next call negotiates again
            raise translated(error, host=self.host, image=image) from error

    @contextmanager
    def newly_connected(self, seconds: float = ANSWER_SECONDS, *, image: str = "") -> Iterator[Client]:
        """As `api`, on a connection of its own: an engine that is ending goes on answering on those that it has. And an
        answer that is broken off leaves a connection behind that the next call must not get (seen with urllib3 2).
        """
        try:
            with closing(Client(self.url)) as client:
                client.limit(seconds)
                yield client
        except SDK_ERRORS as error:
            raise translated(error, host=self.host, image=image) from error

    def _connected(self, seconds: float) -> Client:
        """Not made in __init__: negotiating the version is a call, and the engine may be away now.

        Made outside the lock, or all threads would wait behind the one that waits for a silent engine.
        """
        client = self._client
        if client is not None:
            return client
        made = Client(self.url, seconds)
        with self._making:
            self._client = self._client or made
            if self._client is not made:
                made.close()
            return self._client

    def close(self) -> None:
        with self._making:
            client, self._client = self._client, None
        if client is not None:
            client.close()
