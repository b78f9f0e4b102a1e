"""What the installed llama.cpp can do with each target architecture.

Facts of llama-cpp-python 0.3.36, read in llama.cpp's sources and held against the library by
``tests/test_targets.py``, which fails where an upgrade changes one of them:

- taps: the graphs that publish ``t_layer_inp`` (``src/models/*.cpp``); any other architecture
  aborts the process with "layer input tensor is null". qwen4exp publishes several streams side by
  side, and ``extract_layer_inputs`` (``src/llama-context.cpp``) aborts on their width;
- the final output as a tap: those that publish ``t_layer_inp[n_layer]``;
- rewinding: ``llm_arch_is_hybrid`` and ``llm_arch_supports_rs_rollback`` (``llama-arch.cpp``).
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Rewind: TypeAlias = Literal["cut", "ring", "replay"]
"""How a target's memory forgets rejected tokens.

``cut``: attention keeps a cell per position, and cells are dropped. ``ring``: a recurrent state
is kept for each of the last tokens of a pass (``n_rs_seq``), and one of them is gone back to.
``replay``: there is one recurrent state, which is saved before a pass, restored after it, and
brought forward by decoding the accepted tokens once more.
"""


@dataclass(frozen=True, slots=True)
class ArchitectureSupport:
    """What llama.cpp can do with one target architecture."""

    rewind: Rewind = "cut"
    final_tap: bool = False  # whether the graph publishes the stream after its last layer


_CUT = ArchitectureSupport()
_RING = ArchitectureSupport("ring")
_REPLAY = ArchitectureSupport("replay")

TAPPABLE: dict[str, ArchitectureSupport] = {
    "bailingmoe3": _RING,
    "deepseek4": ArchitectureSupport("ring", final_tap=True),
    "gemma4": _CUT,
    "gpt-oss": _CUT,
    "hunyuan-dense": _CUT,
    "hunyuan_vl": _CUT,
    "lfm2": _RING,
    "lfm2moe": _RING,
    "llama": _CUT,
    "mimo2": ArchitectureSupport(final_tap=True),
    "minimax-01": _REPLAY,
    "minimax-m2": _CUT,
    "muse-glimmer": _CUT,
    "nanbeige": _CUT,
    "nemotron_h": ArchitectureSupport("ring", final_tap=True),
    "nemotron_h_moe": ArchitectureSupport("ring", final_tap=True),
    "qwen3": _CUT,
    "qwen35": _RING,
    "qwen35moe": _RING,
    "qwen3moe": _CUT,
    "qwen3next": _REPLAY,
}
