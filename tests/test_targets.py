"""Every architecture that can be tapped, as a tiny random target that llama.cpp runs.

What the contract's table says of each is held against the library, so that an upgrade that
changes it fails here. Then each is decoded with drafts that are rejected whole, in part and not
at all, and ``check`` compares the texts.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from architectures import ABORTING, ARCHITECTURES, write_target_of
from gguf.constants import MODEL_ARCH_NAMES
from pairs import Drafter, Target, write_random_drafter

from dspark_cli import MemoryOptions, Pair, PairOptions, open_pair
from dspark_cli.compare import compare
from dspark_cli.contract import TAPPABLE, read_target
from dspark_cli.decode import Decoding, NoDrafter
from dspark_cli.engine.drafter import Draft
from dspark_cli.engine.sampler import argmax
from dspark_cli.errors import LlamaError
from dspark_cli.events import Round
from dspark_cli.metadata import read_metadata

MEMORY = MemoryOptions(
    ctx_size=512,
    threads=1,
    batch_size=64,
    flash_attention="off",
    cache_type_k="f32",
    cache_type_v="f32",
    cache_type_k_draft="f32",
    cache_type_v_draft="f32",
)
PROMPT = list(b"The rain in Spain stays")
TOKENS = 256
WRONG = 1  # a control character, which no target here says

each_architecture = pytest.mark.parametrize("arch", ARCHITECTURES)
hybrid = [arch for arch in ARCHITECTURES if TAPPABLE.get(arch, TAPPABLE["llama"]).rewind != "cut"]
replaying = [arch for arch in hybrid if TAPPABLE[arch].rewind == "replay"]


@dataclass(frozen=True)
class Files:
    target: Target
    drafter: Drafter


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Callable[[str], Files]:
    """A target of an architecture and a random drafter for it, written once."""
    folder, written = tmp_path_factory.mktemp("targets"), {}

    def of(arch: str) -> Files:
        if arch not in written:
            target = write_target_of(folder / arch / "target.gguf", arch)
            drafter = write_random_drafter(folder / arch / "drafter.gguf", target)
            written[arch] = Files(target, drafter)
        return written[arch]

    return of


@contextmanager
def opened(files: Files, memory: MemoryOptions = MEMORY) -> Iterator[Pair]:
    with open_pair(PairOptions(files.target.path, files.drafter.path, memory=memory)) as pair:
        pair.clear()
        yield pair


# --- the table ----------------------------------------------------------------------------------


def test_every_tappable_architecture_has_a_target_here():
    """Whoever adds a line to the table writes the keys of a target too."""
    assert set(TAPPABLE) == set(ARCHITECTURES)


@each_architecture
def test_the_library_rewinds_as_the_table_says(files, arch):
    """Rings appear and disappear with versions of llama.cpp; hybrids without one are replayed."""
    with opened(files(arch)) as pair:
        context = pair.target.context
        found = "cut" if not context.recurrent else "ring" if context.n_rs_seq else "replay"

    assert found == TAPPABLE[arch].rewind, (
        f"llama.cpp rewinds {arch} by {found}: dspark_cli/contract/architectures.py says "
        f"{TAPPABLE[arch].rewind}"
    )


# A child per architecture and layer, since llama.cpp ends the process where a tap is missing. Exit
# codes: 0 tapped, 1 no numbers, 2 no such target can be made, 5 (of the guard) aborted.
TAP_EACH = """
import os, sys
from pathlib import Path
import numpy as np
from architectures import write_target_of
from dspark_cli.engine.context import ContextSettings, open_context
from dspark_cli.engine.model import open_model, start_llama
from dspark_cli.engine.taps import Taps
from dspark_cli.engine.target import Target
from dspark_cli.engine.vocab import Vocabulary
from dspark_cli.sizes import ContextSizes

start_llama()
sizes = ContextSizes(64, 64, 64, 64, 64, 4, 0, 0, 0)
folder = Path(sys.argv[1])
for wanted in sys.argv[2:]:
    arch, *layers = wanted.split(":")
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            path = write_target_of(folder / arch / "t.gguf", arch).path
        except BaseException:
            os._exit(2)
        settings = ContextSettings(1, "f32", "f32", "off")
        with open_model(path) as model:
            words = len(Vocabulary(model))
            with open_context(model, "target", words, sizes, settings) as context:
                taps = Taps(context, [int(layer) for layer in layers], 64)
                target = Target(context, taps, 4)
                target.read([1, 2, 3], 0)
                os._exit(0 if np.isfinite(target.taps(3)).all() else 1)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status))
"""


def outcomes(folder: Path, wanted: Sequence[str]) -> dict[str, int]:
    """What comes of ``architecture:layer``, tapped in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", TAP_EACH, folder, *wanted],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return dict(zip(wanted, map(int, done.stdout.splitlines()), strict=True))


def test_the_library_publishes_final_outputs_where_the_table_says(files, tmp_path):
    """As a tap, n_layer is the stream behind the last layer; elsewhere it aborts the process."""
    last = {
        arch: read_target(read_metadata(files(arch).target.path)).layers for arch in ARCHITECTURES
    }
    found = outcomes(tmp_path, [f"{arch}:{layer}" for arch, layer in last.items()])

    assert {name.split(":")[0]: code == 0 for name, code in found.items()} == {
        arch: TAPPABLE[arch].final_tap for arch in ARCHITECTURES
    }


def test_the_library_taps_what_the_table_lists_and_nothing_else(tmp_path):
    """Every architecture that can be made here is tried, so that a new one does not go unseen."""
    known = sorted({*MODEL_ARCH_NAMES.values(), *ARCHITECTURES, *ABORTING})
    plain = outcomes(tmp_path, known)
    runs = [arch for arch, code in plain.items() if code == 0]
    assert len(runs) > 90  # the others want keys that nobody wrote here
    tapped = outcomes(tmp_path, [f"{arch}:1" for arch in runs])
    found = {name.removesuffix(":1") for name, code in tapped.items() if code == 0}

    found.discard("llama-embed")  # llama's graph, for vectors instead of texts
    assert found == set(TAPPABLE), (
        f"llama.cpp can tap {sorted(found - set(TAPPABLE))} now and cannot tap "
        f"{sorted(set(TAPPABLE) - found)} any more: change dspark_cli/contract/architectures.py"
    )


# --- the same text ------------------------------------------------------------------------------


@dataclass
class Prompter:
    """A drafter that knows the text to come, and is right for as many tokens as it is told.

    ``right`` is gone through round by round. What it observes goes to a real drafter, and is
    written down.
    """

    drafter: object
    text: Sequence[int]  # from position 0 on
    right: Sequence[int]
    observed: list[tuple[int, np.ndarray]] = field(default_factory=list)
    rounds: int = 0

    def propose(self, last: int, position: int, most: int) -> Draft:  # noqa: ARG002
        coming = [*self.text[position + 1 :], *[WRONG] * most][: min(most, 4)]
        right = self.right[self.rounds % len(self.right)]
        self.rounds += 1
        return Draft((*coming[:right], *[WRONG] * (len(coming) - right)))

    def observe(self, taps: np.ndarray, position: int) -> float:
        if position == 0:
            self.observed.clear()
        self.observed.append((position, taps.copy()))
        return self.drafter.observe(taps, position)

    def clear(self, coming: int = 0) -> None:
        self.drafter.clear(coming)


def plain_text(pair: Pair, tokens: int = TOKENS) -> list[int]:
    """The prompt and what the target makes of it by itself."""
    pair.clear()
    rounds = Decoding(pair.target, NoDrafter(), PROMPT, argmax, room=pair.room, limit=tokens)
    return [
        *PROMPT,
        *(token for event in rounds if isinstance(event, Round) for token in event.tokens),
    ]


@each_architecture
@pytest.mark.parametrize("right", [(0,), (4, 2, 0, 1, 3), (4,)], ids=["none", "half", "all"])
def test_drafts_change_nothing(files, arch, right):
    """Whether a draft is rejected whole, in part or not at all; taps are those of a clean pass."""
    with opened(files(arch)) as pair:
        text = plain_text(pair)
        assert len(set(text[len(PROMPT) :])) > 10, "the target says one thing over and over"
        pair.drafter = prompter = Prompter(pair.drafter, text, right)
        result = compare(pair, PROMPT, limit=TOKENS)
        acceptance = result.statistics.draft_acceptance_rate
        pair.target.clear()
        clean = np.concatenate([taps for _, taps in passes(pair, text[:-1])])

    assert (result.verdict, result.why) in {("identical", None), ("tie", None)}
    assert result.compared == TOKENS
    assert acceptance == {(0,): 0, (4,): 1}.get(right, pytest.approx(0.5, abs=0.02))
    rows = np.concatenate([taps for _, taps in prompter.observed])
    assert [position for position, _ in prompter.observed] == list(
        np.cumsum([0, *(len(taps) for _, taps in prompter.observed[:-1])])
    )
    np.testing.assert_allclose(rows, clean[: len(rows)], rtol=2e-3, atol=2e-3)


def passes(pair: Pair, tokens: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
    """Read a text in chunks and yield each chunk's taps."""
    for position in range(0, len(tokens), pair.target.chunk):
        chunk = tokens[position : position + pair.target.chunk]
        pair.target.read(chunk, position)
        yield position, pair.target.taps(len(chunk))


@each_architecture
def test_a_random_drafter_changes_nothing(files, arch):
    """It is nearly always wrong, and a real drafter: fused taps, a Markov head, a confidence."""
    with opened(files(arch)) as pair:
        result = compare(pair, PROMPT, limit=64)

    assert (result.verdict, result.why) in {("identical", None), ("tie", None)}
    assert result.statistics.draft_acceptance_rate < 0.2


# --- going back ---------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", hybrid)
def test_a_prompt_of_one_token_goes_back_too(files, arch):
    """Its first pass begins with an empty memory, of which no state can be saved."""
    with opened(files(arch)) as pair:
        text = plain_text(pair, 8)[len(PROMPT) :]
        pair.clear()
        expected = [argmax(pair.target.score([text[0]], 0).logits[0])]
        pair.target.rewind(1)
        expected.append(argmax(pair.target.score([expected[0]], 1).logits[0]))
        pair.clear()
        pair.target.score([text[0], WRONG, WRONG], 0)
        rollback = pair.target.rewind(1)
        again = argmax(pair.target.score([expected[0]], 1).logits[0])

    assert again == expected[1]
    assert rollback.tokens == (1 if arch in replaying else 0)


@pytest.mark.parametrize("arch", hybrid)
def test_a_rehearsal_leaves_no_trace(files, arch):
    """What follows is what would have followed."""
    with opened(files(arch)) as pair:
        pair.target.read(PROMPT[:-1], 0)
        position = len(PROMPT) - 1
        for tokens, kept in (([WRONG], 1), ([WRONG] * 5, 1), (PROMPT[:5], 3)):
            assert pair.target.rehearse(tokens, position, kept=kept) > 0
        after = pair.target.score([PROMPT[-1]], position).logits[0]
        pair.clear()
        pair.target.read(PROMPT[:-1], 0)
        expected = pair.target.score([PROMPT[-1]], position).logits[0]

    np.testing.assert_allclose(after, expected, atol=1e-4)


@pytest.mark.parametrize("arch", hybrid)
def test_a_recurrent_memory_says_how_far_it_goes_back(files, arch):
    """Beyond the last pass there is no state, and a wrong one would be read in silence."""
    with opened(files(arch)) as pair:
        pair.target.read(PROMPT, 0)
        pair.target.score([1, 2, 3], len(PROMPT))
        assert pair.target.reaches(len(PROMPT) + 1)
        assert not pair.target.reaches(len(PROMPT) - 1)

        with pytest.raises(LlamaError, match=f"cannot go back to position {len(PROMPT) - 1}"):
            pair.target.rewind(len(PROMPT) - 1)


def test_a_ring_does_not_take_a_pass_back_whole(files):
    """It holds the states after each token of the pass, not the one before: that one is stale."""
    with opened(files("qwen35")) as pair:
        pair.target.read(PROMPT, 0)
        expected = pair.target.score([65, 66], len(PROMPT)).logits[1]
        pair.clear()
        pair.target.read(PROMPT, 0)
        pair.target.score([1, 2, 3], len(PROMPT))
        assert not pair.target.reaches(len(PROMPT))
        pair.target.context.rewind(len(PROMPT))  # llama.cpp says yes
        found = pair.target.score([65, 66], len(PROMPT)).logits[1]

    assert np.abs(found - expected).max() > 0.1


@pytest.mark.parametrize("arch", replaying)
def test_the_replay_is_booked(files, arch):
    """Its seconds and its tokens are the round's, and so are the seconds of saving the state."""
    with opened(files(arch)) as pair:
        text = plain_text(pair, 64)
        pair.drafter = Prompter(pair.drafter, text, (2,))
        result = compare(pair, PROMPT, limit=64)

    drafted = [round_ for round_ in result.speculative.rounds if round_.accepted < round_.scored]
    assert len(drafted) > 10
    for round_ in drafted:
        assert round_.rollback.tokens == round_.accepted + 1
        assert 0 < round_.rollback.seconds < round_.seconds


@dataclass
class Stale:
    """A fault: the state that is restored is that of an earlier round, with a new position."""

    pair: Pair
    first: np.ndarray | None = None

    def plant(self, monkeypatch) -> None:
        context = self.pair.target.context
        save = context.save_state

        def stale() -> np.ndarray:
            state = save()
            if self.first is None:
                self.first = state
            position = slice(12, 16)  # bytes, behind a magic number, a sequence, a count of cells
            assert state[position].view(np.int32)[0] == context.held - 1
            old = self.first.copy()
            old[position] = state[position]
            return old

        monkeypatch.setattr(context, "save_state", stale)


@dataclass
class Forgetful:
    """A fault: the replay says the first accepted token twice, and the last one never."""

    pair: Pair

    def plant(self, monkeypatch) -> None:
        target = self.pair.target
        decode = target.rewinding.decode

        def short(tokens: Sequence[int], position: int) -> float:
            return decode([tokens[0], *tokens[:-1]], position)

        monkeypatch.setattr(target.rewinding, "decode", short)


@pytest.mark.parametrize("arch", replaying)
@pytest.mark.parametrize("fault", [Stale, Forgetful])
def test_a_fault_in_the_replay_is_a_divergence(files, monkeypatch, arch, fault):
    """``check`` finds it, although its own batches go back by the same broken means."""
    with opened(files(arch)) as pair:
        text = plain_text(pair, 64)
        fault(pair).plant(monkeypatch)
        pair.drafter = Prompter(pair.drafter, text, (4, 2, 0, 1, 3))
        result = compare(pair, PROMPT, limit=64)

    assert result.verdict == "diverged"


@pytest.mark.parametrize("arch", replaying)
def test_a_replay_that_is_one_token_short_is_refused_by_llama_cpp(files, monkeypatch, arch):
    """A hole in the positions ends in exit code 5, never in silence."""
    with opened(files(arch)) as pair:
        text = plain_text(pair, 64)
        decode = pair.target.rewinding.decode
        monkeypatch.setattr(
            pair.target.rewinding,
            "decode",
            lambda tokens, position: decode(tokens[:-1], position) if tokens[1:] else 0.0,
        )
        pair.drafter = Prompter(pair.drafter, text, (2,))

        with pytest.raises(LlamaError, match="refused a batch of the target"):
            compare(pair, PROMPT, limit=64)


@pytest.mark.parametrize("arch", hybrid)
def test_the_recurrent_memory_is_planned_as_it_is(files, arch):
    """One state, and one more for every token that a ring goes back, or one to save."""
    shape = read_target(read_metadata(files(arch).target.path))
    with opened(files(arch)) as pair:
        planned = pair.plan.sizes.target
        pair.target.read(PROMPT, 0)
        saved = pair.target.context.save_state().nbytes
        ring = pair.target.context.n_rs_seq

    assert planned.n_rs_seq == ring
    assert planned.state_bytes == shape.state_bytes * (1 + (ring or 1))
    if arch != "deepseek4":  # its states are those of compressors, and not planned
        assert 0 <= saved - shape.state_bytes < 1024
