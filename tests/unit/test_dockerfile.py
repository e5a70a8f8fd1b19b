import pytest

from webapp.domain.dockerfile import MOST_CHARACTERS, parse_dockerfile, read
from webapp.errors import InvalidInput

WHOLE = """\
ARG VERSION=12.11
FROM debian:${VERSION} AS tools
RUN apt-get update \\
    # a comment between

 && apt-get install --yes git

FROM pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime
COPY --from=tools /usr/bin/git /usr/bin/git
COPY --from=0 /etc/hostname /tmp/
COPY --from=busybox:1.36 /bin/busybox /bin/
ADD https://example.org/data.tar /opt/
RUN pip install einops==0.8.0
"""


def problems(text: str) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        parse_dockerfile(text)
    return [str(problem) for problem in caught.value.problems]


def test_bases_are_those_that_are_no_stage():
    assert parse_dockerfile(WHOLE).bases == (
        "debian:12.11", "pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime", "busybox:1.36")


def test_step_of_the_builder_is_a_line_of_the_text():
    judged = parse_dockerfile(WHOLE)
    assert [judged.line_of_step(number) for number in (1, 2, 3, 4, 9, 10, 0)] == [1, 2, 3, 8, 13, None, None]


def test_lines_that_go_on_are_one_instruction():
    third = read(WHOLE)[2]
    assert (third.line, third.word, third.rest.split()) == (
        3, "RUN", ["apt-get", "update", "&&", "apt-get", "install", "--yes", "git"])


def test_other_escape_is_honoured():
    instructions = read("# escape=`\nFROM debian:12 \nRUN a `\n  b\nRUN c:\\\nUSER x")
    assert [each.line for each in instructions] == [2, 3, 5, 6]


@pytest.mark.parametrize("line, said", [
    ("RUNN make", "Line 2: “RUNN” is no instruction"),
    ("COPY . /app", "Line 2: COPY takes files"),
    ('COPY ["a", "/b"]', "Line 2: COPY takes files"),
    ("ADD app.tar /app", "Line 2: ADD takes files"),
    ("ADD https://example.org/x app.tar /app", "Line 2: ADD takes files"),
    ("ENV ALONE", "Line 2: write ENV with a name and a value"),
    ("ENV A=1 ALONE", "Line 2: write ENV with a name and a value"),
    ("LABEL alone", "Line 2: write LABEL with a name and a value"),
    ("VOLUME /data", "Line 2: VOLUME is refused"),
    ("ONBUILD RUN x", "Line 2: ONBUILD"),
    ("RUN --mount=type=cache,target=/x make", "Line 2: not every engine knows --mount=type=cache,target=/x"),
    ("RUN cat <<EOF > /x", "Line 2: not every engine knows texts"),
    ("FROM debian", "Line 2: “debian” is no image with a fixed version"),
    ("FROM debian:latest", "Line 2: “debian:latest” is no image"),
    ("FROM ${UNKNOWN}:12", "Line 2: “${UNKNOWN}:12” is no image"),
    ("FROM --platform=linux/arm64 debian:12", "Line 2: write FROM and an image"),
    ("FROM debian:12 AS", "Line 2: write FROM and an image"),
    ("COPY --from=tools /a /b", "Line 2: “tools” is no image with a fixed version"),
])
def test_what_cannot_be_built_is_named_with_its_line(line, said):
    found = problems(f"FROM debian:12.11\n{line}\n")
    assert len(found) == 1 and found[0].startswith(f"dockerfile: {said}"), found


@pytest.mark.parametrize("text", ["", "# only a comment", "RUN make"])
def test_it_begins_with_from(text):
    assert "begins with FROM" in problems(text)[0]


def test_only_arg_comes_before_from():
    assert problems("ENV A=1\nFROM debian:12") == ["dockerfile: Line 1: only ARG may stand before the first FROM."]


def test_all_lines_are_told_at_once():
    assert [problem.split(":")[1] for problem in problems("FROM debian:12\nCOPY a b\n\nVOLUME /x")] == [
        " Line 2", " Line 4"]


def test_lines_after_a_text_are_not_read_as_instructions():
    assert len(problems("FROM debian:12\nRUN cat <<EOF\nhello\nEOF\n")) == 1


@pytest.mark.parametrize("line", ["ENV A=1", "ENV A=1 B='2 3'", "ENV A the old way", "LABEL a=b", 'ENV A="'])
def test_values_are_written_in_either_way(line):
    assert parse_dockerfile(f"FROM debian:12\n{line}\n")


@pytest.mark.parametrize("line", ["RUN echo $((1 << 2))", "RUN wc -c <<< words", "RUN cat </etc/hostname"])
def test_other_signs_are_no_texts(line):
    assert parse_dockerfile(f"FROM debian:12\n{line}\n")


@pytest.mark.parametrize("text", ["FROM debian:12\n" + "#" * MOST_CHARACTERS, "FROM debian:12\nRUN \0"])
def test_what_is_no_text_of_a_person_is_refused(text):
    assert len(problems(text)) == 1


def test_lines_of_windows_are_lines():
    assert parse_dockerfile("FROM debian:12\r\nRUN a \\\r\n b\r\n").text == "FROM debian:12\nRUN a \\\n b\n"
