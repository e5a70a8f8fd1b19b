#!/usr/bin/env python3
"""Make the workspace image, once: its tag is a hash of what goes in.

    python images/build.py [--base REFERENCE] [--slim] [--engine URL]
    python images/build.py --list       bases of the default images, one a line

The last line printed is the image's reference. Without --base the image builds on the default in
workspace/Dockerfile; where no registry answers, on a Debian base made here by debootstrap (as root).
"""

from __future__ import annotations

import argparse
import os
import sys

from webapp.cli.workspace_image import ensure
from webapp.errors import AppError
from webapp.services.images import SEEDS


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base", help="build on this image instead of the default")
    parser.add_argument("--slim", action="store_true", help="without JupyterLab")
    parser.add_argument("--engine", default=os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock",
                        help="address of the Docker Engine (default: DOCKER_HOST)")
    parser.add_argument("--list", action="store_true", help="print the bases of the default images")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(base for _, base, _ in SEEDS))
        return 0
    try:
        made = ensure(arguments.engine, arguments.base, jupyter=not arguments.slim, progress=_say)
    except AppError as error:
        print(error, file=sys.stderr)
        return 1
    print(made.reference)
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
