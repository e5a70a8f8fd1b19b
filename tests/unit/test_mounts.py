"""Paths of volumes and folders: what is reserved, what is outside, what lies inside another."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webapp.domain.mounts import parse_container_path, parse_host_folder, refuse_nesting, team_volume_path
from webapp.errors import InvalidInput

quick = settings(max_examples=60, deadline=None)
any_text = st.text(st.characters(), max_size=40) | st.text("/.:a \n", max_size=20).map(lambda text: f"/{text}")
ROOTS = ["/srv/data", "/mnt/nas/"]
HOSTILE = [
    *("", "data", "./data", "~", "~/x", "data/", " /data", "/data ", "/data\n", "/da\nta", "/da\0ta", "/da\x1bta"),
    *("/da\u202eta", "/da\u200bta", "/data\ud800", "/srv/data/..", "/srv/data/../../etc", "/srv/data/x/../y", "/.."),
    *("//data", "/data//x", "/data/", "/data/./x", "/.", "/", "//", "-v", "$(id)", "C:\\data"),
]


def container_refusal(text: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        parse_container_path(text)
    (problem,) = caught.value.problems
    assert problem.field == "container_path"
    return str(problem)


def host_refusal(text: str, roots: list[str] = ROOTS) -> str:
    with pytest.raises(InvalidInput) as caught:
        parse_host_folder(text, roots)
    (problem,) = caught.value.problems
    assert problem.field == "host_folder"
    return str(problem)


@pytest.mark.parametrize(
    "text",
    [
        *("/data", "/data/images", "/workspace/notebooks", "/mnt/x", "/home/alice/data", "/opt/conda", "/var/tmp/x"),
        *("/data/with space", "/data/数据", "/library", "/etcetera", "/data/...", "/data/a,b", "/d" + "x" * 253),
    ],
)
def test_container_paths(text: str) -> None:
    assert parse_container_path(text) == text


@pytest.mark.parametrize("text", [*HOSTILE, "/test:dir", "/data:ro", "/" + "x" * 255, "/" + "数" * 85])
def test_what_is_no_plain_container_path_is_refused(text: str) -> None:
    assert container_refusal(text)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        *((path, path) for path in ("/etc", "/proc", "/sys", "/dev", "/run", "/var/run", "/usr", "/bin", "/sbin")),
        *((path, path) for path in ("/lib", "/lib32", "/lib64", "/root", "/boot", "/opt/berth", "/tmp")),
        ("/etc/berth", "/etc"),
        ("/usr/local/data", "/usr"),
        ("/dev/shm", "/dev"),
        ("/var/run/docker.sock", "/var/run"),
        ("/opt/berth/py", "/opt/berth"),
        ("/var", "/var/run"),
        ("/opt", "/opt/berth"),
    ],
)
def test_nothing_is_mounted_on_below_or_above_what_the_workspace_needs(text: str, other: str) -> None:
    assert f"“{text}” would hide {other}," in container_refusal(text)


@pytest.mark.parametrize("text", ["/home", "/home/alice", "/home/anyone"])
def test_homes_are_kept_for_home_volumes(text: str) -> None:
    assert "is kept for home folders" in container_refusal(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("data", "Begin it with /"),
        ("/data/", "Write /data."),
        ("//data/./x", "Write /data/x."),
        ("/data/../x", "goes up by “..”"),
        ("/test:dir", "has a colon"),
        ("/a\nb", "/a\\u000ab"),
        ("/", "The root folder"),
    ],
)
def test_refusal_says_what_to_write_instead(text: str, words: str) -> None:
    assert words in container_refusal(text)


def test_team_volume_appears_under_data() -> None:
    assert parse_container_path(team_volume_path("vision")) == "/data/vision"


@pytest.mark.parametrize("text", ["/srv/data/x", "/srv/data/with space/y", "/mnt/nas/a:b", "/srv/data/数据"])
def test_host_folders_below_a_root(text: str) -> None:
    assert parse_host_folder(text, ROOTS) == text


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_no_plain_host_path_is_refused(text: str) -> None:
    assert host_refusal(text)


@pytest.mark.parametrize("text", ["/srv/data", "/srv", "/srv/database", "/mnt/nas", "/mnt", "/mnt/other/x", "/data"])
def test_a_root_itself_and_what_is_outside_is_refused(text: str) -> None:
    assert "Choose one inside: /mnt/nas/, /srv/data" in host_refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "/etc",
            "/etc/ssh",
            "/var/run",
            "/var/run/docker.sock",
            "/run/docker.sock",
            "/proc/1/root",
            "/sys",
            "/dev/sda",
        ),
        *("/boot", "/root/.ssh", "/var/lib/docker", "/var/lib/docker/volumes/x", "/var", "/var/lib", "/usr", "/lib"),
    ],
)
def test_system_folders_are_refused_under_every_root(text: str) -> None:
    assert "of the host to a workspace" in host_refusal(text, ["/"])
    assert "of the host to a workspace" in host_refusal(text, [text.rpartition("/")[0] or "/"])


@pytest.mark.parametrize("roots", [["srv"], [""], ["."], ["srv", ""]])
def test_a_root_that_is_not_absolute_allows_nothing(roots: list[str]) -> None:
    assert "is not inside" in host_refusal("/srv/x", roots)


def test_without_roots_no_host_folder_may_be_used() -> None:
    assert "ask an administrator" in host_refusal("/srv/x", [])


EXISTING = {"Vision data": "/srv/data/vision", "Speech data": "/srv/data/speech"}


@pytest.mark.parametrize("new_path", ["/srv/data/visions", "/srv/data/text", "/srv/datas", "/srv/data/visio"])
def test_paths_beside_each_other_are_fine(new_path: str) -> None:
    refuse_nesting(EXISTING, new_path, "host_folder")


@pytest.mark.parametrize(
    ("new_path", "words"),
    [
        ("/srv/data/vision", ["“/srv/data/vision” is used by Vision data already."]),
        ("/srv/data/vision/cats", ["is inside /srv/data/vision, which Vision data uses."]),
        ("/srv/data", ["holds /srv/data/vision, which Vision data uses.", "holds /srv/data/speech, which Speech data"]),
    ],
)
def test_nested_paths_are_refused_naming_each_other_one(new_path: str, words: list[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        refuse_nesting(EXISTING, new_path, "host_folder")
    assert [problem.field for problem in caught.value.problems] == ["host_folder"] * len(words)
    for problem, expected in zip(caught.value.problems, words, strict=True):
        assert expected in str(problem)


@quick
@given(any_text)
def test_no_text_breaks_the_parsers(text: str) -> None:
    try:
        assert ".." not in parse_container_path(text).split("/")
    except InvalidInput as refused:
        str(refused).encode()
    try:
        assert parse_host_folder(text, ["/"]).startswith("/")
    except InvalidInput as refused:
        str(refused).encode()
