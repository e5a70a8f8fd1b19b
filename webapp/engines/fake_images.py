"""The twin's images: pulled from a registry in memory, and built by a builder that understands very little."""

from __future__ import annotations

import io
import re
import shlex
import tarfile
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace

from webapp.domain.container import ImageFacts
from webapp.domain.dockerfile import Instruction, read
from webapp.domain.images import BuildOutput, ImageOnEngine, digest_in
from webapp.engines import BuildCallback, ProgressCallback
from webapp.engines.fake_state import FakeImage, FakeMachine
from webapp.errors import BuildFailed, ImageHeld, ImageNotFound

_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::-[^}]*)?\}|(\w+))")
_EXIT = re.compile(r"exit ([1-9][0-9]*)")


class FakeImages:
    """Calls of the port about images; FakeEngine has the others."""

    machine: FakeMachine
    _host: str

    def _call(self, call: str, *about: str) -> AbstractContextManager[None]:
        raise NotImplementedError

    def image(self, reference: str) -> ImageFacts | None:
        with self._call("image", reference):
            found = self.machine.find_image(reference)
            return found.facts if found else None

    def list_images(self) -> Mapping[str, ImageOnEngine]:
        with self._call("list_images"):
            named = {name: image.facts for name, image in self.machine.images.items() if name != image.facts.id}
            return {name: ImageOnEngine(facts.id, facts.size_bytes) for name, facts in named.items()}

    def ensure_image(self, reference: str, progress: ProgressCallback, *, digest: str | None = None) -> ImageFacts:
        with self._call("ensure_image", reference):
            found = self.machine.find_image(reference)
            if found and (digest is None or digest_in(found.facts.digests, reference) in (None, digest)):
                return found.facts
            facts = self._in_registry(reference, digest)
            if facts is None:
                raise ImageNotFound(host=self._host, image=reference, detail="manifest unknown")
            for step in self.machine.pull_script:
                progress(step)
            self.machine.tag(reference, FakeImage(facts))
            return facts

    def _in_registry(self, reference: str, digest: str | None) -> ImageFacts | None:
        """By a digest also what had the tag once: `machine.registry["team/image@sha256:…"]`."""
        facts = self.machine.registry.get(reference)
        if digest is None or (facts and digest_in(facts.digests, reference) == digest):
            return facts
        return self.machine.registry.get(f"{reference.rpartition(':')[0]}@{digest}")

    def registry_digest(self, reference: str) -> str | None:
        with self._call("registry_digest", reference):
            facts = self.machine.registry.get(reference)
            return digest_in(facts.digests, reference) if facts else None

    def build(
        self, context: bytes, reference: str, *, arguments: Mapping[str, str], tell: BuildCallback,
    ) -> ImageFacts:
        """Knows FROM, ARG, ENV, LABEL and VOLUME; a RUN with `exit 3` in it fails, and prints what it echoes."""
        with self._call("build", reference):
            made = _Building(self.machine, self._host, dict(arguments), tell).carry_out(_dockerfile(context))
            facts = replace(made.facts, id=f"sha256:{self.machine.new_id()}", digests=())
            self.machine.tag(reference, FakeImage(facts, dict(made.files), made.layers + 1))
            return facts

    def tag(self, reference: str, name: str) -> None:
        with self._call("tag", reference, name):
            found = self.machine.find_image(reference)
            if found is None:
                raise ImageNotFound(host=self._host, image=reference, detail=f"No such image: {reference}")
            self.machine.tag(name, found)

    def remove_image(self, reference: str) -> None:
        with self._call("remove_image", reference):
            found = self.machine.find_image(reference)
            if found is None:
                return
            others = {key for key, image in self.machine.images.items() if image is found} - {reference}
            used = any(container.image_id == found.facts.id for container in self.machine.containers.values())
            if used and not others:
                raise ImageHeld(host=self._host, detail=f"container is using the image {reference}")
            gone = {reference} if others else {key for key, image in self.machine.images.items() if image is found}
            self.machine.images = {key: image for key, image in self.machine.images.items() if key not in gone}


class _Building:
    """One build: what the image is so far, and what the variables say."""

    def __init__(self, machine: FakeMachine, host: str, arguments: dict[str, str], tell: BuildCallback) -> None:
        self._machine, self._host, self._tell = machine, host, tell
        self._arguments = arguments
        self._image = FakeImage(ImageFacts("", 0, "amd64", (), {}))

    def carry_out(self, instructions: list[Instruction]) -> FakeImage:
        number = len(instructions)
        for step, each in enumerate(instructions, 1):
            self._tell(BuildOutput(f"Step {step}/{number} : {each.word} {each.rest}\n", step, number))
            self._do(each, step)
        for output in self._machine.build_script:
            self._tell(output)
        return self._image

    def _do(self, each: Instruction, step: int) -> None:
        said = _VARIABLE.sub(lambda match: self._arguments.get(match[1] or match[2], ""), each.rest)
        facts = self._image.facts
        match each.word:
            case "ARG":
                name, _, value = said.partition("=")
                self._arguments.setdefault(name, value)
            case "FROM":
                found = self._machine.find_image(said.split()[0])
                if found is None:
                    raise self._failed(each, step, f"pull access denied for {said}")
                self._image = found
            case "RUN" if match := _EXIT.search(said):
                raise self._failed(each, step, f"The command '/bin/sh -c {said}' returned a non-zero code: {match[1]}")
            case "LABEL":
                self._image = replace(self._image, facts=replace(facts, labels={**facts.labels, **_pairs(said)}))
            case "ENV":
                variables = {**facts.environment, **_pairs(said)}
                self._image = replace(self._image, facts=replace(facts, environment=variables))
            case "VOLUME":
                self._image = replace(self._image, facts=replace(facts, volumes=(*facts.volumes, said)))

    def _failed(self, each: Instruction, step: int, detail: str) -> BuildFailed:
        command = f"{each.word} {each.rest}"
        return BuildFailed(host=self._host, detail=detail, step=step, command=command, line=None, last=command)


def _dockerfile(context: bytes) -> list[Instruction]:
    with tarfile.open(fileobj=io.BytesIO(context)) as archive:
        names = {name.removeprefix("./"): name for name in archive.getnames()}
        content = archive.extractfile(names["Dockerfile"])
        return read(content.read().decode() if content else "")


def _pairs(said: str) -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in shlex.split(said))

