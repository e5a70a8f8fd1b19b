#!/usr/bin/env python3
"""A modern Docker Engine for tests: that of a later Debian, inside a root file system which debootstrap made.

    scripts/modern_engine.py [--suite SUITE] run COMMAND …      COMMAND, with such an engine as BERTH_TEST_ENGINE
    scripts/modern_engine.py [--suite SUITE] dockerd            prints a program: test_engine.py's BERTH_TEST_DOCKERD
    scripts/modern_engine.py clean                              deletes roots, images and all

`run` has a network of its own, for the engine and COMMAND together: no other engine's firewall rules are touched, and
there is no way out of it. What was mounted ends with the processes. 77 = this machine cannot; why is said.
Standard library only.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import test_engine

FOLDER = Path(os.environ.get("BERTH_TEST_MODERN", "/var/tmp/berth-test-modern"))  # noqa: S108
SUITE = "trixie"            # does not change daily; `testing` has a newer engine
PACKAGES = ("docker.io", "iptables", "python3-minimal")     # Python: for the toolkit's stand-in, which dockerd runs
CANNOT = 77                 # as automake's tests say it
REPOSITORY = Path(__file__).resolve().parent.parent

# $1 = the root, $2 = folder of the engine. By chroot every `docker exec` would run in the machine's own root (tried).
# What the engine and the tests hand each other has the same path on both sides.
_DOCKERD = """set -eu
root=$1 scratch=$2
shift 2
mount --bind "$root" "$root"
for folder in /proc /sys /dev; do mount --rbind "$folder" "$root$folder"; done
mount -t tmpfs -o mode=755 tmpfs "$root/run"
for folder in {shared} "$scratch"; do
    mkdir -p "$root$folder"
    mount --rbind "$folder" "$root$folder"
done
if [ -d "$scratch/cdi" ]; then mount --bind "$scratch/cdi" "$root/etc/cdi"; fi
mkdir "$root/run/old"
cd "$root"
pivot_root . run/old
umount --lazy /run/old
exec dockerd "$@"
"""

# A /sys that shows this network's bridges, with the cgroups of the old one; and named networks that nobody else sees as
# mere files, who might clear them away.
_NETWORK = """set -eu
old=$(mktemp -d)
ip link set lo up
mount --rbind /sys "$old"
mount -t sysfs sysfs /sys
mount --rbind "$old/fs/cgroup" /sys/fs/cgroup
umount --lazy "$old"
rmdir "$old"
mkdir -p /run/netns
mount -t tmpfs -o mode=755 tmpfs /run/netns
exec "$@"
"""


class Cannot(RuntimeError):
    """This machine cannot run a modern engine."""


def dockerd(suite: str) -> Path:
    """A program that is that suite's dockerd; it takes `--config-file SCRATCH/daemon.json` first.

    Raises: Cannot.
    """
    _check_machine()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with _locked(f"root-{suite}"):
        root = _root(suite)
        program = FOLDER / f"dockerd-{suite}"
        shared = shlex.join(str(folder) for folder in (Path(tempfile.gettempdir()), REPOSITORY))
        words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _DOCKERD.format(shared=shared), "sh"]
        program.write_text(f'#!/bin/sh\nexec {shlex.join([*words, str(root)])} "${{2%/*}}" "$@"\n')
        program.chmod(0o755)
    return program


def run(suite: str, command: Sequence[str]) -> NoReturn:
    """In new namespaces, in the place of this process. The engine ends with the command, whose exit code it keeps.

    Raises: Cannot.
    """
    program = dockerd(suite)
    own = ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", _NETWORK, "sh"]
    inside = [sys.executable, __file__, "--suite", suite, "inside", *command]
    os.execvpe(own[0], [*own, *inside], {**os.environ, "BERTH_TEST_DOCKERD": str(program)})  # noqa: S606


def _inside(suite: str, command: Sequence[str]) -> int:
    """`run`, with the network that is its own."""
    scratch = FOLDER / suite
    _leave_in_order()
    with _locked(suite):
        test_engine.stop(scratch)       # what a killed run left is in a network that is no more
        (scratch / "cdi").mkdir(parents=True, exist_ok=True)
        url = test_engine.start(scratch).url
        try:
            more = {"BERTH_TEST_MACHINE_ENGINE": os.environ.get("BERTH_TEST_ENGINE", ""),
                    "BERTH_TEST_ENGINE": url, "DOCKER_HOST": url}
            return subprocess.call(command, env={**os.environ, **more})
        finally:
            test_engine.stop(scratch)


def clean() -> None:
    """Every engine's scratch folder and every root."""
    for suite in FOLDER.glob("*/daemon.json"):
        test_engine.clean(suite.parent)
    shutil.rmtree(FOLDER, ignore_errors=True)


# -- the root file system


def _check_machine() -> None:
    if os.geteuid() != 0:
        raise Cannot("a modern engine needs root")
    for program in ("debootstrap", "unshare", "pivot_root", "ip"):
        if shutil.which(program) is None:
            raise Cannot(f"a modern engine needs {program}, which is not installed")
    tried = subprocess.run(["unshare", "--net", "--mount", "--propagation", "private", "true"],
                           capture_output=True, text=True)
    if tried.returncode:
        raise Cannot(f"a modern engine needs namespaces of its own: {tried.stderr.strip()}")


def _root(suite: str) -> Path:
    """Made once for these packages; one with others is deleted."""
    root = FOLDER / f"root-{suite}-{hashlib.sha256(repr(PACKAGES).encode()).hexdigest()[:12]}"
    if root.exists():
        return root
    for stale in FOLDER.glob(f"*root-{suite}-*"):
        if stale.is_dir():
            shutil.rmtree(stale)
    half = root.with_name(f"half-{root.name}")      # until it is whole
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", suite, str(half)]
    print(f"debootstrap {suite} with {', '.join(PACKAGES)} (a minute)", file=sys.stderr, flush=True)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise Cannot("\n".join(("debootstrap failed:", *(done.stdout + done.stderr).splitlines()[-5:])))
    (half / "etc/cdi").mkdir()
    for archive in (half / "var/cache/apt/archives").glob("*.deb"):
        archive.unlink()
    return half.rename(root)


# -- processes


@contextmanager
def _locked(name: str) -> Iterator[None]:
    with (FOLDER / f"{name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _leave_in_order() -> None:
    """Told to end, this process ends the engine first. Ctrl-C is the command's, which gets it too, and ends by it."""
    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)
    signal.signal(signal.SIGINT, lambda number, frame: None)    # SIG_IGN would be inherited


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("verb", choices=["run", "dockerd", "clean", "inside"])
    parser.add_argument("--suite", default=SUITE, help=f"of Debian, {SUITE} by default")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    try:
        if arguments.verb == "run":
            run(arguments.suite, arguments.command)
        if arguments.verb == "inside":
            return _inside(arguments.suite, arguments.command)
        if arguments.verb == "dockerd":
            print(dockerd(arguments.suite))
        else:
            clean()
    except Cannot as error:
        print(error, file=sys.stderr)
        return CANNOT
    except test_engine.EngineDidNotStart as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
