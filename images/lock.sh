#!/bin/sh
# Pin what the image installs from PyPI, for every Python from 3.10 on: images/lock.sh [--upgrade]
# The kernel shares its versions with JupyterLab.
set -eu
cd "$(dirname "$0")/workspace"
lock() {
    uv pip compile --quiet --universal --python-version 3.10 --generate-hashes \
        --no-emit-index-url --no-emit-find-links --custom-compile-command images/lock.sh "$@"
}
lock "$@" --output-file jupyter.lock jupyter.in
lock "$@" --output-file kernel.lock --constraint jupyter.lock kernel.in
