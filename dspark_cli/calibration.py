"""What is known of a pair on this machine, kept in the user's cache from run to run.

The file's name is a digest of everything that the numbers depend on: both models, the threads and
the version of llama.cpp. A file that is damaged or of another format is as good as none.
"""

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

from platformdirs import user_cache_path

from dspark_cli.errors import DsparkError
from dspark_cli.files import write_atomically
from dspark_cli.plan import Plan
from dspark_cli.schedule import Costs, Growth
from dspark_cli.versions import versions

FORMAT = 3


def calibration_path(plan: Plan) -> Path:
    """Where a pair's calibration is kept on this machine."""
    memory, drafter = plan.options.memory, plan.drafter_fingerprint
    facts = {
        "format": FORMAT,
        "target": dict(plan.target_fingerprint.as_json()),
        "drafter": dict(drafter.as_json()) if drafter else None,
        "threads": [memory.target_threads, memory.drafter_threads],
        "gpu_layers": [memory.gpu_layers, memory.gpu_layers_draft],
        "flash_attention": memory.flash_attention,
        "caches": [
            memory.cache_type_k,
            memory.cache_type_v,
            memory.cache_type_k_draft,
            memory.cache_type_v_draft,
        ],
        "llama.cpp": versions()["llama_cpp_commit"],
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
    return user_cache_path("dspark-cli") / "calibration" / f"{digest}.json"


@dataclass(frozen=True, slots=True)
class Calibration:
    """What is known of one pair on one machine."""

    costs: Costs
    temperatures: tuple[float, ...] = ()  # of the confidences; empty: the drafter's own


def load_calibration(path: Path, longest: int) -> Calibration | None:
    """What ``path`` holds for drafts of up to ``longest`` tokens; None where there is nothing.

    Raises ValueError, with the reason, for a file that is damaged.
    """
    try:
        document = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot be read: {error}") from None
    try:
        score, draft, inject, temperatures = (
            tuple(map(float, document[name]))
            for name in ("score", "draft", "inject", "temperatures")
        )
        batch, row = inject
        growth = _growth(document["growth"])
        costs = Costs(score, draft, (batch, row), int(document["depth"]), growth)
        usable = document["format"] == FORMAT and costs.longest == longest
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"is no calibration: {error}") from None
    grown = growth.score + growth.draft if growth else ()
    sound = all(map(math.isfinite, score + draft + inject + grown)) and all(
        0 < t < math.inf for t in temperatures
    )
    if not usable or not sound:
        raise ValueError("is a calibration of another kind")
    return Calibration(costs, temperatures)


def _growth(document: dict[str, list[float]] | None) -> Growth | None:
    if document is None:
        return None
    score, draft = (tuple(map(float, document[name])) for name in ("score", "draft"))
    return Growth(score, draft)


def save_calibration(path: Path, calibration: Calibration) -> bool:
    """Keep what was found; False where the cache cannot be written to."""
    document = {
        "format": FORMAT,
        "score": list(calibration.costs.score),
        "draft": list(calibration.costs.draft),
        "inject": list(calibration.costs.inject),
        "depth": calibration.costs.depth,
        "growth": asdict(calibration.costs.growth) if calibration.costs.growth else None,
        "temperatures": list(calibration.temperatures),
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(document).encode())
    except (OSError, DsparkError):
        return False
    return True
