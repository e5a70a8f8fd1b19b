"""Image references, `[registry[:port]/]path[:tag][@sha256:digest]`: the grammar of distribution/reference, strictly.

One parser for the whole house. Libraries have cut `host:5000/x` at the colon, pulled every tag where none was given
and created containers from an empty name (docker-py#2151).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address

from webapp.domain.names import excerpt
from webapp.errors import N_, InvalidInput

HUB = "docker.io"
MOST_NAME = 255  # characters of registry and path together; newer engines count the path only, 20.10 counts both

_HUB_NAMES = (HUB, "index.docker.io")
_HOST = re.compile(r"(?P<host>[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::(?P<port>[1-9][0-9]{0,4}))?")
_HOST_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_IMAGE_ID = re.compile(r"(?:sha256:)?[0-9a-f]{64}")
_MOST_TEXT = MOST_NAME + 1 + 128 + 1 + 71


@dataclass(frozen=True, slots=True)
class ImageReference:
    """A reference in one spelling, so that two are equal exactly when they name the same thing."""

    registry: str | None  # "ghcr.io", "host:5000", "[::1]:5000"; None = Docker Hub
    repository: str  # the whole path, "library/ubuntu" for ubuntu on Docker Hub
    tag: str | None
    digest: str | None  # "sha256:" and 64 hex digits

    def __str__(self) -> str:
        """Written in full: `docker.io/library/ubuntu:24.04`."""
        return f"{self.name}{self._version}"

    @property
    def name(self) -> str:
        """Registry and path in full, without tag and digest: what an allow-list compares."""
        return f"{self.registry or HUB}/{self.repository}"

    @property
    def familiar(self) -> str:
        """As people write it: `ubuntu:24.04`. It parses to an equal reference."""
        if self.registry:
            return str(self)
        short = self.repository.removeprefix("library/")
        if "/" not in short:
            return f"{short}{self._version}"
        return str(self) if _is_registry(self.repository.partition("/")[0]) else f"{self.repository}{self._version}"

    @property
    def _version(self) -> str:
        return (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")


def parse_reference(text: str, field: str = "image") -> ImageReference:
    """The reference in `text`; a tag or digest may be missing and then stays None (never filled in with latest).

    Raises:  InvalidInput: anything outside the grammar, and a bare image id, which names nothing that can be pulled.
    """
    _refuse_what_is_no_reference(text, field)
    named, at, digest = text.partition("@")
    folders, slash, last = named.rpartition("/")
    last, colon, tag = last.partition(":")  # a colon before the last slash belongs to the port
    registry, repository = _split_registry(f"{folders}{slash}{last}")
    if (registry or "") + repository != ((registry or "") + repository).lower():
        raise InvalidInput.of(
            field,
            N_("The repository name must be lowercase. Try %(suggestion)s."),
            suggestion=f"{folders}{slash}{last}".lower() + colon + tag + at + digest,
        )
    if registry and not _is_address(registry):
        raise InvalidInput.of(
            field,
            N_("“%(given)s” is not the address of a registry. Write it like registry.example.org:5000."),
            given=registry,
        )
    if not _PATH.fullmatch(repository):
        raise InvalidInput.of(
            field,
            N_("“%(given)s” is not a repository name. Use a-z, 0-9 and single . _ - / between them."),
            given=excerpt(repository),
        )
    if colon and not _TAG.fullmatch(tag):
        raise InvalidInput.of(
            field,
            N_("“%(given)s” is not a tag. Use up to 128 letters, digits, _ . and -, for example 2.8.0."),
            given=excerpt(tag),
        )
    if at and not _DIGEST.fullmatch(digest):
        raise InvalidInput.of(
            field,
            N_("“%(given)s” is not a digest. Copy it whole: sha256: and 64 of 0-9 and a-f."),
            given=excerpt(digest),
        )
    reference = ImageReference(
        registry=None if registry in _HUB_NAMES else registry,
        repository=_hub_path(repository) if registry is None or registry in _HUB_NAMES else repository,
        tag=tag or None,
        digest=digest or None,
    )
    if len(reference.name) > MOST_NAME:
        raise _too_long(field)
    return reference


def parse_pinned_reference(text: str, field: str = "image") -> ImageReference:
    """A reference for the catalogue: it has a tag or a digest, and the tag is not `latest`.

    Raises:  InvalidInput: as parse_reference, or nothing pins the image.
    """
    reference = parse_reference(text, field)
    if reference.tag == "latest":
        raise InvalidInput.of(
            field,
            N_("“latest” means another image every week, so no run can be repeated. Name a version: %(image)s:…"),
            image=text.partition("@")[0].removesuffix(":latest"),
        )
    if reference.tag is None and reference.digest is None:
        raise InvalidInput.of(
            field,
            N_("“%(given)s” names no version, and Docker would take “latest”. Add a tag or a digest: %(given)s:…"),
            given=excerpt(text),
        )
    return reference


def _refuse_what_is_no_reference(text: str, field: str) -> None:
    if not text:
        raise InvalidInput.of(field, N_("Enter an image, for example pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime."))
    if text.startswith("-"):
        raise InvalidInput.of(
            field,
            N_("“%(given)s” looks like an option. Enter the image only, without the docker command."),
            given=excerpt(text),
        )
    if not all("!" <= character <= "~" for character in text):
        raise InvalidInput.of(
            field,
            N_("“%(given)s” holds a space or a character that no image name has. Enter the image only."),
            given=excerpt(text),
        )
    if "://" in text:
        raise InvalidInput.of(
            field,
            N_("“%(given)s” is an address for a browser. Leave out everything up to and including ://."),
            given=excerpt(text),
        )
    if len(text) > _MOST_TEXT:
        raise _too_long(field)
    if _IMAGE_ID.fullmatch(text):
        raise InvalidInput.of(field, N_("That is the id of an image on one host. Enter its name and tag instead."))


def _split_registry(name: str) -> tuple[str | None, str]:
    first, slash, rest = name.partition("/")
    return (first, rest) if slash and _is_registry(first) else (None, name)


def _is_registry(first: str) -> bool:
    """Whether Docker reads the first part of a name as a registry rather than as a folder on Docker Hub."""
    return "." in first or ":" in first or first == "localhost"


def _is_address(registry: str) -> bool:
    match = _HOST.fullmatch(registry)
    if not match or int(match["port"] or 1) > 65_535:
        return False
    host = match["host"]
    if not host.startswith("["):
        return all(_HOST_LABEL.fullmatch(label) for label in host.split("."))
    try:
        IPv6Address(host[1:-1])
    except AddressValueError:
        return False
    return True


def _hub_path(repository: str) -> str:
    return repository if "/" in repository else f"library/{repository}"


def _too_long(field: str) -> InvalidInput:
    return InvalidInput.of(
        field, N_("An image name may have at most %(most)d characters. Give the image a shorter one."), most=MOST_NAME
    )
