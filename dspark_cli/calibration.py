"""What is known of a pair on this machine, kept in the user's cache from run to run.

The file's name is a digest of everything that the numbers depend on: both models, the threads and
the version of llama.cpp. A file that is damaged or of another format is as good as none.
"""

import hashlib
import json
import math
from pathlib import Path

from platformdirs import user_cache_path

from dspark_cli.plan import Plan
from dspark_cli.schedule import Costs
from dspark_cli.versions import versions

FORMAT = 1


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


def load_costs(path: Path, longest: int) -> Costs | None:
    """The costs kept in ``path``; None where there are none that can be used.

    Raises ValueError, with the reason, for a file that is damaged.
    """
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot be read: {error}") from None
    try:
        costs = Costs(*(tuple(map(float, document[name])) for name in ("score", "draft")))
        usable = document["format"] == FORMAT and costs.longest == longest
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"is no calibration: {error}") from None
    if not usable or not all(map(math.isfinite, costs.score + costs.draft)):
        raise ValueError("is a calibration of another kind")
    return costs


def save_costs(path: Path, costs: Costs) -> None:
    """Keep costs; a cache that cannot be written to is no failure."""
    document = {"format": FORMAT, "score": list(costs.score), "draft": list(costs.draft)}
    beside = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(document))
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
