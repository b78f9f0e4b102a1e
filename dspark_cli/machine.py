"""How much memory this machine, or the container around us, can still give."""

import os
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


def available_memory() -> int | None:
    """Bytes that can be had without swapping, None where the system does not say."""
    known = [
        size for size in (_meminfo(MEMINFO), _cgroup(CGROUP), _physical()) if size is not None
    ]
    return min(known, default=None)


def _meminfo(path: Path) -> int | None:
    """Linux: free memory and what the page cache would give back."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _cgroup(folder: Path) -> int | None:
    """A container's limit less what is used of it, file cache not counted (cgroup v2)."""
    try:
        limit = int((folder / "memory.max").read_text())
        used = int((folder / "memory.current").read_text())
        fields = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return limit - used + int(fields.get("inactive_file", 0))
    except (OSError, ValueError):  # no such file, or the limit is "max"
        return None


def _physical() -> int | None:
    """All memory there is, an upper bound where nothing better is known."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
