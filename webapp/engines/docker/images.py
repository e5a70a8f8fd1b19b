"""Images on a Docker Engine: looked up, pulled, built, named, removed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import docker.errors

from webapp.domain.container import ImageFacts
from webapp.domain.images import ImageOnEngine, digest_in
from webapp.domain.references import parse_reference
from webapp.engines import BuildCallback, ProgressCallback
from webapp.engines.docker import build, pull
from webapp.engines.docker.connection import ANSWER_SECONDS, Connection
from webapp.engines.docker.logins import login_for
from webapp.engines.docker.observed import image_facts
from webapp.engines.registries import RegistryAccess
from webapp.errors import EngineError, EngineRejected, ImageNotFound

REMOVE_SECONDS = 120.0      # under load an engine takes long to delete layers

T = TypeVar("T")


class Images:
    def __init__(self, connection: Connection, access: RegistryAccess) -> None:
        self._connection = connection
        self._access = access
        self._host = connection.host

    def find(self, reference: str) -> ImageFacts | None:
        if not reference:
            raise EngineRejected(host=self._host, detail="an image needs a name")   # "" would ask for the list
        with self._connection.api(image=reference) as api:
            found = _unless_absent(lambda: api.inspect_image(reference))  # type: ignore[no-untyped-call]
        return image_facts(found) if found else None

    def all(self) -> Mapping[str, ImageOnEngine]:
        with self._connection.api() as api:
            rows: list[dict[str, Any]] = api.images()
        return {
            name: ImageOnEngine(row["Id"], row.get("Size") or 0)
            for row in rows for name in (*(row.get("RepoTags") or ()), *(row.get("RepoDigests") or ()))
        }

    def present(self, reference: str) -> ImageFacts:
        """Of one that was made or pulled a moment ago."""
        facts = self.find(reference)
        if facts is None:   # removed again within milliseconds
            raise ImageNotFound(host=self._host, image=reference, detail="it was removed again at once")
        return facts

    def ensure(self, reference: str, progress: ProgressCallback, digest: str | None) -> ImageFacts:
        facts = self.find(reference)
        if facts is not None and _is_that(facts, reference, digest):
            return facts
        with self._connection.newly_connected(pull.SILENCE_SECONDS, image=reference) as api:
            name = pull.pull(api, reference, digest=digest, host=self._host, access=self._access, progress=progress)
        return self._named(name, reference)

    def _named(self, name: str, reference: str) -> ImageFacts:
        """What was pulled by `name`, under the name that people know: that of a mirror goes."""
        pulled, wanted = self.present(name), parse_reference(reference)
        if parse_reference(name) == wanted or wanted.digest is not None:
            return pulled
        self.tag(name, reference)
        if parse_reference(name).name != wanted.name:
            with self._connection.api(REMOVE_SECONDS) as api:
                # With its last tag an image loses the digests that it has in a repository.
                _unless_absent(lambda: api.remove_image(name, noprune=True))
        return replace(self.present(reference), digests=pulled.digests)

    def registry_digest(self, reference: str) -> str | None:
        """Asked by the engine, with this house's login; a mirror is not asked, as it may lag behind."""
        parsed = parse_reference(reference)
        try:
            with self._connection.api(ANSWER_SECONDS, image=reference) as api:
                header = login_for(api, parsed, self._access, host=self._host)
                name = f"{parsed.name}:{parsed.tag}" if parsed.tag else str(parsed)
                with api.open_stream("GET", f"/distribution/{name}/json", {}, header) as response:
                    digest = json.loads(response.content)["Descriptor"]["digest"]
        except EngineError:     # no registry in sight, or one that does not tell: then it is not known
            return None
        return digest if isinstance(digest, str) else None

    def build(
        self, context: bytes, reference: str, arguments: Mapping[str, str], tell: BuildCallback,
    ) -> ImageFacts:
        with self._connection.newly_connected(build.SILENCE_SECONDS) as api:
            build.build(api, context, reference, arguments=arguments, host=self._host, tell=tell)
        return self.present(reference)

    def tag(self, reference: str, name: str) -> None:
        wanted = parse_reference(name)
        with self._connection.api(image=reference) as api:
            api.tag(reference, wanted.name, tag=wanted.tag, force=True)

    def remove(self, reference: str) -> None:
        with self._connection.api(REMOVE_SECONDS) as api:
            _unless_absent(lambda: api.remove_image(reference))


def _is_that(facts: ImageFacts, reference: str, digest: str | None) -> bool:
    """An image whose origin the engine has forgotten, as of one that came by a mirror, is taken for the right one."""
    known = digest_in(facts.digests, reference)
    return digest is None or known is None or known == digest


def _unless_absent(call: Callable[[], T]) -> T | None:
    """None for a 404: what is not there need not be removed, stopped or shown."""
    try:
        return call()
    except docker.errors.NotFound:
        return None
