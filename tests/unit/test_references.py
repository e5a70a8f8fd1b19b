"""Image references: one spelling each, what is refused, and what pins an image."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webapp.domain.references import ImageReference, parse_pinned_reference, parse_reference
from webapp.errors import InvalidInput

quick = settings(max_examples=60, deadline=None)
DIGEST = "sha256:" + "0123456789abcdef" * 4


def refusal(text: str, *, pinned: bool = False) -> str:
    with pytest.raises(InvalidInput) as caught:
        (parse_pinned_reference if pinned else parse_reference)(text)
    (problem,) = caught.value.problems
    assert problem.field == "image"
    return str(problem)


@pytest.mark.parametrize(
    ("text", "expected", "full"),
    [
        ("ubuntu", (None, "library/ubuntu", None, None), "docker.io/library/ubuntu"),
        ("ubuntu:24.04", (None, "library/ubuntu", "24.04", None), "docker.io/library/ubuntu:24.04"),
        ("docker.io/ubuntu:1", (None, "library/ubuntu", "1", None), "docker.io/library/ubuntu:1"),
        ("index.docker.io/library/ubuntu:1", (None, "library/ubuntu", "1", None), "docker.io/library/ubuntu:1"),
        (
            "pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime",
            (None, "pytorch/pytorch", "2.8.0-cuda12.8-cudnn9-runtime", None),
            "docker.io/pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime",
        ),
        ("host:5000/x", ("host:5000", "x", None, None), "host:5000/x"),
        ("host:5000/x:1", ("host:5000", "x", "1", None), "host:5000/x:1"),
        ("host:5000", (None, "library/host", "5000", None), "docker.io/library/host:5000"),
        ("localhost/x:1", ("localhost", "x", "1", None), "localhost/x:1"),
        ("nvcr.io/nvidia/pytorch:25.01-py3", ("nvcr.io", "nvidia/pytorch", "25.01-py3", None), None),
        ("[::1]:5000/a/b:1", ("[::1]:5000", "a/b", "1", None), None),
        (f"x@{DIGEST}", (None, "library/x", None, DIGEST), f"docker.io/library/x@{DIGEST}"),
        (f"h:1/x:T_1@{DIGEST}", ("h:1", "x", "T_1", DIGEST), None),
        ("a.b/c__d/e-f---g_h.i:_", ("a.b", "c__d/e-f---g_h.i", "_", None), None),
    ],
)
def test_reference_is_taken_apart_and_written_in_full(
    text: str, expected: tuple[str | None, str, str | None, str | None], full: str | None
) -> None:
    reference = parse_reference(text)
    assert reference == ImageReference(*expected)
    assert str(reference) == (full or text)


@pytest.mark.parametrize(
    ("text", "familiar"),
    [
        ("docker.io/library/ubuntu:24.04", "ubuntu:24.04"),
        ("docker.io/pytorch/pytorch:2", "pytorch/pytorch:2"),
        ("host:5000/x:1", "host:5000/x:1"),
        ("docker.io/a.b/c:1", "docker.io/a.b/c:1"),  # without docker.io it would name another registry
        ("library/a/b:1", "library/a/b:1"),
    ],
)
def test_familiar_spelling_is_short_and_means_the_same(text: str, familiar: str) -> None:
    assert parse_reference(text).familiar == familiar
    assert parse_reference(familiar) == parse_reference(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Enter an image"),
        ("-x", "looks like an option"),
        ("--privileged", "looks like an option"),
        (" x", "a space or a character"),
        ("x y", "a space or a character"),
        ("x\n", "a space or a character"),
        ("x\0", "a space or a character"),
        ("docker pull x", "a space or a character"),
        ("\N{FULLWIDTH LATIN SMALL LETTER X}", "a space or a character"),
        ("https://host/x:1", "up to and including ://"),
        ("Ubuntu:24.04", "The repository name must be lowercase. Try ubuntu:24.04."),
        ("PyTorch/pytorch:V2", "The repository name must be lowercase. Try pytorch/pytorch:V2."),
        ("Host.org/x:1", "must be lowercase"),
        ("x:", "is not a tag"),
        ("x:-1", "is not a tag"),
        ("x:.1", "is not a tag"),
        ("x:a:b", "is not a tag"),
        ("x:" + "t" * 129, "is not a tag"),
        ("x@", "is not a digest"),
        ("x@sha256:abc", "is not a digest"),
        (f"x@{DIGEST.upper()}", "is not a digest"),
        (f"x@{DIGEST}@{DIGEST}", "is not a digest"),
        (f"x@{DIGEST}:1", "is not a digest"),
        ("x@md5:" + "0" * 64, "is not a digest"),
        (DIGEST, "id of an image"),
        ("a" * 64, "id of an image"),
        ("/x", "is not a repository name"),
        ("x/", "is not a repository name"),
        ("a//b", "is not a repository name"),
        ("../x:1", "is not"),
        ("a/../b", "is not a repository name"),
        ("a-", "is not a repository name"),
        ("a___b", "is not a repository name"),
        ("x;id", "is not a repository name"),
        ("$(id)", "is not a repository name"),
        ("`id`", "is not a repository name"),
        (":5000/x", "address of a registry"),
        ("host:/x", "address of a registry"),
        ("host:0/x", "address of a registry"),
        ("host:65536/x", "address of a registry"),
        ("host:99999999/x", "address of a registry"),
        ("a..b/x", "address of a registry"),
        ("-a.b/x", "looks like an option"),
        ("a-.b/x", "address of a registry"),
        ("[::1/x", "address of a registry"),
        ("[::g]:1/x", "is not"),
        ("[:::]:1/x", "address of a registry"),
        ("u:p@host.org/x", "is not a digest"),
        ("a/" * 130 + "b", "at most 255"),
        ("h.org/" + "a" * 250, "at most 255"),
        ("a" * 1000, "at most 255"),
    ],
)
def test_what_is_no_reference_is_refused_with_the_reason(text: str, words: str) -> None:
    assert words in refusal(text)


@pytest.mark.parametrize("text", ["x:1", f"x@{DIGEST}", f"host:5000/x:1@{DIGEST}", "x:Latest-2", "latest:1"])
def test_tag_or_digest_pins_an_image(text: str) -> None:
    assert parse_pinned_reference(text) == parse_reference(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("host:5000/x", "Add a tag or a digest: host:5000/x:…"),
        ("ubuntu", "Docker would take “latest”"),
        ("ubuntu:latest", "Name a version: ubuntu:…"),
        (f"host:5000/x:latest@{DIGEST}", "Name a version: host:5000/x:…"),
        ("Ubuntu:1", "must be lowercase"),
        ("", "Enter an image"),
    ],
)
def test_catalogue_refuses_what_is_not_pinned(text: str, words: str) -> None:
    assert words in refusal(text, pinned=True)


components = st.from_regex(r"[a-z0-9]{1,4}((\.|_|__|-{1,3})[a-z0-9]{1,3})?", fullmatch=True)
references = st.builds(
    lambda registry, path, tag, digest: f"{registry}{'/'.join(path)}{tag}{digest}",
    st.sampled_from(["", "docker.io/", "localhost/", "ghcr.io/", "host:5000/", "[fe80::1]:443/"]),
    st.lists(components, min_size=1, max_size=3),
    st.just("") | st.from_regex(r":[A-Za-z0-9_][A-Za-z0-9_.-]{0,8}", fullmatch=True),
    st.sampled_from(["", f"@{DIGEST}"]),
)


@quick
@given(references)
def test_both_spellings_are_read_back_the_same(text: str) -> None:
    reference = parse_reference(text)
    assert parse_reference(str(reference)) == reference
    assert parse_reference(reference.familiar) == reference


@quick
@given(st.text(st.characters(), max_size=60) | st.text("aA0.:/@-_[]", max_size=30))
def test_no_text_breaks_the_parsers(text: str) -> None:
    for parse in (parse_reference, parse_pinned_reference):
        try:
            parse(text)
        except InvalidInput as refused:
            str(refused).encode()
