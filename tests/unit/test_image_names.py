import pytest

from webapp.domain.images import base_reference, cuda_in, is_made_here, pulled, saved_reference
from webapp.domain.references import parse_pinned_reference


@pytest.mark.parametrize("reference, expected", [
    ("berth/workspace:bookworm-1", True), ("docker.io/berth/workspace:x", True), ("berth-base:bookworm-1", True),
    ("berth-lab1/saved:abc", True), ("berth-lab1/w-abc:r2", True), ("ghcr.io/berth/workspace:1", False),
    ("localhost:5000/berth/workspace:1", False), ("berthold/workspace:1", False), ("berth/other:1", False),
])
def test_own_names_are_known(reference, expected):
    assert is_made_here(reference) is expected


@pytest.mark.parametrize("base, reference, expected", [
    ("a:1", None, "a:1"), ("a:1", "berth/workspace:a-1", "a:1"),
    (None, "ghcr.io/x/workspace:1", "ghcr.io/x/workspace:1"),
    ("a:1", "ghcr.io/x/workspace:1", "ghcr.io/x/workspace:1"), (None, "berth-lab1/saved:1", None), (None, None, None),
    ("berth-base:bookworm", "berth/workspace:bookworm-1", None),
])
def test_what_comes_from_a_registry(base, reference, expected):
    assert pulled(base=base, reference=reference) == expected


def test_names_that_berth_gives_are_references():
    for name in (saved_reference("lab1", "abc"), base_reference("lab1", "abc", "FROM x:1")):
        assert parse_pinned_reference(name).familiar == name


def test_another_text_is_another_image():
    assert base_reference("lab1", "abc", "FROM x:1") != base_reference("lab1", "abc", "FROM x:2")


@pytest.mark.parametrize("names, reference, expected", [
    ({}, "pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime", "12.8"),
    ({}, "example/x:2.1-cu121-py3", "12.1"),
    ({}, "example/x:cu118", "11.8"),
    ({}, "example/x:cuda-13.0", "13.0"),
    ({}, "example/x:1", None),
    ({}, "example/x:focus12", None),
    ({}, "example/x@sha256:" + "a" * 64, None),
    ({"CUDA_VERSION": "12.4.1"}, "example/x:cuda11.8", "12.4"),
    ({"CUDA_VERSION": "none"}, "example/x:cuda11.8", "11.8"),
    ({"com.nvidia.cuda.version": "11.8"}, "example/x:1", "11.8"),
])
def test_cuda_is_read_from_the_image_before_its_tag(names, reference, expected):
    assert cuda_in(names, reference) == expected
