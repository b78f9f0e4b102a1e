"""Run DSpark drafters: a small model proposes, the target decides, the answer stays the same.

How a token gets to your terminal: ``cli.run`` turns the command line into frozen options;
``plan`` reads both files' metadata, holds the drafter against the target (``contract``) and plans
every size (``sizes``); only then ``pair`` loads weights; ``generate`` turns the prompt into tokens
and drives ``decode``, whose loop lets the drafter propose a block, the target score it in one pass
and ``verify`` keep the agreed prefix; taps of what was committed go back to the drafter;
``text`` holds the bytes until they are whole characters, and ``render`` writes them to stdout.

The names below are the library; they load llama.cpp only when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dspark_cli.chat import ChatOptions
    from dspark_cli.errors import ContractError, DsparkError, LlamaError, UsageError
    from dspark_cli.generate import Generation, chat_prompt, raw_prompt
    from dspark_cli.models import find_drafter, find_target
    from dspark_cli.options import GenerationOptions, MemoryOptions, PairOptions, SamplingOptions
    from dspark_cli.pair import Pair, open_pair, plan_pair
    from dspark_cli.stats import Statistics

__version__ = "0.1.0"

_HOMES = {
    "ChatOptions": "chat",
    "ContractError": "errors",
    "DsparkError": "errors",
    "Generation": "generate",
    "GenerationOptions": "options",
    "LlamaError": "errors",
    "MemoryOptions": "options",
    "Pair": "pair",
    "PairOptions": "options",
    "SamplingOptions": "options",
    "Statistics": "stats",
    "UsageError": "errors",
    "chat_prompt": "generate",
    "find_drafter": "models",
    "find_target": "models",
    "open_pair": "pair",
    "plan_pair": "pair",
    "raw_prompt": "generate",
}

__all__ = [
    "ChatOptions",
    "ContractError",
    "DsparkError",
    "Generation",
    "GenerationOptions",
    "LlamaError",
    "MemoryOptions",
    "Pair",
    "PairOptions",
    "SamplingOptions",
    "Statistics",
    "UsageError",
    "chat_prompt",
    "find_drafter",
    "find_target",
    "open_pair",
    "plan_pair",
    "raw_prompt",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
