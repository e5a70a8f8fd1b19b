"""Pretend GPUs for demos and tests: programs that behave like NVIDIA's, over one state file.

    state.py, presets.py   what the state file holds, and how it is changed
    nvidia_smi.py          nvidia-smi: one file, standard library only; runs on the host and inside containers
    toolkit.py             nvidia-container-runtime-hook: one file, standard library only; Docker runs it as root
    install.py             puts the two where the agent, a container or an engine finds them

**How to tell a simulated card:** its UUID is `GPU-51e1a7ed-…` (a slice `MIG-51e1a7ed-…`, a Jetson `51e1a7ed-…`).
Names, units and tags are those of real drivers, so that nothing else has to be told apart.

Whoever shows a card with that mark says "simulated". Only `berth`, the agent and tests import this package.
"""
