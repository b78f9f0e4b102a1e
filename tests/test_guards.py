"""What nothing could foresee: an abort inside llama.cpp is one sentence and exit code 5."""

import os
import shlex
import subprocess
import sys
import textwrap

import pytest
from pairs import write_rigged_target

from dspark_cli.engine.model import repacking_is_safe


def child(program: str) -> subprocess.CompletedProcess[str]:
    """Run a few lines in a process of their own."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ,
    )


def test_a_failed_assertion_of_ggml_is_one_sentence(tmp_path):
    """Reading a tap that was never turned on fails a GGML_ASSERT: no core dump, no backtrace."""
    target = write_rigged_target(tmp_path / "t.gguf", next_token=lambda _: 97)

    done = child(f"""
        from pathlib import Path
        from dspark_cli import MemoryOptions, PairOptions, open_pair
        from dspark_cli.native import ext
        options = PairOptions(Path({str(target.path)!r}), memory=MemoryOptions(ctx_size=256))
        with open_pair(options) as pair:
            print("before", flush=True)
            ext.get_embeddings_layer_inp(pair.target.context.handle, 1)
            print("after")
    """)

    assert done.returncode == 5
    assert done.stdout == "before\n"
    assert done.stderr.startswith("error: llama.cpp aborted: ")
    assert "GGML_ASSERT" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 4


@pytest.mark.parametrize(
    "streams", [">&-", "2>&-", ">&- 2>&-", ">/dev/full", "2>/dev/full", ">/dev/full 2>/dev/full"]
)
def test_an_abort_is_exit_code_5_wherever_the_streams_lead(streams):
    """A stream that is closed or full takes the sentence with it, never the exit code."""
    program = textwrap.dedent("""
        from contextlib import suppress
        from dspark_cli.engine.model import start_llama
        from dspark_cli.native import ext
        start_llama()
        with suppress(OSError):
            print("before")
        ext.dev_get(10**6)
    """)
    command = shlex.join([sys.executable, "-c", program])

    done = subprocess.run(
        ["bash", "-c", f"{command} {streams}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 5
    if "2>" not in streams:
        assert done.stderr.startswith("error: llama.cpp aborted: ")
        assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="MSVC mangles std::terminate otherwise")
def test_an_uncaught_exception_of_cpp_is_one_sentence():
    """std::terminate has our last word, whoever calls it."""
    done = child("""
        import ctypes
        from dspark_cli.engine.model import start_llama
        from dspark_cli.native.symbols import library
        start_llama()
        terminate = library._ZSt9terminatev
        terminate.restype = None
        terminate()
        print("after")
    """)

    assert done.returncode == 5
    assert done.stdout == ""
    assert done.stderr == "error: llama.cpp ended with an uncaught C++ exception\n"


def test_a_second_ctrl_c_ends_the_process_at_once():
    """The first one asks, the second does not."""
    done = child("""
        import os, signal, time
        from dspark_cli.native.interrupt import ctrl_c_sets_flag
        with ctrl_c_sets_flag() as interrupted:
            os.kill(os.getpid(), signal.SIGINT)
            while not interrupted:
                time.sleep(0.01)
            print("asked", flush=True)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)
            print("after")
    """)

    assert done.returncode == 130
    assert done.stdout == "asked\n"
    assert done.stderr == ""


def test_after_the_block_ctrl_c_is_python_s_again():
    done = child("""
        import os, signal
        from dspark_cli.native.interrupt import ctrl_c_sets_flag
        with ctrl_c_sets_flag():
            pass
        try:
            os.kill(os.getpid(), signal.SIGINT)
            signal.pause()
        except KeyboardInterrupt:
            print("interrupted")
    """)

    assert (done.returncode, done.stdout) == (0, "interrupted\n")


def test_an_interrupt_reaches_a_decode_that_is_under_way(tmp_path):
    """A long prompt in one decode is left in the middle, not at its end."""
    target = write_rigged_target(
        tmp_path / "t.gguf", next_token=lambda _: 97, n_layer=32, context_length=8192
    )

    done = child(f"""
        import os, signal, threading
        from pathlib import Path
        from dspark_cli import Generation, GenerationOptions, MemoryOptions, PairOptions, open_pair
        from dspark_cli.native.interrupt import ctrl_c_sets_flag
        options = PairOptions(
            Path({str(target.path)!r}),
            memory=MemoryOptions(ctx_size=8192, batch_size=8192, ubatch_size=8192, threads=1),
        )
        with ctrl_c_sets_flag(), open_pair(options) as pair:
            run = Generation(pair, [97] * 8000, GenerationOptions(n_predict=1))
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            reports = list(run)
        print(run.finish_reason, len(reports), run.statistics.prefill_tokens)
    """)

    assert (done.returncode, done.stdout) == (0, "interrupted 1 0\n")


@pytest.mark.parametrize(
    ("system_info", "safe"),
    [
        ("CPU : AVX512_VNNI = 1 | AMX_INT8 = 1 | REPACK = 1 | ", False),
        ("CPU : AVX2 = 1 | REPACK = 1 | ", True),
    ],
)
def test_weights_are_not_repacked_for_amx(system_info, safe):
    """Compiled by GCC 12, llama.cpp's AMX kernels end the process at the first batch."""
    assert repacking_is_safe(system_info) is safe
