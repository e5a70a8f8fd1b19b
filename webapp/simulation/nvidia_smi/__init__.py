"""A stand-in for nvidia-smi: prints what a real one would, of cards that a state file describes.

This package needs Python 3.7 or later with its standard library, nothing of Berth. `install.py` makes one file of it,
which is mounted or copied into containers as /usr/bin/nvidia-smi. In an image without python3 it cannot run: `env` then
says that there is no python3, exit 127.

    nvidia-smi [--simulated-state FILE] -L | -q -x | topo -m | --help-query-gpu | --help-query-compute-apps
    nvidia-smi --query-gpu=FIELD,… | --query-compute-apps=FIELD,… --format=csv[,noheader][,nounits] [--loop-ms=N]
    nvidia-smi                        the table for people; --id=NUMBER-OR-UUID with each of them

Where the state is: --simulated-state, else $SIMULATED_GPUS_STATE, else CONTAINER_STATE. With the first all cards are
shown, as on a host. Otherwise those of NVIDIA_VISIBLE_DEVICES: of the container's first process, because an SSH session
or `docker exec` has another environment and its owner may change it. Not set, void or none: no card.
"""
