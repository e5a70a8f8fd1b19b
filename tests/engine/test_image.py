"""The workspace image, in real containers that are started as images/README.md says."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import socket
import subprocess
import sys
import tarfile
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import docker
import paramiko
import pytest
import requests
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from docker.models.containers import Container

pytestmark = pytest.mark.docker

UID = 10001
TEAM_GID = 20001
HARD_VALUE = 'two words "quoted" \\ $HOME # and more'


@dataclass
class Box:
    """One running workspace of alice."""

    container: Container
    key: Path
    home: str  # name of the volume
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    host_key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)

    def port(self, inside: int) -> int:
        self.container.reload()
        return int(self.container.ports[f"{inside}/tcp"][0]["HostPort"])

    def put_settings(self) -> None:
        passwd = f"alice:x:{UID}:{UID}::/home/alice:/bin/bash\n"
        group = f"alice:x:{UID}:\nteam:x:{TEAM_GID}:alice\n"
        files = {
            "etc/passwd": (passwd.encode(), 0, 0o644),
            "etc/group": (group.encode(), 0, 0o644),
            "etc/berth": (None, 0, 0o755),
            "etc/berth/authorized_keys": (self.key.with_suffix(".pub").read_bytes(), 0, 0o644),
            "etc/berth/ssh_host_ed25519_key": (_private(self.host_key), UID, 0o400),
            "etc/berth/token": (self.token.encode(), UID, 0o400),
            "etc/berth/environment": (f"HARD={HARD_VALUE}\n".encode(), 0, 0o644),
            "home/alice": (None, UID, 0o700),
        }
        self.put("/", files)

    def put(self, folder: str, files: Mapping[str, tuple[bytes | None, int, int]]) -> None:
        """name → content (None = a directory), owner, mode"""
        with io.BytesIO() as buffer:
            with tarfile.open(fileobj=buffer, mode="w") as tar:
                for name, (content, owner, mode) in files.items():
                    member = tarfile.TarInfo(name)
                    member.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
                    member.uid, member.gid, member.mode, member.size = owner, owner, mode, len(content or b"")
                    tar.addfile(member, io.BytesIO(content or b""))
            self.container.put_archive(folder, buffer.getvalue())

    def run(self, *argv: str) -> str:
        status, output = self.container.exec_run(list(argv))
        assert status == 0, output.decode()
        return str(output.decode())

    def ssh_argv(self, *options: str) -> list[str]:
        known = self.key.with_name(f"known-{self.container.short_id}")
        known.write_bytes(f"[127.0.0.1]:{self.port(2222)} ".encode() + _public(self.host_key))
        return ["ssh", "-F", "none", "-i", str(self.key), "-o", f"UserKnownHostsFile={known}", "-o", "BatchMode=yes",
                "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=yes", "-p", str(self.port(2222)),
                *options, "alice@127.0.0.1"]  # fmt: skip

    def ssh(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self.ssh_argv(), command], capture_output=True, text=True, timeout=60)

    def http(self, path: str, *, token: str | None = None, cookie: str | None = None) -> requests.Response:
        headers = {"Authorization": f"token {token}"} if token else {"Cookie": cookie}
        return requests.get(f"http://127.0.0.1:{self.port(8888)}{path}", headers=headers, timeout=10)

    def login(self) -> requests.Response:
        """What the dashboard's page posts, from another origin."""
        url = f"http://127.0.0.1:{self.port(8888)}/login?next=/lab"
        form = {"token": self.token, "password": self.token}
        return requests.post(url, form, headers={"Origin": "http://a.example"}, allow_redirects=False, timeout=10)

    def wait_ready(self, *, jupyter: bool = True) -> None:
        _until(self._greets)
        if jupyter:
            _until(lambda: self.http("/api").status_code == 200)

    def _greets(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port(2222)), timeout=5) as connection:
            return connection.recv(64).startswith(b"SSH-2.0-")


Launch = Callable[..., Box]  # (image, *, home=None, jupyter=True)


def _private(key: Ed25519PrivateKey) -> bytes:
    form, plain = serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, form, plain)


def _public(key: Ed25519PrivateKey) -> bytes:
    form = serialization.PublicFormat.OpenSSH
    return key.public_key().public_bytes(serialization.Encoding.OpenSSH, form) + b"\n"


def _new_key(path: Path) -> Path:
    key = Ed25519PrivateKey.generate()
    path.touch(mode=0o600)
    path.write_bytes(_private(key))
    path.with_suffix(".pub").write_bytes(_public(key))
    return path


def _until(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if ready():
                return
        time.sleep(0.05)
    raise AssertionError("not ready after a minute")


@pytest.fixture(scope="module")
def client(engine_url: str) -> Iterator[docker.DockerClient]:
    with contextlib.closing(docker.DockerClient(base_url=engine_url)) as connection:
        yield connection


@pytest.fixture(scope="module")
def launch(client: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launch]:
    key = _new_key(tmp_path_factory.mktemp("ssh") / "id")
    made: list[Box] = []

    def start(image: str, *, home: str | None = None, jupyter: bool = True) -> Box:
        name = f"test-image-{uuid.uuid4().hex[:8]}"
        container = client.containers.create(
            image, name=name, user=f"{UID}:{UID}", group_add=[TEAM_GID],
            cap_drop=["ALL"], security_opt=["no-new-privileges"], healthcheck={"test": ["NONE"]},
            ports={"2222/tcp": ("127.0.0.1", None), "8888/tcp": ("127.0.0.1", None)},
            mounts=[docker.types.Mount(target, volume, no_copy=True)
                    for target, volume in (("/etc/berth", None), ("/home/alice", home or name))],
        )  # fmt: skip
        box = Box(container, key, home or name)
        made.append(box)
        box.put_settings()
        container.start()
        box.wait_ready(jupyter=jupyter)
        return box

    yield start
    for box in made:
        box.container.remove(force=True, v=True)
    for home in {box.home for box in made}:
        client.volumes.get(home).remove()


@pytest.fixture(scope="module")
def box(launch: Launch, workspace_image: str) -> Box:
    """A workspace that several tests look at and none stops."""
    return launch(workspace_image)


@pytest.fixture(scope="module")
def slim_image(engine_url: str) -> str:
    argv = [sys.executable, str(Path(__file__).parents[2] / "images" / "build.py"), "--slim", "--engine", engine_url]
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]


# Runs inside, by Jupyter's interpreter (which has a websocket client): a command line through a
# terminal of JupyterLab or through a cell of a notebook's kernel.
THROUGH_JUPYTER = """
import json, sys, urllib.request, websocket
way, command = sys.argv[1:]
token = {"Authorization": "token " + open("/etc/berth/token").read()}
def post(path, body):
    request = urllib.request.Request("http://127.0.0.1:8888" + path, json.dumps(body).encode(), token)
    return json.load(urllib.request.urlopen(request))
def connect(path):
    return websocket.create_connection("ws://127.0.0.1:8888" + path, header=token, timeout=60)
if way == "terminal":
    channel = connect("/terminals/websocket/" + post("/api/terminals", {})["name"])
    channel.send(json.dumps(["stdin", command + "; exit\\r"]))
    while json.loads(channel.recv())[0] != "disconnect": pass
else:
    channel = connect("/api/kernels/%s/channels" % post("/api/kernels", {"name": "python3"})["id"])
    code = "import subprocess; subprocess.run(%r, shell=True, check=True)" % command
    header = {"msg_id": "1", "session": "1", "username": "", "version": "5.3", "msg_type": "execute_request"}
    channel.send(json.dumps({"header": header, "parent_header": {}, "metadata": {}, "channel": "shell",
                             "content": {"code": code, "silent": False}, "buffers": []}))
    while (message := json.loads(channel.recv()))["header"]["msg_type"] != "execute_reply": pass
    assert message["content"]["status"] == "ok", message
"""


def run_through(box: Box, way: str, command: str) -> str:
    """The output of a shell command that a person gives by `way`; through a file, as a terminal echoes."""
    output = f"/home/alice/{uuid.uuid4().hex}"
    line = f"({command}) > {output} 2>&1"
    if way == "ssh":
        assert box.ssh(line).returncode == 0
    elif way == "ssh -tt":
        subprocess.run(box.ssh_argv("-tt"), input=f"{line}; exit\n", text=True, capture_output=True, timeout=60)
    else:
        box.run("/opt/berth/jupyter/bin/python", "-c", THROUGH_JUPYTER, way, line)
    return box.run("cat", output)


every_way = pytest.mark.parametrize("way", ["ssh", "ssh -tt", "terminal", "kernel"])


@every_way
def test_environment_is_alike_by_every_way_in(box: Box, way: str) -> None:
    names = ["HOME", "USER", "PATH", "PYTHONNOUSERSITE", "VIRTUAL_ENV", "LANG", "HARD"]
    program = f"import json, os; print(json.dumps([os.environ.get(n) for n in {names}] + [os.umask(0)]))"

    seen = json.loads(run_through(box, way, f"python -c {shlex.quote(program)}"))
    assert seen[2].startswith("/opt/berth/py/bin:/opt/berth/bin:") and "/usr/bin" in seen[2]
    assert seen[:2] + seen[3:] == ["/home/alice", "alice", "1", "/opt/berth/py", "C.UTF-8", HARD_VALUE, 0o002]


@every_way
def test_pip_install_lands_in_the_workspaces_own_python(box: Box, way: str) -> None:
    name = f"tiny_{way.replace(' ', '_').replace('-', '')}"
    wheel = f"{name}-1.0-py3-none-any.whl"
    box.put("/home/alice", {wheel: (_wheel(name), UID, 0o644)})
    said = run_through(box, way, f"pip install ~/{wheel} && python -c 'import {name}; print({name}.__file__)'")

    assert said.splitlines()[-1].startswith("/opt/berth/py/lib/python")


def _wheel(name: str) -> bytes:
    info = f"{name}-1.0.dist-info"
    files = {f"{name}.py": "", f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
             f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}  # fmt: skip
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with io.BytesIO() as buffer:
        with zipfile.ZipFile(buffer, "w") as wheel:
            for path, text in files.items():
                wheel.writestr(path, text)
        return buffer.getvalue()


def test_ssh_session_is_the_member_without_capabilities(box: Box) -> None:
    said = box.ssh("id; grep -E '^(Cap|NoNewPrivs)' /proc/self/status").stdout
    assert f"uid={UID}(alice) gid={UID}(alice)" in said and f"{TEAM_GID}(team)" in said
    facts = dict(line.split(":\t") for line in said.splitlines()[1:])
    assert facts.pop("NoNewPrivs") == "1"
    assert set(facts.values()) == {"0" * 16}


def test_paramiko_and_sftp_work_and_files_are_writable_by_the_team(box: Box) -> None:
    with paramiko.SSHClient() as ssh:
        ssh.set_missing_host_key_policy(paramiko.AutoAddPolicy())
        ssh.connect("127.0.0.1", box.port(2222), "alice", key_filename=str(box.key), allow_agent=False)
        _, stdout, _ = ssh.exec_command("id -u")
        assert stdout.read() == f"{UID}\n".encode()
        with ssh.open_sftp() as sftp:
            with sftp.open("/home/alice/by-sftp", "w") as file:
                file.write("x")
            assert sftp.stat("/home/alice/by-sftp").st_mode == 0o100664


def test_ssh_refuses_passwords_and_other_keys(box: Box, tmp_path: Path) -> None:
    stranger = _new_key(tmp_path / "stranger")
    by_stranger = [str(stranger) if word == str(box.key) else word for word in box.ssh_argv()]

    refused = subprocess.run([*by_stranger, "true"], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 255 and "Permission denied (publickey)." in refused.stderr


def test_jupyter_answers_by_token_or_the_cookie_of_the_dashboards_form(box: Box) -> None:
    assert box.http("/api").status_code == 200
    assert box.http("/api/status").status_code == 403
    assert box.http("/api/status", token=box.token).status_code == 200

    answer = box.login()
    assert (answer.status_code, answer.headers["Location"]) == (302, "/lab")
    assert box.http("/api/status", cookie=answer.headers["Set-Cookie"].split(";")[0]).status_code == 200


def test_token_shows_in_no_argument_environment_inspect_or_log(box: Box) -> None:
    box.http("/api/status")  # something for the log
    environments = box.run("bash", "-c", "cat /proc/[0-9]*/environ 2> /dev/null; true")
    assert "JUPYTER_RUNTIME_DIR" in environments  # Jupyter's own is among them

    shown = [box.run("ps", "-efww"), environments, json.dumps(box.container.attrs), box.container.logs().decode()]

    assert [box.token in text for text in shown] == [False] * 4
    assert "HARD" not in shown[0] + shown[2]


def test_slow_imports_stay_gone_and_the_rest_is_whole(box: Box) -> None:
    python = "/opt/berth/jupyter/bin/python"
    find = "import importlib.util as u; print([n for n in ('rfc3987_syntax', 'lark', 'jupyterlab') if u.find_spec(n)])"
    assert box.run(python, "-c", find) == "['jupyterlab']\n"
    assert box.run(python, "-m", "pip", "check") == "No broken requirements found.\n"
    assert "TensorBoard" in box.run("/opt/berth/bin/tensorboard", "--help")


def test_settings_in_the_shared_home_do_not_open_jupyter(launch: Launch, workspace_image: str) -> None:
    box = launch(workspace_image)
    no_token = json.dumps({"IdentityProvider": {"token": ""}, "ServerApp": {"token": "", "password": ""}})
    files = " ".join(f"~/.jupyter/{name}_config.json" for name in ("jupyter", "jupyter_server", "jupyter_lab"))
    run_through(box, "ssh", f"mkdir -p ~/.jupyter; echo {shlex.quote(no_token)} | tee {files}; touch ~/json.py")

    box.container.restart(timeout=10)
    box.wait_ready()
    assert box.http("/api/status").status_code == 403


def test_two_workspaces_of_one_home_share_neither_cookie_nor_runtime(
    box: Box, launch: Launch, workspace_image: str
) -> None:
    other = launch(workspace_image, home=box.home)
    name, value = box.login().headers["Set-Cookie"].split(";")[0].split("=", 1)
    # The cookie's name carries the port; give it the other's, as an attacker would.
    renamed = f"{name.replace(str(box.port(8888)), str(other.port(8888)))}={value}"

    assert other.http("/api/status", cookie=renamed).status_code == 403
    assert other.http("/api/status", token=box.token).status_code == 403
    assert box.run("find", "/home/alice", "-name", "*cookie_secret*", "-o", "-name", "jpserver-*") == ""


def test_a_service_that_dies_is_started_again_and_the_log_says_so(launch: Launch, workspace_image: str) -> None:
    box = launch(workspace_image)
    box.run("pkill", "-KILL", "-f", "^sshd: /usr/sbin/sshd -D")
    box.run("pkill", "-KILL", "-f", "jupyterlab")
    _until(lambda: all(f"berth: {name} ended with 137".encode() in box.container.logs() for name in ("ssh", "jupyter")))
    box.wait_ready()
    assert box.run("/opt/berth/healthcheck") == ""


def test_stop_is_fast_and_lets_jobs_save_and_say_so(launch: Launch, workspace_image: str) -> None:
    box = launch(workspace_image)
    run_through(box, "kernel", "true")  # leaves a kernel running
    job = "trap 'sleep 0.3; echo saved | tee ~/$0; exit' TERM; touch ~/on-$0; while :; do sleep 0.05; done"
    with ThreadPoolExecutor() as threads:
        by_ssh = threads.submit(box.ssh, f"bash -c {shlex.quote(job)} by-ssh")
        threads.submit(run_through, box, "terminal", f"bash -c {shlex.quote(job)} by-terminal")
        _until(lambda: box.ssh("ls ~/on-by-ssh ~/on-by-terminal").returncode == 0)
        began = time.monotonic()
        box.container.stop(timeout=10)
        took = time.monotonic() - began

    assert took < 2 and box.container.wait()["StatusCode"] == 0
    assert by_ssh.result().stdout == "saved\n"
    box.container.start()
    box.wait_ready()  # and the host key is the same:
    assert box.ssh("cat ~/by-*").stdout == "saved\nsaved\n"


def test_commit_holds_no_secret(client: docker.DockerClient, launch: Launch, workspace_image: str) -> None:
    box = launch(workspace_image)
    box.container.kill()  # nothing is tidied up
    committed = box.container.commit()
    secrets = [box.token, _private(box.host_key).splitlines()[2].decode(), "HARD=two"]
    grep = f"grep -rlF -e {' -e '.join(secrets)} --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr /"
    argv = ["-c", f"ls -A /etc/berth; {grep} 2> /dev/null || true"]
    try:
        assert client.containers.run(committed.id, argv, entrypoint="bash", user="0", remove=True) == b""
    finally:
        client.images.remove(committed.id)


def test_slim_image_has_ssh_and_no_jupyter(launch: Launch, slim_image: str) -> None:
    box = launch(slim_image, jupyter=False)
    assert box.ssh("test ! -e /opt/berth/jupyter && python -c 'import ipykernel'").returncode == 0
    assert b"jupyter" not in box.container.logs()
    assert box.run("/opt/berth/healthcheck") == ""


def test_image_has_labels_and_no_host_key_and_no_volume(client: docker.DockerClient, workspace_image: str) -> None:
    config = client.images.get(workspace_image).attrs["Config"]
    assert config["Labels"]["berth.image.jupyter"] == "1" and not config.get("Volumes")
    assert b"ssh_host_" not in client.containers.run(workspace_image, ["/etc/ssh"], entrypoint="ls", remove=True)


def test_run_by_hand_it_says_what_is_missing(client: docker.DockerClient, workspace_image: str) -> None:
    with pytest.raises(docker.errors.ContainerError) as refused:
        client.containers.run(workspace_image, user="0", remove=True)
    assert refused.value.exit_status == 64
