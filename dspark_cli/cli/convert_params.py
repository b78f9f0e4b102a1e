"""The options of ``dspark convert``, declared once; those it shares are in ``params``."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from dspark_cli.cli.params import CONVERSION, MODELS, option


class OutTypeChoice(str, Enum):
    keep = "keep"
    f32 = "f32"
    f16 = "f16"
    bf16 = "bf16"
    q8_0 = "q8_0"
    q4_0 = "q4_0"


Source = Annotated[
    Path,
    typer.Argument(
        metavar="IN",
        show_default=False,
        help="A GGUF of the PrismML fork (architecture dspark), or a checkpoint of DeepSpec, "
        "SpecForge, speculators or EasyDeL: its folder, or a .safetensors file.",
    ),
]

Out = Annotated[Path, option("-o", "--out", help="The drafter to write.", panel=MODELS)]

OutType = Annotated[
    OutTypeChoice,
    option(
        "--out-type",
        help="How matrices are stored; [b]keep[/b] leaves them as they are.",
        panel=CONVERSION,
    ),
]

ShareTarget = Annotated[
    bool,
    option(
        "--share-target",
        help="Leave embeddings and head out: llama.cpp takes the target's.",
        panel=CONVERSION,
    ),
]

NoVerify = Annotated[
    bool,
    option(
        "--no-verify",
        help="Load the result, but do not compare its drafts with the source's own maths.",
        panel=CONVERSION,
    ),
]

Force = Annotated[bool, option("--force", help="Replace OUT.", panel=CONVERSION)]
