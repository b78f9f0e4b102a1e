"""What a drafter demands of its target, read from metadata, and every way it can fail.

This package knows two descriptions; it opens no model and knows no sizes of memory.
"""

from dspark_cli.contract.architectures import TAPPABLE, ArchitectureSupport
from dspark_cli.contract.rules import (
    check_pair,
    check_target,
    check_trainable,
    check_written,
    disagreements,
    limitations,
)
from dspark_cli.contract.shapes import (
    TEMPERATURES_KEY,
    AttentionShape,
    DrafterShape,
    TargetShape,
    read_drafter,
    read_target,
)

__all__ = [
    "TAPPABLE",
    "TEMPERATURES_KEY",
    "ArchitectureSupport",
    "AttentionShape",
    "DrafterShape",
    "TargetShape",
    "check_pair",
    "check_target",
    "check_trainable",
    "check_written",
    "disagreements",
    "limitations",
    "read_drafter",
    "read_target",
]
