"""Hold one long conversation, and see whether the drafter still serves at its end.

    python long_chat.py [-n 8000] [--windows 384,0] [-t THREADS]

SmolLM2 answers one question after the other, greedily, each in the sight of all before it, until
``-n`` positions are full. For every ``--draft-window`` (0 keeps every position) the drafter's
acceptance is added up by quarter of the conversation. The text is the target's own, hence the same
for all, up to near-ties.
"""

import argparse
from collections.abc import Iterator
from itertools import chain, zip_longest

import dspark_cli as dspark
from dspark_cli.decode import Decoding
from dspark_cli.engine.sampler import argmax
from dspark_cli.events import Finish, Round
from dspark_cli.pair import Pair
from dspark_cli.stats import Depth
from dspark_cli.train.templates import CATEGORIES, written_prompts

ANSWER = 160  # tokens, at most
NEXT = "<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
SEED = 5
QUARTERS = 4
QUESTIONS_EACH = 40  # of every category


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", "--positions", type=int, default=8000)
    parser.add_argument("--windows", default="384,0")
    parser.add_argument("-t", "--threads", type=int)
    options = parser.parse_args()

    target, drafter = dspark.find_target("smollm2"), dspark.find_drafter("smollm2")
    for window in map(int, options.windows.split(",")):
        memory = dspark.MemoryOptions(
            ctx_size=options.positions,
            threads=options.threads,
            flash_attention="off",  # on a CPU, a single row is faster so at this depth
            draft_window=window,
        )
        with dspark.open_pair(dspark.PairOptions(target, drafter, memory=memory)) as pair:
            report(window, pair, list(conversation(pair)))


def conversation(pair: Pair) -> Iterator[Round]:
    """The rounds of one conversation that fills the context."""
    if pair.drafter is None:
        raise ValueError("there is no drafter to be looked at")
    pair.clear()
    held: list[int] = []  # tokens in both memories, and the newest one
    began = position = 0
    for question in questions():
        if held:
            text = NEXT.format(question)
            turn = pair.vocabulary.tokenize(text, add_special=False, parse_special=True)
            if held[-1] == pair.vocabulary.eos:
                held.pop()  # the turn begins with it
        else:
            turn = dspark.chat_prompt(pair, question)
        if len(held) + len(turn) >= pair.room:
            return
        decoding = Decoding(
            pair.target,
            pair.drafter,
            [*held, *turn],
            argmax,
            room=pair.room,
            limit=ANSWER,
            ends=lambda token: "eog" if pair.vocabulary.is_eog(token) else None,
            position=position,
        )
        held += turn
        for event in decoding:
            if isinstance(event, Round):
                held += event.tokens
                began = event.position
                yield event
            elif isinstance(event, Finish):
                # Taps of a round that ends the answer are not injected: it is read once more.
                position = began if event.reason == "eog" else event.position
        pair.target.rewind(position)


def questions() -> Iterator[str]:
    """Built-in questions, every category in turn, none twice."""
    by_category: dict[str, list[str]] = {category: [] for category in CATEGORIES}
    for prompt in written_prompts(SEED):
        if len(by_category[prompt.category]) < QUESTIONS_EACH:
            by_category[prompt.category].append(prompt.text)
        if all(len(texts) == QUESTIONS_EACH for texts in by_category.values()):
            break
    yield from filter(None, chain.from_iterable(zip_longest(*by_category.values())))


def report(window: int, pair: Pair, rounds: list[Round]) -> None:
    """Print acceptance by quarter, and what the drafter's memory takes."""
    sizes = pair.plan.sizes.drafter
    held = f"n_ctx {sizes.n_ctx}, cache {sizes.kv_bytes / 2**20:.1f} MiB" if sizes else ""
    tokens = [token for event in rounds for token in event.tokens]
    print(f"window {window}: {held}; {len(tokens)} tokens, {hash(tuple(tokens)) & 0xFFFFFFFF:08x}")
    size = pair.room // QUARTERS
    for quarter in range(QUARTERS):
        found = Depth()
        for event in rounds:
            if event.scored and event.position // size == quarter:
                found = found.plus(Depth(1, event.scored, event.accepted))
        if found.steps:
            print(
                f"  from {quarter * size:5}: {found.steps:4} rounds, "
                f"accept {found.accepted / found.scored:.2%}, "
                f"tau {found.mean_acceptance_length:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
