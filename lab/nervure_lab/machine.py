"""The machine that a result comes from, as far as the kernel exposes it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

from nervure_lab.toolchain import REPOSITORY_DIRECTORY


def describe_machine() -> dict[str, Any]:
    """CPU, kernel, governor, memory; "not exposed" where a virtual machine hides it."""
    cpu_lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next(
        (line.partition(":")[2].strip() for line in cpu_lines if line.startswith("model name")), "unknown"
    )
    governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "virtual_machine": any(" hypervisor" in line for line in cpu_lines if line.startswith("flags")),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "governor": governor.read_text().strip() if governor.exists() else "not exposed",
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "shared_memory_bytes": shutil.disk_usage("/dev/shm").total,
        "python": platform.python_version(),
    }


def load_average() -> float:
    """Of the last minute: others on the machine show here."""
    return os.getloadavg()[0]


def source_version() -> str:
    """The commit that was measured, marked if files were changed since."""
    command = ["git", "-C", str(REPOSITORY_DIRECTORY), "describe", "--always", "--dirty", "--exclude", "*"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    return finished.stdout.strip() or "unknown"
