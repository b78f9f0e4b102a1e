"""The options of ``dspark train``, declared once; those it shares are in ``params``."""

from enum import Enum
from pathlib import Path
from typing import Annotated

from dspark_cli.cli.params import COLLECT, DRAFTER, FITTING, MODELS, TRAINING, option


class StepChoice(str, Enum):
    all = "all"
    collect = "collect"
    fit = "fit"
    export = "export"


class OutTypeChoice(str, Enum):
    f32 = "f32"
    f16 = "f16"
    q8_0 = "q8_0"
    q4_0 = "q4_0"


Out = Annotated[
    Path,
    option("-o", "--out", help="The drafter to write.", panel=MODELS),
]

Step = Annotated[StepChoice, option("--step", help="Do only this step.", panel=TRAINING)]

Resume = Annotated[
    Path | None,
    option(
        "--resume",
        help="Go on in this folder of an earlier training.",
        panel=TRAINING,
        metavar="DIR",
    ),
]

Work = Annotated[
    Path | None,
    option(
        "--work",
        help="Folder for dataset, checkpoints and report.  [dim]default: OUT.train[/dim]",
        panel=TRAINING,
        metavar="DIR",
    ),
]

Prompts = Annotated[
    Path | None,
    option(
        "--prompts",
        help="What the target is asked, as in [b]run[/b].  [dim]default: built-in prompts, or "
        "none where the target has no chat template[/dim]",
        panel=COLLECT,
        metavar="FILE",
    ),
]

Tokens = Annotated[
    int,
    option("--tokens", help="Tokens of prompts and answers to collect.", panel=COLLECT),
]

AnswerTokens = Annotated[int, option("--answer-tokens", help="The longest answer.", panel=COLLECT)]

Lanes = Annotated[int, option("--lanes", help="Answers per batch.", panel=COLLECT)]

MaxDisk = Annotated[
    float | None,
    option("--max-disk", help="The largest dataset.", panel=COLLECT, metavar="GIB"),
]

StoreTaps = Annotated[
    bool,
    option(
        "--store-taps/--no-store-taps",
        help="Keep taps on disk, or compute them again while fitting.",
        panel=COLLECT,
    ),
]

Taps = Annotated[
    str,
    option(
        "--taps",
        help="Layers whose inputs the drafter reads, as 2,8,15, or [b]auto[/b].",
        panel=DRAFTER,
    ),
]

Layers = Annotated[int, option("--layers", help="Blocks of the drafter.", panel=DRAFTER)]

BlockSize = Annotated[int, option("--block-size", help="Tokens per draft.", panel=DRAFTER)]

MarkovRank = Annotated[
    int, option("--markov-rank", help="Rank of the Markov head.", panel=DRAFTER)
]

DraftVocab = Annotated[
    int | None,
    option(
        "--draft-vocab",
        help="Most frequent tokens that may be proposed; 0 is all.  [dim]default: "
        "as many as make up 99 % of the answers[/dim]",
        panel=DRAFTER,
        min=0,
    ),
]

StartFrom = Annotated[
    Path | None,
    option(
        "--start-from",
        help="An earlier drafter of the same target, with whose weights a fit begins.",
        panel=DRAFTER,
        metavar="FILE",
    ),
]

OutType = Annotated[
    OutTypeChoice,
    option("--out-type", help="How weights are stored.", panel=DRAFTER),
]

Minutes = Annotated[
    float,
    option("--minutes", help="Minutes of fitting, all sessions together.", panel=FITTING),
]

LearningRate = Annotated[float, option("--learning-rate", help="At its highest.", panel=FITTING)]

Device = Annotated[str, option("--device", help="auto, cpu, cuda or mps.", panel=FITTING)]

Seed = Annotated[int, option("--seed", help="Of everything random.", panel=TRAINING)]

Force = Annotated[bool, option("--force", help="Replace OUT.", panel=TRAINING)]
