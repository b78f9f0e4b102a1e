"""Every option, declared once: its names, its help, its check.

Names are those that people type for llama.cpp. Panels group them in ``--help``.
"""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

MODELS, PROMPT, LENGTH, SAMPLING = "Models", "Prompt", "Length and memory", "Sampling"
SPECULATION, VERDICT, OUTPUT = "Speculation", "Verdict", "Output"
TRAINING, COLLECT, DRAFTER, FITTING = "Training", "Collecting", "Drafter", "Fitting"
CONVERSION = "Conversion"
QUANTIZING = "Quantising"


class StatsFormat(str, Enum):
    table = "table"
    json = "json"
    none = "none"


class ScheduleChoice(str, Enum):
    fixed = "fixed"
    confidence = "confidence"
    auto = "auto"


class FlashAttentionChoice(str, Enum):
    auto = "auto"
    on = "on"
    off = "off"


def window(text: str) -> int | None:
    """``auto`` or a number; raises ValueError for anything else."""
    return None if text == "auto" else int(text)


def option(*names: str, help: str, panel: str, **rest: object) -> object:  # noqa: A002
    return typer.Option(*names, help=help, rich_help_panel=panel, **rest)  # type: ignore[arg-type]


def argument(name: str, *, help: str) -> object:  # noqa: A002
    return typer.Argument(metavar=name, help=help, show_default=False)


Model = Annotated[
    str | None,
    option(
        "-m",
        "--model",
        help="Target GGUF, [b]smollm2[/b] or [b]builtin[/b].  [dim]default: builtin, a small "
        "demonstration pair[/dim]",
        panel=MODELS,
        metavar="FILE",
    ),
]
TrainedModel = Annotated[
    str,
    option(
        "-m",
        "--model",
        help="Target GGUF, [b]smollm2[/b] or [b]builtin[/b].",
        panel=MODELS,
        metavar="FILE",
    ),
]
Draft = Annotated[
    str | None,
    option(
        "-md",
        "--model-draft",
        "--spec-draft-model",
        help="Drafter GGUF, [b]smollm2[/b] or [b]builtin[/b]; a named target brings its own.",
        panel=MODELS,
        metavar="FILE",
    ),
]
NoDraft = Annotated[
    bool, option("--no-draft", help="Plain decoding, through the same code.", panel=SPECULATION)
]
DraftMax = Annotated[
    int | None,
    option(
        "--spec-draft-n-max",
        help="Tokens drafted per round; must equal the drafter's block_size, its default.",
        panel=SPECULATION,
        metavar="N",
    ),
]
DraftWindow = Annotated[
    int | None,
    option(
        "--draft-window",
        help="Positions that the drafter keeps, the last W; 0 keeps all.  [dim]default: auto, "
        "three quarters of the context that it was trained on[/dim]",
        panel=SPECULATION,
        metavar="W|auto|0",
        parser=window,
    ),
]
SCHEDULE_HELP = (
    "What a round drafts and scores: whole blocks; up to the first token that the drafter trusts "
    "less than --spec-draft-p-min; or what pays on this machine.  [dim]default: "
)
ScheduleName = Annotated[
    ScheduleChoice | None,
    option(
        "--schedule",
        help=SCHEDULE_HELP + "auto where the drafter has a confidence head or the pair is "
        "calibrated, else fixed[/dim]",
        panel=SPECULATION,
    ),
]
CheckedSchedule = Annotated[
    ScheduleChoice | None,
    option(
        "--schedule",
        help=SCHEDULE_HELP + "fixed, which drafts most[/dim]",
        panel=SPECULATION,
    ),
]
DraftPMin = Annotated[
    float | None,
    option(
        "--spec-draft-p-min",
        "--spec-draft-conf-min",
        help="Least confidence of a scored draft token; means --schedule confidence.",
        panel=SPECULATION,
        metavar="P",
    ),
]
NoCalibration = Annotated[
    bool,
    option(
        "--no-calibration",
        help="Measure for --schedule auto anew, and keep nothing.",
        panel=SPECULATION,
    ),
]
LiveCosts = Annotated[
    bool,
    option(
        "--live-costs",
        help="Let the clock correct what --schedule auto decides by: it follows a machine that "
        "changes, and two runs may draft differently.",
        panel=SPECULATION,
    ),
]
PromptText = Annotated[
    str | None, option("-p", "--prompt", help="The text to continue.", panel=PROMPT)
]
PromptFile = Annotated[
    Path | None,
    option(
        "-f",
        "--file",
        help="A UTF-8 file with the prompt; - is stdin. One newline at its end is dropped.",
        panel=PROMPT,
        metavar="FILE",
    ),
]
PromptsFile = Annotated[
    Path | None,
    option(
        "--prompts",
        help='Many prompts, one per line: {"prompt": ...}, {"turns": [...]} or plain text; '
        "one JSON line out for each.",
        panel=PROMPT,
        metavar="FILE",
    ),
]
TokenIds = Annotated[
    Path | None,
    option(
        "--token-ids",
        help="A file of token ids as the prompt; - is stdin.",
        panel=PROMPT,
        metavar="FILE",
    ),
]
Limit = Annotated[
    int | None,
    option("--limit", help="Take so many of the prompts.", panel=PROMPT, min=1, metavar="N"),
]
Shuffle = Annotated[
    int | None,
    option("--shuffle", help="Shuffle the prompts by this seed.", panel=PROMPT, metavar="SEED"),
]
Escape = Annotated[
    bool, option("-e", "--escape", help=r"Read \n, \t, \\ and \xHH in -p.", panel=PROMPT)
]
Chat = Annotated[
    bool,
    option("--chat", help="Put the prompt into the target's own chat template.", panel=PROMPT),
]
System = Annotated[str | None, option("--system", help="System message of --chat.", panel=PROMPT)]
ChatTemplateFile = Annotated[
    Path | None,
    option(
        "--chat-template-file",
        help="Jinja template of --chat, instead of the target's.",
        panel=PROMPT,
        metavar="FILE",
    ),
]
ChatTemplateKwargs = Annotated[
    str | None,
    option(
        "--chat-template-kwargs",
        help="Variables for the template, as a JSON object.",
        panel=PROMPT,
        metavar="JSON",
    ),
]
NoThinking = Annotated[
    bool, option("--no-thinking", help="Give the template enable_thinking = false.", panel=PROMPT)
]
NPredict = Annotated[
    int,
    option(
        "-n",
        "--n-predict",
        "--predict",
        help="Tokens to generate, exactly; -1 goes on to the end of the text or the context.",
        panel=LENGTH,
    ),
]
Stop = Annotated[
    list[str] | None,
    option("--stop", help="End before this text; may be repeated.", panel=LENGTH, metavar="TEXT"),
]
IgnoreEos = Annotated[
    bool, option("--ignore-eos", help="Never let the target end the text.", panel=LENGTH)
]
CtxSize = Annotated[
    int | None,
    option(
        "-c",
        "--ctx-size",
        help="Context length in tokens; 0 is the model's own.  [dim]default: the model's own, "
        "at most 4096[/dim]",
        panel=LENGTH,
    ),
]
ContextShift = Annotated[
    bool,
    option(
        "--context-shift",
        help="Refused with a warning: taps of shifted positions are gone.",
        panel=LENGTH,
    ),
]
BatchSize = Annotated[
    int, option("-b", "--batch-size", help="Prompt tokens per decode.", panel=LENGTH)
]
UbatchSize = Annotated[
    int, option("-ub", "--ubatch-size", help="Rows per compute step of the target.", panel=LENGTH)
]
Threads = Annotated[
    int | None,
    option("-t", "--threads", help="Threads.  [dim]default: all cores[/dim]", panel=LENGTH),
]
ThreadsDraft = Annotated[
    int | None,
    option(
        "-td",
        "--threads-draft",
        help="Threads of the drafter.  [dim]default: as -t[/dim]",
        panel=LENGTH,
    ),
]
GpuLayers = Annotated[
    int | None,
    option(
        "-ngl",
        "--n-gpu-layers",
        help="Layers on the GPU.  [dim]default: all[/dim]",
        panel=LENGTH,
    ),
]
GpuLayersDraft = Annotated[
    int | None,
    option(
        "-ngld",
        "--spec-draft-ngl",
        help="Layers of the drafter on the GPU.  [dim]default: all[/dim]",
        panel=LENGTH,
    ),
]
FlashAttention = Annotated[
    FlashAttentionChoice, option("-fa", "--flash-attn", help="Flash attention.", panel=LENGTH)
]
CacheTypeK = Annotated[
    str,
    option("-ctk", "--cache-type-k", help="Type of the K cache.", panel=LENGTH, metavar="TYPE"),
]
CacheTypeV = Annotated[
    str,
    option("-ctv", "--cache-type-v", help="Type of the V cache.", panel=LENGTH, metavar="TYPE"),
]
CacheTypeKDraft = Annotated[
    str,
    option(
        "-ctkd",
        "--cache-type-k-draft",
        help="The drafter's K cache.",
        panel=LENGTH,
        metavar="TYPE",
    ),
]
CacheTypeVDraft = Annotated[
    str,
    option(
        "-ctvd",
        "--cache-type-v-draft",
        help="The drafter's V cache.",
        panel=LENGTH,
        metavar="TYPE",
    ),
]
Temperature = Annotated[
    float, option("--temp", help="0 always picks the likeliest token.", panel=SAMPLING)
]
TopK = Annotated[int, option("--top-k", help="Keep so many tokens; 0 keeps all.", panel=SAMPLING)]
TopP = Annotated[float, option("--top-p", help="Keep this much probability.", panel=SAMPLING)]
MinP = Annotated[
    float, option("--min-p", help="Drop tokens below this share of the likeliest.", panel=SAMPLING)
]
RepeatPenalty = Annotated[
    float, option("--repeat-penalty", help="Penalty for the last 64 tokens.", panel=SAMPLING)
]
Seed = Annotated[
    int | None,
    option(
        "-s", "--seed", help="Repeats a sampled text.  [dim]default: random[/dim]", panel=SAMPLING
    ),
]
Tolerance = Annotated[
    float | None,
    option(
        "--tolerance",
        help="Logits by which a token may miss the target's choice.  [dim]default: measured on "
        "the text[/dim]",
        panel=VERDICT,
        min=0.0,
    ),
]
Strict = Annotated[
    bool, option("--strict", help="Ties fail as well: all texts must be identical.", panel=VERDICT)
]
Stats = Annotated[
    StatsFormat | None,
    option(
        "--stats",
        help="Statistics on stderr.  [dim]default: table, or none with --json and --jsonl[/dim]",
        panel=OUTPUT,
    ),
]
Json = Annotated[
    bool, option("--json", help="One JSON document on stdout instead of the text.", panel=OUTPUT)
]
JsonLines = Annotated[
    bool, option("--jsonl", help="One JSON event per line on stdout.", panel=OUTPUT)
]
Color = Annotated[
    bool, option("--color", help="Mark accepted draft tokens on a terminal.", panel=OUTPUT)
]
Verbose = Annotated[
    bool,
    option("-v", "--verbose", help="Print llama.cpp's log and the planned sizes.", panel=OUTPUT),
]
