"""What engines answer, as recorded, and what Berth makes of it. No engine is needed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
import requests

from webapp.domain.container import ContainerState, PublishedPort, PullProgress
from webapp.domain.images import BuildOutput
from webapp.engines.docker import build
from webapp.engines.docker.commit import changes
from webapp.engines.docker.observed import (
    engine_event,
    image_facts,
    inspected_container,
    listed_container,
    parse_time,
)
from webapp.engines.docker.output import Frames, Tail, readable
from webapp.engines.docker.pull import follow
from webapp.engines.docker.translation import port_in, refusal, short, translated
from webapp.errors import (
    BuildFailed,
    DiskFull,
    EngineRejected,
    EngineUnreachable,
    ImageHeld,
    ImageNotFound,
    PortTaken,
    PullFailed,
    RegistryRefused,
)

# Sentences as engines wrote them.
TAKEN_BY_PROGRAM_20_10 = (
    "driver failed programming external connectivity on endpoint w (7deb): "
    "Error starting userland proxy: listen tcp4 127.0.0.1:15555: bind: address already in use"
)
TAKEN_BY_CONTAINER_20_10 = (
    "driver failed programming external connectivity on endpoint w (4bd3): "
    "Bind for 127.0.0.1:15555 failed: port is already allocated"
)
TAKEN_28 = (
    "failed to set up container networking: driver failed programming external connectivity on endpoint w (3d1c): "
    "failed to bind host port for 0.0.0.0:15555:172.18.0.2:22/tcp: address already in use"
)
TAKEN_28_SHORT = "failed to bind host port 127.0.0.1:15555/tcp: address already in use"
TAKEN_IPV6 = "Error starting userland proxy: listen tcp6 [::1]:15555: bind: address already in use"
NO_SUCH_ADDRESS = "Error starting userland proxy: listen tcp4 10.9.9.9:15555: bind: cannot assign requested address"
DISK_FULL = "failed to register layer: write /usr/lib/x.so: no space left on device"


@pytest.mark.parametrize(
    "sentence", [TAKEN_BY_PROGRAM_20_10, TAKEN_BY_CONTAINER_20_10, TAKEN_28, TAKEN_28_SHORT, TAKEN_IPV6]
)
def test_a_taken_port_is_named(sentence: str) -> None:
    error = refusal(sentence, host="gpu1", status=500)

    assert isinstance(error, PortTaken) and error.facts["port"] == 15555
    assert "15555" in str(error)


def test_an_address_that_the_host_lacks_is_no_taken_port() -> None:
    assert type(refusal(NO_SUCH_ADDRESS, host="gpu1", status=500)) is EngineRejected


def test_a_sentence_without_a_port_has_none() -> None:
    assert port_in("address already in use") is None


def test_a_full_disk_is_told_apart() -> None:
    assert isinstance(refusal(DISK_FULL, host="gpu1", status=500), DiskFull)


@pytest.mark.parametrize("sentence", ["No such image: team/a:1", "manifest unknown"])
def test_a_404_about_an_image_names_it(sentence: str) -> None:
    error = refusal(sentence, host="gpu1", image="team/a:1", status=404)

    assert isinstance(error, ImageNotFound) and error.facts["image"] == "team/a:1"


def test_an_error_without_an_answer_is_unreachable_with_its_cause() -> None:
    cause = ConnectionRefusedError(111, "Connection refused")
    error = translated(requests.exceptions.ConnectionError("wrapped", cause), host="gpu1")

    assert isinstance(error, EngineUnreachable) and error.facts["detail"] == "Connection refused"


def test_credentials_in_addresses_do_not_get_into_errors() -> None:
    text = short('Get "https://bob:pw@registry.lab/v2/token?account=bob&token=s3cret": EOF')

    assert "pw" not in text and "s3cret" not in text and "registry.lab" in text


def test_a_question_is_no_query() -> None:
    assert short("unknown instruction: FOO (did you mean FROM?)") == "unknown instruction: FOO (did you mean FROM?)"


def test_a_long_sentence_is_cut_and_on_one_line() -> None:
    assert len(short("x\n" * 5000)) < 600 and "\n" not in short("a\nb")


# -- pull: one JSON object a line

PULL = """{"status":"Pulling from library/x","id":"1"}
{"status":"Pulling fs layer","progressDetail":{},"id":"aa"}
{"status":"Pulling fs layer","progressDetail":{},"id":"bb"}
{"status":"Waiting","progressDetail":{},"id":"bb"}
{"status":"Downloading","progressDetail":{"current":10,"total":100},"progress":"[>  ]","id":"aa"}
{"status":"Downloading","progressDetail":{"current":50,"total":300},"progress":"[>  ]","id":"bb"}
{"status":"Verifying Checksum","progressDetail":{},"id":"aa"}
{"status":"Download complete","progressDetail":{},"id":"aa"}
{"status":"Extracting","progressDetail":{"current":32,"total":100},"id":"aa"}
{"status":"Pull complete","progressDetail":{},"id":"aa"}
{"status":"Download complete","progressDetail":{},"id":"bb"}
{"status":"Digest: sha256:00"}
{"status":"Status: Downloaded newer image for x:1"}"""


def recorded(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_pull_reports_bytes_of_the_layers_seen_so_far() -> None:
    progress: list[PullProgress] = []

    follow(recorded(PULL), "x:1", host="gpu1", progress=progress.append)

    assert progress == [
        PullProgress(10, 100, 0, 2),
        PullProgress(60, 400, 0, 2),
        PullProgress(150, 400, 0, 2),
        PullProgress(150, 400, 1, 2),
        PullProgress(400, 400, 1, 2),
    ]


def test_layers_that_are_there_already_count_as_done() -> None:
    progress: list[PullProgress] = []
    there = {"status": "Already exists", "progressDetail": {}, "id": "cc"}

    follow([there, *recorded(PULL)], "x:1", host="gpu1", progress=progress.append)

    assert progress[0] == PullProgress(0, None, 1, 1) and progress[-1] == PullProgress(400, 400, 2, 3)


@pytest.mark.parametrize(
    "sentence, kind",
    [
        ("manifest for x:1 not found: manifest unknown: manifest unknown", ImageNotFound),
        ("pull access denied for x, repository does not exist or may require 'docker login'", ImageNotFound),
        ("no matching manifest for linux/arm64/v8 in the manifest list entries", ImageNotFound),
        ("unauthorized: authentication required", RegistryRefused),
        ("Get https://127.0.0.1:5000/v2/x/manifests/1: no basic auth credentials", RegistryRefused),
        ("denied: requested access to the resource is denied", RegistryRefused),
        ("toomanyrequests: You have reached your pull rate limit", PullFailed),
        ("filesystem layer verification failed for digest sha256:00", PullFailed),
        ('Get "https://registry.example.org/v2/": dial tcp: lookup registry.example.org: no such host', PullFailed),
        ('Get "https://registry.example.org/v2/": net/http: TLS handshake timeout', PullFailed),
        ("unexpected EOF", PullFailed),
        (DISK_FULL, DiskFull),
    ],
)
def test_an_error_inside_the_stream_ends_the_pull_with_its_cause(sentence: str, kind: type) -> None:
    lines = [*recorded(PULL)[:5], {"errorDetail": {"message": sentence}, "error": sentence}]

    with pytest.raises(kind) as caught:
        follow(lines, "x:1", host="gpu1", progress=lambda progress: None)

    assert sentence[:20] in caught.value.facts["detail"]


def test_an_error_that_has_only_its_detail_is_seen_too() -> None:
    with pytest.raises(PullFailed):
        follow([{"errorDetail": {"message": "gone"}}], "x:1", host="gpu1", progress=lambda progress: None)


# -- build: pieces of lines, and steps of their own

BUILD = r"""{"stream":"Step 1/3 : FROM debian:12.11"}
{"stream":"\n"}
{"stream":" ---\u003e e6a2a19722ce\n"}
{"stream":"Step 2/3 : RUN echo hi  \u0026\u0026 make"}
{"stream":"\n"}
{"stream":"\u001b[91mwar"}
{"stream":"ning: x\n\u001b[0m 10%\r100%\r\ndo"}
{}
{"stream":"ne"}
{"errorDetail":{"code":2,"message":"The command returned a non-zero code: 2"},"error":"as said"}"""


def test_a_build_is_told_by_whole_lines_and_steps() -> None:
    told: list[BuildOutput] = []

    with pytest.raises(BuildFailed) as caught:
        build.follow(recorded(BUILD), host="gpu1", tell=told.append)

    assert "".join(output.text for output in told) == (
        "Step 1/3 : FROM debian:12.11\n ---> e6a2a19722ce\nStep 2/3 : RUN echo hi  && make\nwarning: x\n 10%\n100%\n"
        "done\n")
    assert [(output.step, output.steps) for output in told if output.text][-1] == (2, 3)
    facts = caught.value.facts
    assert (facts["step"], facts["command"]) == (2, "RUN echo hi && make")
    assert facts["last"].splitlines()[-2:] == ["100%", "done"] and facts["detail"] == "as said"


def test_a_line_without_an_end_is_cut() -> None:
    told: list[BuildOutput] = []

    build.follow([{"stream": "x" * 100} for _ in range(100)], host="gpu1", tell=told.append)

    lines = "".join(output.text for output in told).splitlines()
    assert sum(map(len, lines)) == 10_000 and max(map(len, lines)) < 4300


def test_a_silence_is_told_too() -> None:
    told: list[BuildOutput] = []

    build.follow([{}, {}], host="gpu1", tell=told.append)

    assert told[:2] == [BuildOutput("", None, None)] * 2


def test_a_full_disk_in_a_build_is_told_apart() -> None:
    with pytest.raises(DiskFull):
        build.follow([{"error": "write /x: no space left on device"}], host="gpu1", tell=lambda output: None)


@pytest.mark.parametrize("sentence", [
    'conflict: unable to remove repository reference "x:1" (must force) - container 1 is using its referenced image 2',
    "conflict: unable to delete 2e (cannot be forced) - image is being used by running container 1f",
])
def test_an_image_with_a_container_is_told_apart(sentence: str) -> None:
    assert isinstance(refusal(sentence, host="gpu1", status=409), ImageHeld)


# -- JSON of the engine, with holes


def test_a_row_being_removed_has_no_names() -> None:
    row = listed_container({"Id": "ab", "Names": None, "State": "removing", "Labels": None, "Created": 5})

    assert row.name == "" and row.state is ContainerState.REMOVING and row.labels == {}


def test_a_state_that_nobody_knows_counts_as_up() -> None:
    assert listed_container({"Id": "ab", "State": "hovering"}).is_up


def test_a_created_container_has_no_times_no_exit_code_and_its_ports() -> None:
    found = {
        "Id": "ab",
        "Name": "/w",
        "Created": "2026-01-02T03:04:05.123456789Z",
        "State": {"Status": "created", "ExitCode": 128, "StartedAt": "0001-01-01T00:00:00Z", "Error": "port"},
        "HostConfig": {
            "PortBindings": {
                "22/tcp": [{"HostIp": "127.0.0.1", "HostPort": "2201"}],
                "53/udp": [{"HostIp": "", "HostPort": "53"}],
                "80/tcp": None,
                "81/tcp": [{"HostIp": "", "HostPort": ""}],
            }
        },
        "NetworkSettings": {"Ports": {}},
    }

    detail = inspected_container(found)

    assert detail.exit_code is None and detail.started_at is None and detail.finished_at is None
    assert detail.error == "port" and detail.container.name == "w"
    assert detail.ports == (PublishedPort(22, "127.0.0.1", 2201),)


@pytest.mark.parametrize("finished_at", ["2026-01-02T03:04:05Z", "0001-01-01T00:00:00Z"])     # of an earlier run; never
def test_a_running_container_shows_nothing_of_an_end(finished_at: str) -> None:
    state = {"Status": "running", "ExitCode": 0, "OOMKilled": True, "FinishedAt": finished_at}

    detail = inspected_container({"Id": "ab", "State": state})

    assert detail.exit_code is None and not detail.oom_killed


@pytest.mark.parametrize(
    "text, expected",
    [
        ("0001-01-01T00:00:00Z", None),
        ("", None),
        (None, None),
        ("nonsense", None),
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05.5Z", datetime(2026, 1, 2, 3, 4, 5, 500000, tzinfo=UTC)),
        ("2026-01-02T03:04:05.123456789Z", datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)),
        ("2026-01-02T03:04:05.1+02:00", datetime(2026, 1, 2, 1, 4, 5, 100000, tzinfo=UTC)),
    ],
)
def test_times_are_aware_utc(text: str | None, expected: datetime | None) -> None:
    assert parse_time(text) == expected


def test_facts_of_an_image_with_holes() -> None:
    facts = image_facts({"Id": "sha256:1", "Config": {"Volumes": None, "Labels": None}, "RepoDigests": None})

    assert facts.volumes == () and facts.labels == {} and facts.digests == ()


@pytest.mark.parametrize("action", ["exec_create: sh -c secret", "exec_die", "attach", "top", "archive-path", ""])
def test_events_that_are_noise_are_left_out(action: str) -> None:
    assert engine_event({"Type": "container", "Action": action, "Actor": {"ID": "ab"}}) is None


def test_an_event_keeps_its_microsecond() -> None:
    actor = {"ID": "ab", "Attributes": {"name": "w"}}
    event = engine_event({"Type": "container", "Action": "die", "Actor": actor, "timeNano": 5_000_123_456_789})

    assert event is not None and event.container_name == "w"
    assert event.at == datetime(1970, 1, 1, 1, 23, 20, 123456, tzinfo=UTC)


# -- what programs print


def frame(payload: bytes, stream: int = 1) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(payload).to_bytes(4, "big") + payload


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_frames_are_taken_apart_however_they_are_cut(size: int) -> None:
    sent = frame(b"one") + frame(b"") + frame(b"two", 2)
    frames = Frames()

    pieces = [piece for at in range(0, len(sent), size) for piece in frames.feed(sent[at : at + size])]

    assert b"".join(pieces) == b"onetwo"


def test_a_tail_keeps_the_newest_and_little_more_than_that_in_memory() -> None:
    tail = Tail(10)
    for number in range(1000):
        tail.add(f"{number:04d}".encode())

    assert tail.bytes() == b"9709980999"
    assert Tail(10).bytes() == b""


@pytest.mark.parametrize(
    "raw, expected",
    [
        (b"plain\n", "plain\n"),
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b]0;title\x07text", "text"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"10%\r20%\r\n", "10%\n20%\n"),
        (b"a\x00b\x08c", "a\ufffdb\ufffdc"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("safe\u202eevil".encode(), "safe\ufffdevil"),
        ("数据\tok".encode(), "数据\tok"),
    ],
)
def test_readable_text_obeys_nobody(raw: bytes, expected: str) -> None:
    assert readable(raw) == expected


# -- what a commit empties


def test_a_commit_empties_labels_gpu_variables_and_what_the_image_lacked() -> None:
    container = {
        "Config": {
            "Labels": {"berth.instance": "lab1", "team": "a"},
            "Env": ["PATH=/mine", "NVIDIA_VISIBLE_DEVICES=void", "KEY=s3cret"],
        }
    }
    image = {"Config": {"Env": ["PATH=/bin", "NVIDIA_VISIBLE_DEVICES=all"]}}

    assert list(changes(container, image)) == [
        'LABEL berth.instance=""',
        'ENV KEY=""',
        'ENV NVIDIA_VISIBLE_DEVICES=""',
    ]


def test_without_its_image_only_gpu_variables_are_emptied() -> None:
    container = {"Config": {"Labels": None, "Env": ["PATH=/bin", "NVIDIA_VISIBLE_DEVICES=void"]}}

    assert list(changes(container, None)) == ['ENV NVIDIA_VISIBLE_DEVICES=""']
