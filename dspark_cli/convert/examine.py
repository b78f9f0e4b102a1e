"""Compare a written file with its source in a process of its own.

llama.cpp ends the process that it aborts in, and maps the whole file into memory. Here that
process is a child: whatever happens to it, the parent removes what it has written, and says why.
"""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from dspark_cli.convert.plan import OutType, Plan, plan_from
from dspark_cli.convert.verify import Agreement, check_drafts, check_loads
from dspark_cli.errors import ContractError, DsparkError, InterruptedRunError, LlamaError

LOG_LINES = 8
INTERRUPTED = 130


def examine(written: Path, plan: Plan, *, compare: bool, threads: int | None) -> Agreement | None:
    """Let a child load ``written`` and, to ``compare``, draft; raises as ``verify`` does."""
    task = {
        "source": str(plan.recipe.path),
        "target": str(plan.target.path),
        "out_type": plan.out_type,
        "share_target": plan.share_target,
        "written": str(written),
        "compare": compare,
        "threads": threads,
    }
    child = subprocess.run(  # noqa: S603  this very program
        [sys.executable, "-m", __name__, json.dumps(task)],
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if child.returncode == INTERRUPTED:
        raise InterruptedRunError
    lines = child.stdout.splitlines()
    try:
        answer = json.loads(lines[-1])
    except (ValueError, IndexError):
        said = child.stderr.decode(errors="replace").splitlines()
        raise LlamaError(
            f"the process that loaded the converted drafter ended with code {child.returncode}",
            log=said[-LOG_LINES:],
        ) from None
    if "agreement" in answer:
        return Agreement(**answer["agreement"]) if answer["agreement"] else None
    raise _error(answer)


def _error(answer: dict[str, object]) -> DsparkError:
    """The child's error as it was raised."""
    messages, hint, log = answer["messages"], answer["hint"], answer["log"]
    listed = [str(message) for message in messages] if isinstance(messages, list) else []
    shown = None if hint is None else str(hint)
    if answer["exit_code"] == ContractError.exit_code:
        return ContractError(listed, hint=shown)
    kind = LlamaError if answer["exit_code"] == LlamaError.exit_code else DsparkError
    lines = [str(line) for line in log] if isinstance(log, list) else []
    return kind("; ".join(listed), hint=shown, log=lines)


def _answer(task: dict[str, str], out_type: OutType) -> dict[str, object]:
    """What the child says, as JSON."""
    try:
        plan = plan_from(
            Path(task["source"]),
            Path(task["target"]),
            out_type=out_type,
            share_target=bool(task["share_target"]),
        )
        threads = None if task["threads"] is None else int(task["threads"])
        if not task["compare"]:
            check_loads(Path(task["written"]), plan)
            return {"agreement": None}
        agreement = check_drafts(Path(task["written"]), plan, threads=threads)
    except DsparkError as error:
        return {
            "messages": error.messages,
            "hint": error.hint,
            "log": error.log,
            "exit_code": error.exit_code,
        }
    return {"agreement": asdict(agreement)}


def main() -> int:
    """Be the child: one task as JSON in, one answer as the last line out."""
    task = json.loads(sys.argv[1])
    try:
        answer = _answer(task, task["out_type"])
    except (KeyboardInterrupt, InterruptedRunError):
        return INTERRUPTED
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
