"""/etc/passwd and /etc/group of a workspace."""

from __future__ import annotations

import pytest

from webapp.domain.passwd import group_for, passwd_for
from webapp.domain.workspace import Person, Team

ALICE = Person("alice", 10001, (Team("vision", 20000), Team("speech", 20003)))
ROOT = "root:x:0:0:root:/root:/bin/bash"
ENTRY = "alice:x:10001:10001::/home/alice:/bin/bash"


def test_person_comes_after_the_images_own() -> None:
    assert passwd_for(f"{ROOT}\n", ALICE) == f"{ROOT}\n{ENTRY}\n"


@pytest.mark.parametrize("clash", [
    "alice:x:1000:1000:somebody else:/home/other:/bin/sh",      # the name
    "ubuntu:x:10001:10001::/home/ubuntu:/bin/sh",               # the number
    "ubuntu:x:010001:10001::/home/ubuntu:/bin/sh",              # the number, as libc reads it
    "alice",                                                    # a broken line with the name
])
def test_image_user_with_the_persons_name_or_uid_makes_way(clash: str) -> None:
    assert passwd_for(f"{ROOT}\n{clash}\n", ALICE) == f"{ROOT}\n{ENTRY}\n"


def test_what_only_looks_alike_stays() -> None:
    others = "alicex:x:1001:10001::/:/bin/sh\nx:alice:1002:1::/:/bin/sh\nten:x:100011:1::/:/bin/sh"
    assert passwd_for(f"{others}\n", ALICE) == f"{others}\n{ENTRY}\n"


def test_missing_newline_at_the_end_joins_no_lines() -> None:
    assert passwd_for(ROOT, ALICE) == f"{ROOT}\n{ENTRY}\n"


def test_lines_of_another_system_and_blank_ones_are_cleaned() -> None:
    assert passwd_for(f"{ROOT}\r\n\r\n\nbin:x:1:1::/:/bin/sh\r\n", ALICE) == f"{ROOT}\nbin:x:1:1::/:/bin/sh\n{ENTRY}\n"


@pytest.mark.parametrize("odd", ["a\x0bb", "a\x0cb", "a\x1cb", "a\u2028b", "a\x85b"])
def test_odd_characters_end_no_line(odd: str) -> None:
    line = f"odd:x:5:5:{odd}:/:/bin/sh"
    assert passwd_for(f"{line}\n", ALICE) == f"{line}\n{ENTRY}\n"


@pytest.mark.parametrize("line", ["+::::::", "short", "no:number", "x:x:many:1::/:/bin/sh", "neg:x:-2:1::/:/bin/sh"])
def test_lines_that_are_no_accounts_are_left_alone(line: str) -> None:
    assert passwd_for(f"{line}\n", ALICE) == f"{line}\n{ENTRY}\n"


def test_empty_image_file() -> None:
    assert passwd_for("", ALICE) == f"{ENTRY}\n"


def test_written_twice_is_written_once() -> None:
    """A container that ran has the person in it already."""
    once = passwd_for(f"{ROOT}\n", ALICE)
    assert passwd_for(once, ALICE) == once
    group = group_for("root:x:0:\n", ALICE)
    assert group_for(group, ALICE) == group


def test_group_has_the_person_and_each_team() -> None:
    assert group_for("root:x:0:\n", ALICE) == (
        "root:x:0:\nalice:x:10001:\nvision:x:20000:alice\nspeech:x:20003:alice\n")


def test_image_groups_that_clash_with_a_team_make_way() -> None:
    image = "root:x:0:\nvision:x:44:\nother:x:20003:bob\nalice:x:1000:\nusers:x:100:\n"
    assert group_for(image, ALICE).splitlines()[:2] == ["root:x:0:", "users:x:100:"]
