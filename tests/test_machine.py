"""The memory that can be had: the least of what the machine and the container say."""

import pytest

from dspark_cli import machine
from dspark_cli.machine import _cgroup, _meminfo, _physical, available_memory

MIB = 1024**2

MEMINFO = """\
MemTotal:       16384000 kB
MemFree:          204800 kB
MemAvailable:    8192000 kB
Buffers:           10240 kB
"""


@pytest.fixture
def meminfo(tmp_path):
    """Write a /proc/meminfo and return its path."""

    def write(text: str = MEMINFO):
        path = tmp_path / "meminfo"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def cgroup(tmp_path):
    """Write a container's folder of limits and return its path."""

    def write(limit="1073741824\n", used="314572800\n", stat="anon 1\ninactive_file 104857600\n"):
        folder = tmp_path / "cgroup"
        folder.mkdir()
        for name, text in {
            "memory.max": limit,
            "memory.current": used,
            "memory.stat": stat,
        }.items():
            if text is not None:
                (folder / name).write_text(text)
        return folder

    return write


def test_available_memory_is_what_linux_calls_so(meminfo):
    """Free memory and what the page cache would give back, in bytes."""
    assert _meminfo(meminfo()) == 8192000 * 1024


@pytest.mark.parametrize("text", ["", "MemTotal: 16384000 kB\nMemFree: 204800 kB\n"])
def test_a_kernel_that_does_not_say_is_believed_to_know_nothing(meminfo, text):
    """Before Linux 3.14 there was no such line."""
    assert _meminfo(meminfo(text)) is None


def test_a_system_without_meminfo_says_nothing(tmp_path):
    """As on macOS and Windows."""
    assert _meminfo(tmp_path / "meminfo") is None


def test_a_container_can_still_use_its_limit_less_what_is_used(cgroup):
    """1024 MiB less 300, of which 100 are file cache that would be given back."""
    assert _cgroup(cgroup()) == (1024 - 300 + 100) * MIB


def test_a_container_without_file_cache_has_the_rest(cgroup):
    """A line that is missing counts nothing."""
    assert _cgroup(cgroup(stat="anon 5\n")) == (1024 - 300) * MIB


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"limit": "max\n"}, id="no limit"),
        pytest.param({"limit": None}, id="no limit file, as at the root"),
        pytest.param({"used": None}, id="no usage"),
        pytest.param({"stat": None}, id="no statistics"),
        pytest.param({"limit": ""}, id="an empty file"),
        pytest.param({"stat": "one two three\n"}, id="statistics of another kind"),
    ],
)
def test_a_container_without_a_limit_says_nothing(cgroup, files):
    """Nor does one whose files cannot be understood."""
    assert _cgroup(cgroup(**files)) is None


def test_a_system_without_containers_says_nothing(tmp_path):
    """No such folder."""
    assert _cgroup(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("of_machine", "limit", "least"),
    [
        (8192000, "1073741824", (1024 - 300 + 100) * MIB),
        (102400, "1073741824", 100 * MIB),
        (8192000, "max", 8192000 * 1024),
    ],
    ids=["container", "machine", "no limit"],
)
def test_the_least_counts(monkeypatch, meminfo, cgroup, of_machine, limit, least):
    """A container's limit may lie above or below what the machine has left."""
    monkeypatch.setattr(machine, "MEMINFO", meminfo(f"MemAvailable: {of_machine} kB\n"))
    monkeypatch.setattr(machine, "CGROUP", cgroup(limit=limit))
    monkeypatch.setattr(machine, "_physical", lambda: 64 * 1024 * MIB)

    assert available_memory() == least


def test_all_there_is_stands_in_where_nothing_better_is_known(monkeypatch, tmp_path):
    """An upper bound is better than none."""
    monkeypatch.setattr(machine, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(machine, "CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(machine, "_physical", lambda: 5 * MIB)

    assert available_memory() == 5 * MIB


def test_a_system_that_says_nothing_at_all_is_not_guessed_at(monkeypatch, tmp_path):
    """Then no plan is refused for want of memory."""
    monkeypatch.setattr(machine, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(machine, "CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(machine, "_physical", lambda: None)

    assert available_memory() is None


def test_this_machine_has_memory():
    """Whatever it runs: a positive number of bytes, or nothing."""
    assert _physical() is None or _physical() > 0
    assert available_memory() is None or available_memory() > 0
