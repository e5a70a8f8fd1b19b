"""What the real one prints, as text: fields of --query-gpu, tags of -q -x, sentences of its failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

BAD_ARGUMENT, LOST = 2, 15      # exit codes of the real one

# `name|alias:unit=value`; _ is a blank; @ takes a fact of the card; no value is [N/A]. In the order of drivers 580.
_DEPRECATED = "[Requested_functionality_has_been_deprecated]"
_REASONS = ("gpu_idle=@idle", *(f"{name}=Not_Active" for name in (
    "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown",
    "sw_thermal_slowdown", "sync_boost")))
_XML_REASONS = (*_REASONS[:-2], _REASONS[-1], _REASONS[-2])      # the one thing that both have in another order
_ECC_PLACES = ("device_memory", "dram", "register_file", "l1_cache", "l2_cache", "texture_memory", "cbu", "sram",
               "total")


def _ecc_fields() -> Iterator[str]:
    for kind in ("corrected", "uncorrected"):
        for span in ("volatile", "aggregate"):
            for place in _ECC_PLACES:
                counted = {"sram": "@ecc_zero", "device_memory": f"@{kind}", "dram": f"@{kind}", "total": f"@{kind}"}
                yield f"ecc.errors.{kind}.{span}.{place}={counted.get(place, '[N/A]')}"


FIELDS = f"""
timestamp=@timestamp driver_version=@driver count=@count name|gpu_name=@name serial|gpu_serial=@serial
uuid|gpu_uuid=@uuid pci.bus_id|gpu_bus_id=@bus_id pci.domain=@domain pci.bus=@bus pci.device=@device
pci.baseClass=0x3 pci.subClass=0x2 pci.device_id=@device_id pci.sub_device_id=0x147F10DE
pcie.link.gen.current=4 pcie.link.gen.gpucurrent=4 pcie.link.gen.max=4 pcie.link.gen.gpumax=4 pcie.link.gen.hostmax
pcie.link.width.current=16 pcie.link.width.max=16 index=@index display_mode={_DEPRECATED} display_attached=No
display_active=Disabled persistence_mode=Enabled addressing_mode=None accounting.mode=Disabled
accounting.buffer_size=4000 driver_model.current driver_model.pending vbios_version=92.00.36.00.02
inforom.img|inforom.image=G506.0212.00.01 inforom.oem=2.0 inforom.ecc=6.16 inforom.pwr|inforom.power
inforom.checksum_validation=valid reset_status.reset_required=@reset reset_status.drain_and_reset_recommended=No
gpu_recovery_action=@recovery gom.current|gpu_operation_mode.current gom.pending|gpu_operation_mode.pending
fan.speed:%=@fan pstate=@pstate
clocks_event_reasons.supported|clocks_throttle_reasons.supported=0x00000000000001FF
clocks_event_reasons.active|clocks_throttle_reasons.active=@reasons
{" ".join("clocks_event_reasons.{0}|clocks_throttle_reasons.{0}={1}".format(*r.split("=")) for r in _REASONS)}
memory.total:MiB=@memory_mib memory.reserved:MiB=@reserved_mib memory.used:MiB=@used_mib memory.free:MiB=@free_mib
compute_mode=Default compute_cap=@compute_cap utilization.gpu:%=@utilization utilization.memory:%=@memory_utilization
utilization.encoder:%=@zero utilization.decoder:%=@zero utilization.jpeg:%=@zero utilization.ofa:%=@zero
encoder.stats.sessionCount=0 encoder.stats.averageFps=0 encoder.stats.averageLatency=0
ecc.mode.current=@ecc ecc.mode.pending=@ecc {" ".join(_ecc_fields())}
retired_pages.single_bit_ecc.count|retired_pages.sbe retired_pages.double_bit.count|retired_pages.dbe
retired_pages.pending remapped_rows.correctable=@ecc_zero remapped_rows.uncorrectable=@ecc_zero
remapped_rows.pending=@ecc_no remapped_rows.failure=@ecc_no
temperature.gpu=@temperature temperature.gpu.tlimit temperature.memory=N/A power.management={_DEPRECATED}
power.draw:W=@power power.draw.average:W=@power power.draw.instant:W=@power power.limit:W=@power_limit
enforced.power.limit:W=@power_limit power.default_limit:W=@power_limit power.min_limit:W power.max_limit:W=@power_limit
clocks.current.graphics|clocks.gr:MHz=@clock clocks.current.sm|clocks.sm:MHz=@clock
clocks.current.memory|clocks.mem:MHz=@memory_clock clocks.current.video|clocks.video:MHz=@clock
clocks.max.graphics|clocks.max.gr:MHz=@max_clock clocks.max.sm:MHz=@max_clock clocks.max.memory:MHz=@memory_clock
mig.mode.current=@mig mig.mode.pending=@mig gsp.mode.current=Enabled gsp.mode.default=Enabled c2c.mode=Disabled
fabric.state=N/A fabric.status=N/A hostname
"""
APP_FIELDS = """timestamp=@timestamp gpu_name=@name gpu_bus_id=@bus_id gpu_serial=@serial gpu_uuid=@uuid pid=@pid
process_name|name=@process used_gpu_memory|used_memory:MiB=@process_mib"""

# `path: tag:unit=value …`, in the order of nvsmi_device_v13.dtd; `*` is filled by a function below.
XML = f"""
: product_name=@name product_brand=@brand product_architecture=@architecture display_mode={_DEPRECATED}
: display_attached=No display_active=Disabled persistence_mode=Enabled addressing_mode=None
mig_mode: current_mig=@mig pending_mig=@mig
*mig_devices
: accounting_mode=Disabled accounting_mode_buffer_size=4000
driver_model: current_dm pending_dm
: serial=@serial uuid=@uuid pdi=0x0000000000000000 minor_number=@index vbios_version=92.00.36.00.02 multigpu_board=No
: board_id=@board board_part_number=692-2G506-0212-002 gpu_part_number=20B2-895-A1 gpu_fru_part_number
inforom_version: img_version=G506.0212.00.01 oem_object=2.0 ecc_object=6.16 pwr_object
gpu_operation_mode: current_gom pending_gom
: c2c_mode=Disabled
gpu_virtualization_mode: virtualization_mode=None host_vgpu_mode vgpu_heterogeneous_mode
gpu_reset_status: reset_required=@reset drain_and_reset_recommended=No
: gpu_recovery_action=@recovery gsp_firmware_version=@driver
ibmnpu: relaxed_ordering_mode
pci: pci_bus=@bus_digits pci_device=@device_digits pci_domain=@domain_digits pci_base_class=3 pci_sub_class=2
pci: pci_device_id=@device_id_digits pci_bus_id=@bus_id pci_sub_system_id=147F10DE
pci/pci_gpu_link_info/pcie_gen: max_link_gen=4 current_link_gen=4 device_current_link_gen=4 max_device_link_gen=4
pci/pci_gpu_link_info/pcie_gen: max_host_link_gen
pci/pci_gpu_link_info/link_widths: max_link_width=16x current_link_width=16x
pci/pci_bridge_chip: bridge_chip_type bridge_chip_fw
pci: replay_counter=0 replay_rollover_counter=0 tx_util:KB/s=0 rx_util:KB/s=0 atomic_caps_outbound atomic_caps_inbound
: fan_speed:%=@fan performance_state=@pstate
clocks_event_reasons: {" ".join("clocks_event_reason_" + reason for reason in _XML_REASONS)}
: sparse_operation_mode=Disabled
fb_memory_usage: total:MiB=@memory_mib reserved:MiB=@reserved_mib used:MiB=@used_mib free:MiB=@free_mib
bar1_memory_usage: total:MiB=131072 used:MiB=1 free:MiB=131071
cc_protected_memory_usage: total:MiB=0 used:MiB=0 free:MiB=0
: compute_mode=Default
utilization: gpu_util:%=@utilization memory_util:%=@memory_utilization encoder_util:%=@zero decoder_util:%=@zero
utilization: jpeg_util:%=@zero ofa_util:%=@zero
encoder_stats: session_count=0 average_fps=0 average_latency=0
fbc_stats: session_count=0 average_fps=0 average_latency=0
ecc_mode: current_ecc=@ecc pending_ecc=@ecc
ecc_errors/volatile: sram_correctable=@ecc_zero sram_uncorrectable_parity=@ecc_zero
ecc_errors/volatile: sram_uncorrectable_secded=@ecc_zero dram_correctable=@corrected dram_uncorrectable=@uncorrected
ecc_errors/aggregate: sram_correctable=@ecc_zero sram_uncorrectable_parity=@ecc_zero
ecc_errors/aggregate: sram_uncorrectable_secded=@ecc_zero dram_correctable=@corrected dram_uncorrectable=@uncorrected
ecc_errors/aggregate: sram_threshold_exceeded=@ecc_no
retired_pages/multiple_single_bit_retirement: retired_count retired_pagelist
retired_pages/double_bit_retirement: retired_count retired_pagelist
retired_pages: pending_blacklist pending_retirement
remapped_rows: remapped_row_corr=@ecc_zero remapped_row_unc=@ecc_zero remapped_row_pending=@ecc_no
remapped_rows: remapped_row_failure=@ecc_no
temperature: gpu_temp:C=@temperature gpu_temp_tlimit gpu_target_temperature memory_temp
supported_gpu_target_temp: gpu_target_temp_min gpu_target_temp_max
gpu_power_readings: power_state=@pstate average_power_draw:W=@power instant_power_draw:W=@power
gpu_power_readings: current_power_limit:W=@power_limit requested_power_limit:W=@power_limit
gpu_power_readings: default_power_limit:W=@power_limit min_power_limit max_power_limit:W=@power_limit
gpu_memory_power_readings: average_power_draw instant_power_draw
module_power_readings: power_state=@pstate average_power_draw instant_power_draw current_power_limit
module_power_readings: requested_power_limit default_power_limit min_power_limit max_power_limit
clocks: graphics_clock:MHz=@clock sm_clock:MHz=@clock mem_clock:MHz=@memory_clock video_clock:MHz=@clock
max_clocks: graphics_clock:MHz=@max_clock sm_clock:MHz=@max_clock mem_clock:MHz=@memory_clock
max_clocks: video_clock:MHz=@max_clock
fabric: state status cliqueId clusterUuid
supported_clocks/supported_mem_clock: value:MHz=@memory_clock supported_graphics_clock:MHz=@max_clock
*processes
accounted_processes:
capabilities: egm=disabled
"""
CONFUSED = "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n"
FAILURES = {
    "no-driver": (9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the "
                     "latest NVIDIA driver is installed and running.\n\n"),
    "no-library": (12, "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the "
                       "NVIDIA Display Driver is properly installed and present in your system.\nPlease also try "
                       "adding directory that contains libnvidia-ml.so to your system PATH.\n"),
    "mismatch": (18, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: {library}\n"),
    "no-devices": (6, "No devices were found\n"),
    "nvml-unknown": (255, "Failed to initialize NVML: Unknown Error\n"),
    "permissions": (255, "Failed to initialize NVML: Insufficient Permissions\n"),
}
