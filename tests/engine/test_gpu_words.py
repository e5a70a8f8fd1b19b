"""GPUs in the words of engines 20.10 to 29: what a container asks for, which cards an engine knows, how it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from webapp.engines.docker.commit import changes
from webapp.engines.docker.gpus import asked_for, cdi_gpus
from webapp.engines.docker.observed import inspected_container
from webapp.engines.docker.translation import refusal
from webapp.errors import DiskFull, EngineRejected, GpusRefused, ImageNotFound, PortTaken

FIRST = "GPU-51e1a7ed-0000-0000-0000-000000000001"
SECOND = "GPU-51e1a7ed-0000-0000-0000-000000000002"
SLICE = "MIG-51e1a7ed-0000-0000-0000-000000000003"


def request(**fields: Any) -> dict[str, Any]:
    """A device request as `docker run --gpus` makes it."""
    return {"Driver": "", "Count": 0, "DeviceIDs": None, "Capabilities": [["gpu"]], "Options": {}, **fields}


def inspected(*, env: list[str] | None = None, **host: Any) -> dict[str, Any]:
    return {"Id": "ab", "Config": {"Env": env}, "HostConfig": {"DeviceRequests": None, "Devices": None, **host}}


@pytest.mark.parametrize(("found", "asked"), [
    # Berth's own, and docker run --gpus '"device=…"': as 20.10 shows them
    (inspected(DeviceRequests=[request(Driver="nvidia", DeviceIDs=[SECOND, FIRST])]), (FIRST, SECOND)),
    (inspected(DeviceRequests=[request(DeviceIDs=[SLICE])]), (SLICE,)),
    (inspected(DeviceRequests=[request(DeviceIDs=["1", FIRST])]), ("1", FIRST)),
    (inspected(DeviceRequests=[request(Count=-1)]), ("all",)),
    (inspected(DeviceRequests=[request(Count=2)]), ("0", "1")),
    (inspected(DeviceRequests=[request(Capabilities=[["compute", "nvidia"]], Count=1)]), ("0",)),
    (inspected(DeviceRequests=[request(DeviceIDs=[FIRST]), request(DeviceIDs=[SECOND])]), (FIRST, SECOND)),
    # 28 and later: CDI, by request and by docker run --device nvidia.com/gpu=…
    (inspected(env=["NVIDIA_VISIBLE_DEVICES=void"],
               DeviceRequests=[request(Driver="cdi", DeviceIDs=[f"nvidia.com/gpu={FIRST}"], Capabilities=[])]),
     (FIRST,)),
    (inspected(DeviceRequests=[request(Driver="cdi", DeviceIDs=["nvidia.com/gpu=all"], Capabilities=None)]), ("all",)),
    (inspected(DeviceRequests=[request(Driver="cdi", DeviceIDs=["vendor.example/net=eth1"])]), ()),
    # device files by hand
    (inspected(Devices=[{"PathOnHost": "/dev/nvidia1"}, {"PathOnHost": "/dev/nvidiactl"}, {"PathOnHost": "/dev/fuse"},
                        {"PathOnHost": None}]), ("1",)),
    # the nvidia runtime reads the environment, where there is no request
    (inspected(env=["NVIDIA_VISIBLE_DEVICES=all"], Runtime="nvidia"), ("all",)),
    (inspected(env=["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=1, 0"], Runtime="nvidia"), ("0", "1")),
    (inspected(env=["NVIDIA_VISIBLE_DEVICES=void"], Runtime="nvidia"), ()),
    (inspected(env=["NVIDIA_VISIBLE_DEVICES=all"], Runtime="nvidia", DeviceRequests=[request(DeviceIDs=[FIRST])]),
     (FIRST,)),
    # another runtime does not
    (inspected(env=["NVIDIA_VISIBLE_DEVICES=all"], Runtime="runc"), ()),
    # simulated cards without a toolkit
    (inspected(env=["NVIDIA_VISIBLE_DEVICES=void", f"BERTH_SIMULATED_GPUS={SECOND},{FIRST}"], Runtime="runc"),
     (FIRST, SECOND)),
    (inspected(env=["BERTH_SIMULATED_GPUS="], Runtime="runc"), ()),
    # somebody else's devices, nothing at all, and holes
    (inspected(DeviceRequests=[request(Driver="amd", DeviceIDs=["0"], Capabilities=[["gpu"]])]), ()),
    (inspected(DeviceRequests=[request(Capabilities=None, Count=1)]), ()),
    (inspected(DeviceRequests=[{}]), ()),
    (inspected(), ()),
    ({"Id": "ab", "Config": None, "HostConfig": None}, ()),
    ({}, ()),
])
def test_cards_that_a_container_asks_for(found: Mapping[str, Any], asked: tuple[str, ...]) -> None:
    assert asked_for(found) == asked


def test_inspect_tells_them() -> None:
    assert inspected_container(inspected(DeviceRequests=[request(DeviceIDs=[FIRST])])).gpus == (FIRST,)


@pytest.mark.parametrize(("info", "known"), [
    ({"ServerVersion": "20.10.24"}, []),
    ({"ServerVersion": "28.5.1", "DiscoveredDevices": None}, []),
    ({"ServerVersion": "28.5.1", "DiscoveredDevices": []}, []),
    ({"DiscoveredDevices": [
        {"Source": "cdi", "ID": "nvidia.com/gpu=0"},
        {"Source": "cdi", "ID": f"nvidia.com/gpu={FIRST}"},
        {"Source": "cdi", "ID": f"nvidia.com/gpu={SLICE}"},
        {"Source": "cdi", "ID": "nvidia.com/gpu=all"},
        {"Source": "cdi", "ID": f"vendor.example/gpu={SECOND}"},
        {"Source": "cdi"}, {"Source": "cdi", "ID": None}, None, "nvidia.com/gpu=1"]}, ["0", FIRST, SLICE, "all"]),
])
def test_cards_that_an_engine_knows_by_cdi(info: Mapping[str, Any], known: list[str]) -> None:
    assert cdi_gpus(info) == set(known)


# Sentences as engines and toolkits wrote them.
HOOK = ("failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: "
        "error during container init: error running hook #0: error running hook: exit status 1, stdout: , stderr: ")


@pytest.mark.parametrize("sentence", [
    f"{HOOK}Auto-detected mode as 'legacy'\nnvidia-container-cli: device error: {FIRST}: unknown device: unknown",
    f"{HOOK}nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown",
    f"{HOOK}nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown",
    f"{HOOK}nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update your driver",
    'could not select device driver "nvidia" with capabilities: [[gpu compute utility]]',
    'could not select device driver "" with capabilities: [[gpu]]',
    'could not select device driver "cdi" with capabilities: []',
    f"failed to inject CDI devices: unresolvable CDI devices nvidia.com/gpu={FIRST}",
    f"CDI device injection failed: unresolvable CDI devices nvidia.com/gpu={FIRST}",
    "error gathering device information while adding custom device: lstat /dev/nvidia-uvm-tools: no such file",
    'failed to create shim task: OCI runtime create failed: unable to retrieve OCI runtime error: exec: '
    '"nvidia-container-runtime": executable file not found in $PATH',
])
def test_no_to_cards_is_told_apart(sentence: str) -> None:
    error = refusal(sentence, host="gpu1", status=500)

    assert type(error) is GpusRefused
    assert error.facts["host"] == "gpu1" and error.facts["detail"][:40] in " ".join(sentence.split())


@pytest.mark.parametrize(("sentence", "kind"), [
    ("driver failed programming external connectivity on endpoint berth-a-w-1: "
     "Bind for 127.0.0.1:2201 failed: port is already allocated", PortTaken),
    ("write /var/lib/docker/overlay2/ab/diff/usr/lib/libnvidia-ml.so.1: no space left on device", DiskFull),
    ("No such image: nvidia/cuda:12.8.0-base", ImageNotFound),
    ('OCI runtime create failed: exec: "nvidia-smi": executable file not found in $PATH: unknown', EngineRejected),
    ("error gathering device information while adding custom device \"/dev/fuse\": no such file", EngineRejected),
])
def test_other_refusals_stay_what_they_are(sentence: str, kind: type) -> None:
    assert type(refusal(sentence, host="gpu1", status=404 if kind is ImageNotFound else 500)) is kind


# -- what a commit empties


def test_commit_empties_all_that_told_about_cards() -> None:
    container = {"Config": {
        "Labels": {"berth.gpus": FIRST, "berth.image.contract": "1"},
        "Env": [f"NVIDIA_VISIBLE_DEVICES={FIRST}", "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
                "CUDA_DEVICE_ORDER=PCI_BUS_ID", f"BERTH_SIMULATED_GPUS={FIRST}", "PATH=/bin"]}}

    assert list(changes(container, {"Config": {"Env": ["PATH=/bin"]}})) == [
        'LABEL berth.gpus=""', 'ENV BERTH_SIMULATED_GPUS=""', 'ENV CUDA_DEVICE_ORDER=""',
        'ENV NVIDIA_DRIVER_CAPABILITIES=""', 'ENV NVIDIA_VISIBLE_DEVICES=""']


def test_second_commit_empties_them_again_and_leaves_the_images_own() -> None:
    """Its image has them already, empty, of the first. CUDA_VISIBLE_DEVICES emptied would hide every card."""
    image = {"Config": {"Env": ["BERTH_SIMULATED_GPUS=", "CUDA_DEVICE_ORDER=", "NVIDIA_VISIBLE_DEVICES=",
                                "CUDA_VISIBLE_DEVICES=0"]}}
    container = {"Config": {"Env": [f"BERTH_SIMULATED_GPUS={FIRST}", "CUDA_DEVICE_ORDER=PCI_BUS_ID",
                                    "NVIDIA_VISIBLE_DEVICES=void", "CUDA_VISIBLE_DEVICES=0"]}}

    assert list(changes(container, image)) == [
        'ENV BERTH_SIMULATED_GPUS=""', 'ENV CUDA_DEVICE_ORDER=""', 'ENV NVIDIA_VISIBLE_DEVICES=""']
