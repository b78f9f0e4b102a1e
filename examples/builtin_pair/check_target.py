"""Hold a written target against its recipe: the same tokens and the same numbers in llama.cpp.

Three things are compared, on texts that training was not told: how llama.cpp and the `tokenizers`
library split them; what both models, with the stored weights, say greedily; and how surprised both
are. llama.cpp also rounds what goes into each product to 8 bits, so greedy texts may part where
two tokens are nearly equal; that is reported, and a fault only where they are not.

    python check_target.py target.gguf
"""

import argparse
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import grammar
import numpy as np
import torch
from model import Target, read_gguf
from tokenizers import Tokenizer
from train_target import HELD_OUT_STEP, text_seed
from vocabulary import BOS, EOS, read_vocabulary

from dspark_cli import Pair, PairOptions, open_pair

PROMPTS = ("Once upon a time", "def ", "12 + 7 =", "German:", "Count by 2:", "Dear ")
GREEDY_TOKENS = 120
TOKENIZED_TEXTS = 500
PERPLEXITY_TEXTS = 50
NEAR = 0.25  # logits; rounding to 8 bits moves a logit by a tenth
PERPLEXITY_TOLERANCE = 0.01  # relative


def disagreements(path: Path, seed: int) -> Iterator[str]:
    """Print what was measured, and say everything that is not as it should be."""
    tokenizer = read_vocabulary(path).tokenizer()
    model = read_gguf(path)
    texts = list(islice(grammar.texts(text_seed(seed, HELD_OUT_STEP)), TOKENIZED_TEXTS))

    with open_pair(PairOptions(path)) as alone:
        yield from token_disagreements(alone, tokenizer, texts)
        for prompt in PROMPTS:
            yield from greedy_disagreements(alone, model, tokenizer, prompt)
        yield from perplexity_disagreements(alone, model, tokenizer, texts[:PERPLEXITY_TEXTS])


def token_disagreements(alone: Pair, tokenizer: Tokenizer, texts: list[str]) -> Iterator[str]:
    count = 0
    for text in texts:
        ours = [BOS, *tokenizer.encode(text).ids]
        theirs = alone.vocabulary.tokenize(text, add_special=True, parse_special=False)
        count += len(ours)
        if ours != theirs:
            yield f"tokens of {text!r}: {ours} here, {theirs} in llama.cpp"
        if b"".join(map(alone.vocabulary.piece, theirs)) != text.encode():
            yield f"text of {theirs}: not {text!r} in llama.cpp"
    print(f"tokenized {len(texts)} texts, {count} tokens")


def greedy_disagreements(
    alone: Pair, model: Target, tokenizer: Tokenizer, prompt: str
) -> Iterator[str]:
    tokens = [BOS, *tokenizer.encode(prompt).ids]
    said = [int(llama_logits(alone, tokens)[-1].argmax())]
    while len(said) < GREEDY_TOKENS and said[-1] != EOS:
        scored = alone.target.score(said[-1:], len(tokens) + len(said) - 1)
        said.append(int(scored.logits[0].argmax()))

    judged = torch_logits(model, tokens + said)[len(tokens) - 1 : -1]
    short = judged.max(axis=-1) - judged[np.arange(len(said)), said]
    print(
        f"{prompt!r}: {len(said)} greedy tokens, {np.count_nonzero(short)} not the first choice "
        f"here, at most {short.max():.3f} logits below it"
    )
    if short.max() > NEAR:
        yield f"after {prompt!r}: a token {short.max():.3f} logits below the best, wanted {NEAR}"


def perplexity_disagreements(
    alone: Pair, model: Target, tokenizer: Tokenizer, texts: list[str]
) -> Iterator[str]:
    surprises = []
    for text in texts:
        tokens = [BOS, *tokenizer.encode(text).ids, EOS]
        surprises.append(
            (
                surprise(torch_logits(model, tokens), tokens),
                surprise(llama_logits(alone, tokens), tokens),
            )
        )
    here, there = (
        np.exp(np.concatenate(column).mean()) for column in zip(*surprises, strict=True)
    )
    print(f"perplexity {here:.4f} here, {there:.4f} in llama.cpp, on {len(texts)} held-out texts")
    if abs(there / here - 1) > PERPLEXITY_TOLERANCE:
        yield f"perplexity: {here:.4f} here, {there:.4f} in llama.cpp"


def llama_logits(alone: Pair, tokens: list[int]) -> np.ndarray:
    """Read a text from its beginning, token by token."""
    alone.clear()
    rows = [alone.target.score([token], place).logits[0] for place, token in enumerate(tokens)]
    return np.stack(rows).astype(np.float64)


def torch_logits(model: Target, tokens: list[int]) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor([tokens]))[0].double().numpy()


def surprise(logits: np.ndarray, tokens: list[int]) -> np.ndarray:
    """Compute how unlikely each token was after those before it, in nats."""
    peaks = logits[:-1].max(axis=-1, keepdims=True)
    totals = np.log(np.exp(logits[:-1] - peaks).sum(axis=-1)) + peaks[:, 0]
    return totals - logits[np.arange(len(tokens) - 1), tokens[1:]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Check the built-in target.")
    parser.add_argument("target", type=Path)
    parser.add_argument("--seed", type=int, default=1, help="as in training")
    options = parser.parse_args()
    problems = list(disagreements(options.target, options.seed))
    for problem in problems:
        print("disagreement:", problem)
    raise SystemExit(1 if problems else 0)


if __name__ == "__main__":
    main()
