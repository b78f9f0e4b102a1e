"""The tiny pairs do in llama.cpp what they promise, and the numpy reference computes the same.

Keys and values are kept in F32 here, without flash attention, which would take them to F16 all
the same: that rounding alone is larger than the tolerance of these comparisons.
"""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import llama_cpp
import numpy as np
import pytest
from gguf import GGUFReader
from gguf.gguf_writer import GGUFValue, GGUFValueType
from llama_cpp import llama_cpp_ext
from pairs import (
    BOS,
    EOS,
    IM_END,
    MASK,
    VOCABULARY_SIZE,
    Drafter,
    Mutation,
    Target,
    Vocabulary,
    write_random_drafter,
    write_random_target,
    write_rigged_dflash,
    write_rigged_drafter,
    write_rigged_target,
    write_taught_drafter,
)
from reference import DrafterReference, TargetReference, greedy

PROMPT = list(b"The quick brown fox jumps over")
TOLERANCE = 1e-3
F32 = 0  # GGML_TYPE_F32
N_UBATCH = 64


def step_by_seven(token: int) -> int:
    return (token + 7) % VOCABULARY_SIZE


# --- llama.cpp, as directly as possible ---------------------------------------------------------


@llama_cpp.llama_log_callback
def ignore_log(_level, _text, _data):
    """Keep llama.cpp off the terminal; the module keeps this callback alive."""


llama_cpp.llama_log_set(ignore_log, ctypes.c_void_p())

_library = llama_cpp.llama_cpp._lib  # noqa: SLF001 - the only handle on the symbols below
set_layer_inp = _library["_Z30llama_set_embeddings_layer_inpP13llama_contextjb"]
set_layer_inp.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_bool]
set_layer_inp.restype = None
get_layer_inp = _library["_Z30llama_get_embeddings_layer_inpP13llama_contextj"]
get_layer_inp.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
get_layer_inp.restype = ctypes.POINTER(ctypes.c_float)


def matrix(pointer, rows: int, columns: int) -> np.ndarray:
    return np.ctypeslib.as_array(pointer, shape=(rows, columns)).copy()


class Model:
    """A model with one context and one sequence."""

    def __init__(self, owned: ExitStack, path: Path, **sizes: object) -> None:
        self.model = llama_cpp.llama_model_load_from_file(
            str(path).encode(), llama_cpp.llama_model_default_params()
        )
        assert self.model, f"llama.cpp cannot load {path.name}"
        owned.callback(llama_cpp.llama_model_free, self.model)
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.n_vocab = llama_cpp.llama_vocab_n_tokens(self.vocab)
        self.n_embd = llama_cpp.llama_model_n_embd(self.model)
        params = llama_cpp.llama_context_default_params()
        fixed = {
            "n_threads": 1,
            "n_threads_batch": 1,
            "type_k": F32,
            "type_v": F32,
            "flash_attn_type": 0,
        }
        for name, value in {**fixed, **sizes}.items():
            setattr(params, name, value)
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        assert self.context, f"llama.cpp makes no context for {path.name}"
        owned.callback(llama_cpp.llama_free, self.context)

    def decode(
        self,
        start: int,
        tokens: Sequence[int] = (),
        rows: np.ndarray | None = None,
        want_logits: bool = False,
    ) -> None:
        """Decode tokens, or rows of embeddings, from position ``start`` on."""
        count, width = (len(tokens), 0) if rows is None else rows.shape
        batch = llama_cpp.llama_batch_init(count, width, 1)
        batch.n_tokens = count
        for i in range(count):
            batch.pos[i] = start + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = want_logits
        if rows is None:
            np.ctypeslib.as_array(batch.token, shape=(count,))[:] = tokens
        else:
            np.ctypeslib.as_array(batch.embd, shape=rows.shape)[:] = rows
        refusal = llama_cpp.llama_decode(self.context, batch)
        llama_cpp.llama_batch_free(batch)
        assert refusal == 0

    def logits(self, tokens: Sequence[int], start: int = 0) -> np.ndarray:
        self.decode(start, tokens, want_logits=True)
        return matrix(llama_cpp.llama_get_logits(self.context), len(tokens), self.n_vocab)

    def rewind(self, position: int = 0) -> None:
        memory = llama_cpp.llama_get_memory(self.context)
        assert llama_cpp.llama_memory_seq_rm(memory, 0, position, -1)

    def greedy(self, prompt: Sequence[int], n: int) -> list[int]:
        self.rewind()
        answer = [int(self.logits(prompt)[-1].argmax())]
        while len(answer) < n:
            start = len(prompt) + len(answer) - 1
            answer.append(int(self.logits(answer[-1:], start)[-1].argmax()))
        return answer


class Pair:
    """A target that fills a drafter's memory, and the drafter."""

    def __init__(self, owned: ExitStack, target: Target, drafter: Drafter) -> None:
        self.drafted = drafter
        self.target = Model(owned, target.path, n_ctx=256, n_batch=512, n_outputs_max=64)
        self.drafter = Model(
            owned,
            drafter.path,
            n_ctx=256 + drafter.block_size,
            n_batch=256 + drafter.block_size,
            n_ubatch=N_UBATCH,
            ctx_other=self.target.context,
        )
        for layer in drafter.taps:
            set_layer_inp(self.target.context, layer, True)
        llama_cpp_ext.llama_set_embeddings_nextn(self.drafter.context, True, True)
        llama_cpp.llama_set_causal_attn(self.drafter.context, False)

    def read(self, tokens: Sequence[int]) -> np.ndarray:
        """Make both memories hold ``tokens`` and nothing else; return the tap rows."""
        self.target.rewind()
        self.drafter.rewind()
        self.target.decode(0, tokens)
        rows = [
            matrix(get_layer_inp(self.target.context, layer), len(tokens), self.target.n_embd)
            for layer in self.drafted.taps
        ]
        taps = np.concatenate(rows, axis=1)
        # Without causal attention, a decode of more rows than n_ubatch aborts the process.
        for start in range(0, len(taps), N_UBATCH):
            self.drafter.decode(start, rows=taps[start : start + N_UBATCH])
        return taps

    def draft(
        self, anchor: int, start: int, rows: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the logits and the confidences of a block, and forget it."""
        rows = rows or self.drafted.block_size
        logits = self.drafter.logits([anchor] + [self.drafted.mask] * (rows - 1), start)
        nextn = llama_cpp_ext.llama_get_embeddings_nextn(self.drafter.context)
        self.drafter.rewind(start)
        return logits, matrix(nextn, rows, self.drafter.n_embd)[:, 0]

    def proposals(self, anchor: int, start: int, rows: int | None = None) -> list[int]:
        logits, _ = self.draft(anchor, start, rows)
        return logits.argmax(axis=1)[self.drafted.first_row :].tolist()


@contextmanager
def opened(target: Target, drafter: Drafter | None = None) -> Iterator[Model | Pair]:
    with ExitStack() as owned:
        if drafter is None:
            yield Model(owned, target.path, n_ctx=256, n_batch=512, n_outputs_max=64)
        else:
            yield Pair(owned, target, drafter)


# --- the vocabulary -----------------------------------------------------------------------------


def piece(model: Model, token: int) -> bytes:
    room = ctypes.create_string_buffer(32)
    size = llama_cpp.llama_token_to_piece(model.vocab, token, room, len(room), 0, False)
    return room.raw[:size]


def tokenize(model: Model, text: bytes) -> list[int]:
    room = (llama_cpp.llama_token * 64)()
    return room[: llama_cpp.llama_tokenize(model.vocab, text, len(text), room, 64, True, True)]


def test_a_byte_is_its_own_token(tmp_path):
    """The ids of the 256 byte tokens are the bytes, so a test can write a prompt as bytes."""
    with opened(write_rigged_target(tmp_path / "t.gguf", next_token=step_by_seven)) as model:
        assert [piece(model, byte) for byte in range(256)] == [bytes([b]) for b in range(256)]


def test_text_survives_tokenizing(tmp_path):
    """Merged tokens and control tokens are found, and the pieces add up to the text."""
    text = "then and there, \N{ROCKET} in 7 minutes"
    with opened(write_rigged_target(tmp_path / "t.gguf", next_token=step_by_seven)) as model:
        tokens = tokenize(model, text.encode())
        assert b"".join(piece(model, token) for token in tokens).decode() == text
        assert len(tokens) < len(text.encode())
        assert tokenize(model, b"<|im_end|></s>") == [IM_END, EOS]


def test_the_vocabulary_names_its_special_tokens(tmp_path):
    """llama.cpp finds the end tokens, the start token and the chat template where we put them."""
    vocabulary = Vocabulary(add_bos=True, eos=EOS, chat_template="{{ messages }}")
    target = write_rigged_target(
        tmp_path / "t.gguf", next_token=step_by_seven, vocabulary=vocabulary
    )
    with opened(target) as model:
        ends = [t for t in range(288) if llama_cpp.llama_vocab_is_eog(model.vocab, t)]
        assert ends == [EOS, IM_END]
        assert tokenize(model, b"a") == [BOS, ord("a")]
        assert llama_cpp.llama_model_chat_template(model.model, None) == b"{{ messages }}"


# --- targets ------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["llama", "qwen3"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_rigged_target_follows_its_table(tmp_path, arch, dtype):
    """The likeliest token after any token is the table's, with the logit we asked for."""
    table = np.random.default_rng(3).permutation(VOCABULARY_SIZE).tolist()
    target = write_rigged_target(tmp_path / "t.gguf", next_token=table, arch=arch, dtype=dtype)

    with opened(target) as model:
        answer = model.greedy([5], 30)
        model.rewind()
        logits = model.logits(list(range(64)))

    assert answer == [table[token] for token in [5, *answer[:-1]]]
    np.testing.assert_allclose(logits.max(axis=1), 17.0, rtol=1e-3)
    assert (np.count_nonzero(logits, axis=1) == 1).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_only_the_nan_token_spoils_its_own_row(tmp_path, dtype):
    """Logits are NaN after the one token; rows around it, and after a rewind, are not."""
    target = write_rigged_target(
        tmp_path / "t.gguf", next_token=step_by_seven, nan_token=ord("!"), dtype=dtype
    )
    with opened(target) as model:
        logits = model.logits(list(b"ab!cd"))
        model.rewind(2)
        after = model.logits(list(b"xy"), 2)

    assert np.isnan(logits).all(axis=1).tolist() == [False, False, True, False, False]
    assert np.isfinite(logits[[0, 1, 3, 4]]).all()
    assert after.argmax(axis=1).tolist() == [step_by_seven(token) for token in b"xy"]


@pytest.mark.parametrize("arch", ["llama", "qwen3"])
def test_a_random_target_agrees_with_the_reference(tmp_path, arch):
    """Our equations give llama.cpp's logits, for a whole text and token by token."""
    target = write_random_target(tmp_path / "t.gguf", arch=arch)
    expected = TargetReference(target).forward(PROMPT).logits

    with opened(target) as model:
        together = model.logits(PROMPT)
        model.rewind()
        one_by_one = [model.logits([token], i)[0] for i, token in enumerate(PROMPT)]

    np.testing.assert_allclose(together, expected, atol=TOLERANCE)
    np.testing.assert_allclose(one_by_one, expected, atol=TOLERANCE)


@pytest.mark.parametrize("arch", ["llama", "qwen3"])
def test_a_random_target_listens_to_the_whole_text(tmp_path, arch):
    """Another first token often changes the next one, and nearly always the next eight."""
    target = write_random_target(tmp_path / "t.gguf", arch=arch)
    reference = TargetReference(target)
    answers = np.array(
        [
            [greedy(reference, [first, *PROMPT[1:length]], 8) for first in b"TUVWXYZ"]
            for length in (8, 16, 24, 30)
        ]
    )
    changed = answers[:, 1:] != answers[:, :1]

    assert changed[:, :, 0].mean() > 0.3
    assert changed.any(axis=2).mean() > 0.8


def test_a_random_target_speaks_printable_ascii_without_end(tmp_path):
    """A greedy answer never meets an end token or half a character."""
    target = write_random_target(tmp_path / "t.gguf")
    with opened(target) as model:
        answer = model.greedy(PROMPT, 100)
        text = b"".join(piece(model, token) for token in answer)

    assert answer[:20] == greedy(TargetReference(target), PROMPT, 20)
    assert text.isascii()
    assert text.decode().isprintable()
    assert len(set(answer)) > 10


@pytest.mark.parametrize("arch", ["llama", "qwen3"])
def test_taps_are_the_inputs_of_the_layers(tmp_path, arch):
    """llama.cpp hands out, row by row, what the reference feeds to each layer."""
    target = write_random_target(tmp_path / "t.gguf", arch=arch)
    drafter = write_random_drafter(tmp_path / "d.gguf", target, taps=(0, 3, 1))

    with opened(target, drafter) as pair:
        taps = pair.read(PROMPT)

    expected = TargetReference(target).forward(PROMPT).taps(drafter.taps)
    np.testing.assert_allclose(taps, expected, atol=TOLERANCE)


# --- drafters -----------------------------------------------------------------------------------

EVEN_TOKENS = range(0, VOCABULARY_SIZE, 2)

DRAFTERS = {
    "borrowed embeddings": write_random_drafter,
    "own embeddings": partial(write_random_drafter, own_embeddings=True),
    "no confidence": partial(write_random_drafter, confidence=False),
    "bonus anchor": partial(write_random_drafter, sample_from_anchor=False),
    "draft vocabulary": partial(write_random_drafter, draft_vocab=EVEN_TOKENS),
    "draft vocabulary, own embeddings, unordered": partial(
        write_random_drafter, draft_vocab=EVEN_TOKENS[::-1], own_embeddings=True
    ),
    "draft vocabulary, bonus anchor": partial(
        write_random_drafter, draft_vocab=EVEN_TOKENS, sample_from_anchor=False
    ),
    "three taps, block of 7": partial(write_random_drafter, taps=(3, 0, 2), block_size=7),
    "plain DFlash": partial(write_random_drafter, markov_rank=None),
    "plain DFlash, own embeddings": partial(
        write_random_drafter, markov_rank=None, own_embeddings=True
    ),
    "taught": lambda path, target: write_taught_drafter(path, target, [PROMPT]),
}


@pytest.mark.parametrize("write", DRAFTERS.values(), ids=DRAFTERS)
def test_a_drafter_agrees_with_the_reference(tmp_path, write):
    """Logits, proposals and confidences of a block are those of our equations."""
    target = write_random_target(tmp_path / "t.gguf")
    drafter = write(tmp_path / "d.gguf", target)
    reference = DrafterReference(drafter, target)
    context, anchor = PROMPT[:-1], PROMPT[-1]
    taps = TargetReference(target).forward(context).taps(drafter.taps)

    with opened(target, drafter) as pair:
        pair.read(context)
        for rows in (drafter.block_size, 3, 2):
            expected = reference.propose(taps, anchor, rows)
            logits, confidences = pair.draft(anchor, len(context), rows)
            np.testing.assert_allclose(logits, expected.logits, atol=TOLERANCE)
            assert pair.proposals(anchor, len(context), rows) == expected.proposals
            if expected.confidences is not None:
                read = confidences[drafter.first_row :]
                np.testing.assert_allclose(read, expected.confidences, atol=TOLERANCE)


def test_a_random_drafter_listens_to_the_taps(tmp_path):
    """Another context gives other proposals for the same anchor."""
    target = write_random_target(tmp_path / "t.gguf")
    drafter = write_random_drafter(tmp_path / "d.gguf", target, block_size=6)
    with opened(target, drafter) as pair:
        blocks = []
        for first in b"TUVWXYZ":
            pair.read([first, *PROMPT[1:]])
            blocks.append(tuple(pair.proposals(ord("a"), len(PROMPT))))

    assert len(set(blocks)) > 3


@pytest.mark.parametrize("own_embeddings", [False, True])
@pytest.mark.parametrize("taps", [(1, 2), (0,), (2, 0, 1)])
def test_a_rigged_drafter_proposes_what_it_knows(tmp_path, own_embeddings, taps):
    """Each token of a block is the table's successor of the one before."""
    target = write_rigged_target(tmp_path / "t.gguf", next_token=step_by_seven)
    drafter = write_rigged_drafter(
        tmp_path / "d.gguf",
        target,
        knows=step_by_seven,
        own_embeddings=own_embeddings,
        taps=taps,
        block_size=5,
    )
    with opened(target, drafter) as pair:
        pair.read(PROMPT)
        logits, _ = pair.draft(100, len(PROMPT))

    assert logits.argmax(axis=1).tolist() == [107, 114, 121, 128, 135]
    np.testing.assert_allclose(logits.max(axis=1), 10.0)
    assert (np.count_nonzero(logits, axis=1) == 1).all()


def test_a_rigged_drafter_states_the_confidence_it_was_given(tmp_path):
    """The confidence of a row depends on the token before it alone, zero and one included."""
    certainty = {100: 0.9, 107: 0.25, 114: 1.0, 121: 0.0}
    target = write_rigged_target(tmp_path / "t.gguf", next_token=step_by_seven)
    drafter = write_rigged_drafter(
        tmp_path / "d.gguf",
        target,
        knows=step_by_seven,
        confidence=lambda previous: certainty.get(previous, 0.5),
    )
    with opened(target, drafter) as pair:
        pair.read(PROMPT)
        _, confidences = pair.draft(100, len(PROMPT))

    np.testing.assert_allclose(confidences, list(certainty.values()), atol=1e-6)


def test_a_rigged_drafter_proposes_only_from_its_draft_vocabulary(tmp_path):
    """Tokens outside have logit minus infinity, and a proposal inside is the table's."""
    target = write_rigged_target(tmp_path / "t.gguf", next_token=step_by_seven)
    drafter = write_rigged_drafter(
        tmp_path / "d.gguf",
        target,
        knows=lambda token: (token + 2) % VOCABULARY_SIZE,
        draft_vocab=EVEN_TOKENS,
    )
    with opened(target, drafter) as pair:
        pair.read(PROMPT)
        logits, _ = pair.draft(100, len(PROMPT))

    assert logits.argmax(axis=1).tolist() == [102, 104, 106, 108]
    assert np.isneginf(logits[:, 1::2]).all()
    assert np.isfinite(logits[:, ::2]).all()


def test_a_bonus_anchor_drafter_begins_with_its_second_row(tmp_path):
    """Without sample_from_anchor the chain starts in row 1, and a block holds one draft less."""
    target = write_rigged_target(tmp_path / "t.gguf", next_token=step_by_seven)
    drafter = write_rigged_drafter(
        tmp_path / "d.gguf", target, knows=step_by_seven, sample_from_anchor=False
    )
    with opened(target, drafter) as pair:
        pair.read(PROMPT)
        assert pair.proposals(100, len(PROMPT)) == [107, 114, 121]


def test_a_rigged_dflash_says_one_thing_in_row_0_and_another_after_it(tmp_path):
    """Reading a plain DFlash block from row 0 would show at once."""
    target = write_rigged_target(tmp_path / "t.gguf", next_token=step_by_seven)
    drafter = write_rigged_dflash(
        tmp_path / "d.gguf", target, mask_says=ord("m"), anchor_says=ord("a")
    )
    with opened(target, drafter) as pair:
        pair.read(PROMPT)
        logits, _ = pair.draft(100, len(PROMPT))
        assert pair.proposals(100, len(PROMPT)) == list(b"mmm")

    assert logits.argmax(axis=1).tolist() == list(b"ammm")


def test_a_taught_drafter_is_right_some_of_the_time(tmp_path):
    """Some blocks survive whole, some not at all: every path of a decode loop gets exercised."""
    target = write_random_target(tmp_path / "t.gguf")
    with opened(target) as model:
        lessons = [model.greedy([first, *PROMPT], 60) for first in b"abcdefgh"]
    drafter = write_taught_drafter(tmp_path / "d.gguf", target, lessons)

    survivors = []
    with opened(target, drafter) as pair:
        text = [ord("a"), *PROMPT]
        truth = text + lessons[0]
        for start in range(len(text), len(truth) - drafter.block_size - 1):
            pair.read(truth[:start])
            block = pair.proposals(truth[start], start)
            agrees = np.array(block) == truth[start + 1 : start + 1 + len(block)]
            survivors.append(int(np.cumprod(agrees).sum()))

    assert 0.25 < np.mean(survivors) / drafter.block_size < 0.75
    assert set(survivors) == set(range(drafter.block_size + 1))


# --- mutants ------------------------------------------------------------------------------------


def test_a_mutant_differs_in_what_was_asked_for_alone(tmp_path):
    """Keys and tensors can be replaced, added and left out one at a time."""
    target = write_rigged_target(tmp_path / "t.gguf", next_token=step_by_seven)
    write_rigged_drafter(tmp_path / "good.gguf", target, knows=step_by_seven)
    write_rigged_drafter(
        tmp_path / "bad.gguf",
        target,
        knows=step_by_seven,
        mutation=Mutation(
            metadata={
                "dflash.target_layers": [1, 9],
                "dflash.context_length": GGUFValue("long", GGUFValueType.STRING),
                "dflash.note": "added",
            },
            drop={"dflash.block_size"},
            tensors={"markov_w2.weight": None, "fc.weight": np.zeros((3, 2), np.float16)},
        ),
    )
    good, bad = (GGUFReader(tmp_path / name) for name in ("good.gguf", "bad.gguf"))

    def contents(reader: GGUFReader) -> dict[str, object]:
        fields = {name: field.contents() for name, field in reader.fields.items()}
        return {n: v for n, v in fields.items() if not n.startswith(("GGUF.", "general.name"))}

    def shapes(reader: GGUFReader) -> dict[str, list[int]]:
        return {tensor.name: tensor.shape.tolist() for tensor in reader.tensors}

    expected = contents(good) | {
        "dflash.target_layers": [1, 9],
        "dflash.context_length": "long",
        "dflash.note": "added",
    }
    del expected["dflash.block_size"]
    assert contents(bad) == expected
    left = shapes(good) | {"fc.weight": [2, 3]}
    del left["markov_w2.weight"]
    assert shapes(bad) == left
    assert contents(bad)["tokenizer.ggml.mask_token_id"] == MASK
