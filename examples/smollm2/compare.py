"""Hold drafters of one target against each other: the same prompts, one after the other.

    python compare.py TARGET DRAFTER [DRAFTER ...] --prompts FILE [-n 128] [--limit N] [-t THREADS]

Greedy, with the target's chat template. Per drafter: tau, acceptance by position where all before
were accepted, and the calibration error of the confidences behind the drafter's own temperatures
(15 bins of equal mass, positions with at least 200 outcomes).
"""

import argparse
from contextlib import ExitStack
from pathlib import Path

import numpy as np

import dspark_cli as dspark
from dspark_cli.confidence import FEWEST_LABELS, calibration_error, chances
from dspark_cli.contract import TEMPERATURES_KEY
from dspark_cli.events import Round
from dspark_cli.metadata import read_metadata
from dspark_cli.prompts import read_jsonl


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target")
    parser.add_argument("drafters", nargs="+", type=Path)
    parser.add_argument("--prompts", required=True, type=Path)
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("--limit", type=int)
    parser.add_argument("-t", "--threads", type=int)
    options = parser.parse_args()

    prompts = list(read_jsonl(options.prompts))[: options.limit]
    target = dspark.find_target(options.target)
    memory = dspark.MemoryOptions(ctx_size=2048, threads=options.threads)
    rounds: dict[Path, list[Round]] = {drafter: [] for drafter in options.drafters}
    with ExitStack() as owned:
        pairs = {
            drafter: owned.enter_context(
                dspark.open_pair(dspark.PairOptions(target, drafter, memory=memory))
            )
            for drafter in options.drafters
        }
        for prompt in prompts:
            for drafter, pair in pairs.items():
                tokens = dspark.chat_prompt(pair, prompt.text)
                run = dspark.Generation(pair, tokens, dspark.GenerationOptions(options.n))
                rounds[drafter] += [event for event in run if isinstance(event, Round)]
    print(f"{len(prompts)} prompts of {options.prompts.name}, {options.n} tokens each")
    for drafter, events in rounds.items():
        report(drafter, [event for event in events if event.scored])


def report(drafter: Path, rounds: list[Round]) -> None:
    """Print what one drafter did."""
    if not rounds:
        print(f"{drafter.name}: drafted nothing")
        return
    accepted = sum(event.accepted for event in rounds)
    print(f"{drafter.name}: {len(rounds)} rounds, tau {1 + accepted / len(rounds):.3f}")
    temperatures = read_metadata(drafter).values.get(TEMPERATURES_KEY, ())
    for position in range(max(event.scored for event in rounds)):
        tried = [
            event
            for event in rounds
            if event.accepted >= position and event.accepted + event.rejected > position
        ]
        if not tried:
            continue
        happened = np.array([event.accepted > position for event in tried])
        line = f"  position {position + 1}: {happened.mean():.1%} of {len(tried)}"
        if position < len(temperatures) and len(tried) >= FEWEST_LABELS:
            said = np.array([event.confidences[position] for event in tried]).clip(1e-6, 1 - 1e-6)
            logits = np.log(said / (1 - said))
            before = calibration_error(said, happened)
            after = calibration_error(chances(logits, float(temperatures[position])), happened)
            line += f", calibration error {before:.3f}, calibrated {after:.3f}"
        print(line)


if __name__ == "__main__":
    main()
