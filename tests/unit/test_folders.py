"""Folders of the host: may this one be mounted now? With real folders, symlinks and owners."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from webapp.agent.folders import refusal, refusal_in_time

MEMBER = 10001
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes folders of other owners: needs root")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An administrator's root, with a volume in it that belongs to a member."""
    root = tmp_path / "roots"
    (root / "imagenet").mkdir(parents=True)
    os.chown(root / "imagenet", MEMBER, MEMBER)
    return root


def test_folder_of_a_member_below_a_root_may_be_mounted(root: Path) -> None:
    assert refusal(str(root / "imagenet"), [root]) is None


def test_its_own_mode_does_not_matter(root: Path) -> None:
    (root / "imagenet").chmod(0o2777)
    assert refusal(str(root / "imagenet"), [root]) is None


def test_deeper_folder_may_be_mounted_while_all_above_is_roots(root: Path) -> None:
    (root / "sets" / "coco").mkdir(parents=True)
    assert refusal(str(root / "sets" / "coco"), [Path("/elsewhere"), root]) is None


def test_outside_of_every_root(root: Path) -> None:
    assert "not inside a folder that may be used" in str(refusal(str(root / "imagenet"), [Path("/srv/other")]))


def test_without_roots_nothing_may_be_mounted(root: Path) -> None:
    assert refusal(str(root / "imagenet"), []) is not None


def test_root_itself(root: Path) -> None:
    assert refusal(str(root), [root]) is not None


def test_name_that_only_begins_like_a_root(root: Path) -> None:
    root.with_name("roots-of-others").mkdir()
    assert refusal(str(root.with_name("roots-of-others")), [root]) is not None


@pytest.mark.parametrize("path", ["imagenet/../../outside", "imagenet/..", "./imagenet", "imagenet/", "imagenet//x"])
def test_path_not_in_its_shortest_form(root: Path, path: str) -> None:
    root.with_name("outside").mkdir()
    assert refusal(f"{root}/{path}", [root]) is not None


@pytest.mark.parametrize("path", ["/etc/ssh", "/proc/1", "/var/run/x", "/var/lib/docker/volumes", "relative/path", ""])
def test_what_is_the_hosts_own_stays_out_under_the_widest_root(path: str) -> None:
    assert refusal(path, [Path("/")]) is not None


def test_missing_folder(root: Path) -> None:
    assert refusal(str(root / "gone"), [root]) == f"{root / 'gone'} does not exist"


def test_file(root: Path) -> None:
    (root / "file").write_text("")
    assert "is no folder" in str(refusal(str(root / "file"), [root]))


def test_symlink_in_place_of_the_folder(root: Path) -> None:
    (root / "link").symlink_to("/etc")
    assert "symlink" in str(refusal(str(root / "link"), [root]))


def test_symlink_in_the_middle(root: Path) -> None:
    (root / "middle").symlink_to(root)
    assert "symlink" in str(refusal(str(root / "middle" / "imagenet"), [root]))


def test_root_that_is_a_symlink(root: Path) -> None:
    link = root.with_name("link-to-roots")
    link.symlink_to(root)
    assert "symlink" in str(refusal(str(link / "imagenet"), [link]))


def test_dangling_symlink(root: Path) -> None:
    (root / "link").symlink_to(root / "nowhere")
    assert refusal(str(root / "link"), [root]) is not None


@pytest.mark.parametrize("mode", [0o775, 0o777, 0o757, 0o1777])
def test_parent_in_which_others_may_write(root: Path, mode: int) -> None:
    """Also a sticky one: below a root nobody but root has to write."""
    (root / "sets" / "coco").mkdir(parents=True)
    (root / "sets").chmod(mode)
    assert "others may write" in str(refusal(str(root / "sets" / "coco"), [root]))


def test_parent_that_belongs_to_a_member(root: Path) -> None:
    (root / "sets" / "coco").mkdir(parents=True)
    os.chown(root / "sets", MEMBER, 0)
    assert "not root's own" in str(refusal(str(root / "sets" / "coco"), [root]))


def test_root_in_which_others_may_write(root: Path) -> None:
    root.chmod(0o777)
    assert "others may write" in str(refusal(str(root / "imagenet"), [root]))


def test_sticky_folder_above_the_root_will_do(root: Path) -> None:
    """/tmp: nobody can rename what is root's."""
    root.parent.chmod(0o1777)
    assert refusal(str(root / "imagenet"), [root]) is None


def test_open_folder_above_the_root(root: Path) -> None:
    root.parent.chmod(0o777)
    assert "others may write" in str(refusal(str(root / "imagenet"), [root]))


def test_swap_between_two_starts_is_seen(root: Path) -> None:
    assert refusal(str(root / "imagenet"), [root]) is None
    (root / "imagenet").rmdir()
    (root / "imagenet").symlink_to("/etc")
    assert refusal(str(root / "imagenet"), [root]) is not None


class TestInTime:
    """F37: a network file system that hangs."""

    def test_answer_is_the_refusal(self, root: Path) -> None:
        assert refusal_in_time(str(root / "imagenet"), [root]) is None
        assert refusal_in_time(str(root / "gone"), [root]) == f"{root / 'gone'} does not exist"

    def test_folder_that_hangs_is_refused_in_time_by_one_thread(self) -> None:
        hang, looks = threading.Event(), []

        def look(folder: str, _roots: object) -> None:
            looks.append(folder)
            hang.wait(5)

        for _ in range(3):
            assert refusal_in_time("/srv/nfs", [], seconds=0.01, look=look) == "/srv/nfs does not answer"
        assert looks == ["/srv/nfs"]
        hang.set()

    def test_it_is_asked_anew_once_it_answers(self) -> None:
        assert refusal_in_time("/srv/back", [], look=lambda *_: "gone") == "gone"
        assert refusal_in_time("/srv/back", [], look=lambda *_: None) is None
