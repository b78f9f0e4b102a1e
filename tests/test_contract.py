"""A drafter fits its target, or every reason why it does not is said, before weights are loaded.

Each mutant differs from a fitting pair in one respect and must give exactly one sentence, which
names the thing, what was wanted and what was found.
"""

import tracemalloc
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFValueType
from gguf.gguf_writer import GGUFValue
from pairs import (
    RANDOM_SHAPE,
    TOKENS,
    VOCABULARY,
    Drafter,
    Mutation,
    Target,
    Vocabulary,
    write_random_drafter,
    write_random_target,
    write_rigged_dflash,
    write_rigged_drafter,
    write_rigged_target,
)

from dspark_cli.contract import TAPPABLE, check_pair, check_target, read_drafter, read_target
from dspark_cli.errors import ContractError, DsparkError
from dspark_cli.metadata import read_metadata
from dspark_cli.options import MemoryOptions
from dspark_cli.sizes import plan_sizes

WIDTH, LAYERS, RANK = RANDOM_SHAPE.n_embd, RANDOM_SHAPE.n_layer, 8
EVEN_TOKENS = range(0, len(TOKENS), 2)


def check(target: Target, drafter: Drafter | Target, draft_max: int | None = None):
    return check_pair(
        read_metadata(drafter.path), read_target(read_metadata(target.path)), draft_max=draft_max
    )


def complaints(
    target: Target, drafter: Drafter | Target, draft_max: int | None = None
) -> tuple[tuple[str, ...], str | None]:
    """Every sentence of the refusal, and its hint."""
    with pytest.raises(ContractError) as refusal:
        check(target, drafter, draft_max)
    return refusal.value.problems, refusal.value.hint


def matrix(rows: int, columns: int) -> np.ndarray:
    return np.zeros((rows, columns), np.float32)


def swapped(one: int, other: int) -> Vocabulary:
    tokens = list(TOKENS)
    tokens[one], tokens[other] = tokens[other], tokens[one]
    return Vocabulary(tuple(tokens))


# --- pairs that fit -----------------------------------------------------------------------------

FITTING: dict[str, dict] = {
    "a drafter that borrows everything": {},
    "its own embeddings and head": {"own_embeddings": True},
    "no confidence": {"confidence": False},
    "plain DFlash": {"markov_rank": None},
    "bonus anchor": {"sample_from_anchor": False},
    "a draft vocabulary": {"draft_vocab": EVEN_TOKENS},
    "taps out of order": {"taps": (3, 0, 1)},
    "the first and the last layer": {"taps": (0, LAYERS - 1)},
    "one tap": {"taps": (2,)},
    "a block of 2": {"block_size": 2},
    "half precision": {"dtype": np.float16},
    "an unknown key": {"mutation": Mutation(metadata={"dflash.note": "harmless"})},
    "no word about the anchor": {"mutation": Mutation(drop={"dflash.sample_from_anchor"})},
    "values made of keys": {
        "mutation": Mutation(tensors=dict.fromkeys(f"blk.{i}.attn_v.weight" for i in range(2)))
    },
}


@pytest.mark.parametrize("options", FITTING.values(), ids=FITTING)
def test_what_llama_cpp_can_run_fits(tmp_path, target, options):
    """None of the choices that a drafter's maker has is held against it."""
    drafter = write_random_drafter(tmp_path / "d.gguf", target, **options)

    shape = check(target, drafter)

    assert shape.taps == drafter.taps
    assert shape.block_size == drafter.block_size
    assert shape.first_draft_row == drafter.first_row


@pytest.mark.parametrize("write", [write_rigged_drafter, write_rigged_dflash])
def test_the_pairs_of_our_own_tests_fit(tmp_path, write):
    """Rigged pairs pass the same check as any other."""
    target = write_rigged_target(tmp_path / "t.gguf", next_token=lambda token: token)
    says = (
        {"knows": lambda token: token}
        if write is write_rigged_drafter
        else {"mask_says": 1, "anchor_says": 2}
    )

    check(target, write(tmp_path / "d.gguf", target, **says))


@pytest.mark.parametrize(
    ("options", "drafts"),
    [
        ({}, 4),
        ({"block_size": 7}, 7),
        ({"sample_from_anchor": False}, 3),
        ({"markov_rank": None}, 3),
    ],
    ids=["DSpark", "a block of 7", "bonus anchor", "plain DFlash"],
)
def test_a_drafter_proposes_a_block_or_one_token_less(tmp_path, target, options, drafts):
    """Only a DSpark drafter that samples from its anchor row proposes block_size tokens."""
    drafter = write_random_drafter(tmp_path / "d.gguf", target, **options)

    assert check(target, drafter).draft_max == drafts
    assert check(target, drafter, draft_max=drafts).draft_max == drafts


def test_a_drafter_is_described_by_its_file(tmp_path, target):
    """What inspect shows is what was written."""
    shape = check(
        target, write_random_drafter(tmp_path / "d.gguf", target, draft_vocab=EVEN_TOKENS)
    )

    assert shape.name == "d.gguf"
    assert shape.dialect == "dspark"
    assert (shape.layers, shape.width, shape.vocabulary) == (2, WIDTH, 288)
    assert (shape.markov_rank, shape.draft_vocabulary, shape.mask_token) == (RANK, 144, 258)
    assert (shape.has_confidence, shape.has_embeddings, shape.has_head) == (True, False, True)
    assert (shape.causal, shape.mrope, shape.context_length) == (False, False, 4096)


# --- --spec-draft-n-max -------------------------------------------------------------------------

N_MAX = {
    "DSpark": (
        {},
        6,
        "draft-dspark: --spec-draft-n-max (6) must equal the drafter's block_size (4)",
    ),
    "DSpark, too few": (
        {},
        3,
        "draft-dspark: --spec-draft-n-max (3) must equal the drafter's block_size (4)",
    ),
    "DSpark, none": (
        {},
        0,
        "draft-dspark: --spec-draft-n-max (0) must equal the drafter's block_size (4)",
    ),
    "bonus anchor": (
        {"sample_from_anchor": False},
        4,
        "draft-dspark: --spec-draft-n-max (4) must equal the drafter's block_size - 1 (3)",
    ),
    "plain DFlash": (
        {"markov_rank": None},
        4,
        "draft-dflash: --spec-draft-n-max (4) must equal the drafter's block_size - 1 (3)",
    ),
}


@pytest.mark.parametrize(("options", "n_max", "sentence"), N_MAX.values(), ids=N_MAX)
def test_n_max_must_be_what_the_drafter_was_trained_for(
    tmp_path, target, options, n_max, sentence
):
    """The sentence is llama.cpp's own, so that a search finds its history."""
    drafter = write_random_drafter(tmp_path / "d.gguf", target, **options)

    assert complaints(target, drafter, n_max)[0] == (sentence,)


# --- one thing wrong with the drafter -----------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    """One way to be wrong, and the words that its one sentence must hold."""

    words: tuple[str, ...]
    change: Mutation = field(default_factory=Mutation)
    options: dict = field(default_factory=dict)


def without(*keys: str) -> Mutation:
    return Mutation(drop=set(keys))


def keys(**values: object) -> Mutation:
    return Mutation(metadata={f"dflash.{name}": value for name, value in values.items()})


def tensors(**arrays: np.ndarray | None) -> Mutation:
    """Change weights by name, a double underscore for the dot."""
    return Mutation(
        tensors={f"{name.replace('__', '.')}.weight": array for name, array in arrays.items()}
    )


def draft_ids(ids: np.ndarray) -> Mutation:
    return Mutation(tensors={"d2t": ids})


NARROW = {"draft_vocab": EVEN_TOKENS}
IDS = np.arange(0, 288, 2)

MUTANTS = {
    "no block_size": Mutant(("block_size", "dflash.block_size"), without("dflash.block_size")),
    "a block of 0": Mutant(("block_size", "says 0"), keys(block_size=0)),
    "a block of 1 whose anchor row is not read": Mutant(
        ("block_size", "says 1", "row 1"), options={"block_size": 1, "sample_from_anchor": False}
    ),
    "a block of 1 in plain DFlash": Mutant(
        ("block_size", "says 1"), options={"block_size": 1, "markov_rank": None}
    ),
    "no taps": Mutant(("taps", "dflash.target_layers"), without("dflash.target_layers")),
    "a negative tap": Mutant(("taps", "layer -1", "0 to 3"), keys(target_layers=[-1, 3])),
    "a tap of the final output": Mutant(
        ("taps", "layer 4", "0 to 3"), keys(target_layers=[1, LAYERS])
    ),
    "a tap beyond the end": Mutant(("taps", "layer 48", "0 to 3"), keys(target_layers=[1, 48])),
    "the same tap twice": Mutant(("taps", "layer 3", "2 times"), keys(target_layers=[3, 3])),
    "fc for fewer taps": Mutant(
        ("fc.weight", "(64, 64)", "(128, 64)"), tensors(fc=matrix(WIDTH, WIDTH))
    ),
    "two tokens swapped": Mutant(
        ("vocabulary", "token 97", "'b'", "'a'"), options={"vocabulary": swapped(97, 98)}
    ),
    "one token renamed": Mutant(
        ("vocabulary", "token 287", "'xx'", "'ed'"),
        options={"vocabulary": VOCABULARY.renamed(287, "xx")},
    ),
    "no tokenizer": Mutant(
        ("vocabulary", "no tokenizer", "288"), without("tokenizer.ggml.tokens")
    ),
    "no mask token": Mutant(
        ("mask token", "tokenizer.ggml.mask_token_id"), without("tokenizer.ggml.mask_token_id")
    ),
    "a mask token outside": Mutant(("mask token", "288", "vocabulary"), options={"mask": 288}),
    "draft ids for a borrowed head": Mutant(
        ("head", "d2t", "144", "288"), tensors(output=None), NARROW
    ),
    "a draft id outside": Mutant(
        ("d2t", "1 of 144", "288"), draft_ids(np.array([*IDS[:-1], 288])), NARROW
    ),
    "a negative draft id": Mutant(
        ("d2t", "1 of 144", "288"), draft_ids(np.array([-1, *IDS[1:]])), NARROW
    ),
    "a draft id twice": Mutant(
        ("d2t", "1 of 144", "more than once"), draft_ids(np.array([IDS[1], *IDS[1:]])), NARROW
    ),
    "draft ids in 32 bits": Mutant(("d2t", "I32", "I64"), draft_ids(IDS.astype(np.int32)), NARROW),
    "draft ids as floats": Mutant(
        ("d2t", "F32", "I64"), draft_ids(IDS.astype(np.float32)), NARROW
    ),
    "half a Markov head": Mutant(("markov_w2.weight",), tensors(markov_w2=None)),
    "Markov ranks that differ": Mutant(
        ("markov_w2.weight", "(9, 288)", "(8, 288)"), tensors(markov_w2=matrix(288, 9))
    ),
    "a Markov head for another vocabulary": Mutant(
        ("markov_w2.weight", "(8, 300)", "(8, 288)"), tensors(markov_w2=matrix(300, RANK))
    ),
    "confidence from the hidden state alone": Mutant(
        ("conf_proj.weight", "(64, 1)", "(72, 1)"), tensors(conf_proj=matrix(1, WIDTH))
    ),
    "confidence without a Markov head": Mutant(
        ("conf_proj.weight", "Markov"),
        tensors(conf_proj=matrix(1, WIDTH)),
        {"markov_rank": None},
    ),
    "log-SNR conditioning": Mutant(
        ("log_snr_fc1.weight",), tensors(log_snr_fc1=matrix(WIDTH, 128))
    ),
    "fused attention": Mutant(
        ("blk.0.attn_qkv.weight",), tensors(blk__0__attn_qkv=matrix(WIDTH, 128))
    ),
    "an attention bias": Mutant(
        ("blk.0.attn_q.bias",),
        Mutation(tensors={"blk.0.attn_q.bias": np.zeros(64, np.float32)}),
    ),
    "a bias of the fusion": Mutant(
        ("fc.bias",), Mutation(tensors={"fc.bias": np.zeros(WIDTH, np.float32)})
    ),
    "a tensor of a layer that block_count does not count": Mutant(
        ("blk.2.attn_norm.weight",),
        Mutation(tensors={"blk.2.attn_norm.weight": np.zeros(WIDTH, np.float32)}),
    ),
    "the other half of a Markov head": Mutant(
        ("markov_w2.weight",), tensors(markov_w2=matrix(288, RANK)), {"markov_rank": None}
    ),
    "a layer without its norm": Mutant(
        ("blk.1.attn_q_norm.weight",), tensors(blk__1__attn_q_norm=None)
    ),
    "no final norm": Mutant(("output_norm.weight",), tensors(output_norm=None)),
    "no fusion": Mutant(("fc.weight",), tensors(fc=None)),
    "keys as wide as another head count": Mutant(
        ("blk.0.attn_k.weight", "(64, 64)", "(64, 32)"),
        tensors(blk__0__attn_k=matrix(64, WIDTH)),
    ),
    "keys and values of different length": Mutant(
        ("attention", "key_length 16", "value_length 32"),
        Mutation(metadata={"dflash.attention.value_length": 32}),
    ),
    "the dialect of the fork": Mutant(
        ("PrismML", "architecture dspark", "dflash"),
        Mutation(metadata={"general.architecture": "dspark"}),
    ),
    "DFlash2": Mutant(
        ("DFlash2", "selector", "DSpark or DFlash"),
        tensors(selector_hidden=matrix(WIDTH, WIDTH)),
    ),
    "DeepSeek-V4 stages": Mutant(
        ("DeepSeek-V4", "hyper_connection", "DSpark or DFlash"),
        Mutation(metadata={"dflash.hyper_connection.count": 4}),
    ),
    "an EAGLE drafter": Mutant(
        ("no drafter", "eagle3", "dflash"),
        Mutation(metadata={"general.architecture": "eagle3"}),
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_one_thing_wrong_gives_one_sentence(tmp_path, target, mutant):
    """The sentence names the thing, what was found and what was wanted, and nothing else."""
    drafter = write_random_drafter(
        tmp_path / "d.gguf", target, mutation=mutant.change, **mutant.options
    )

    problems, _ = complaints(target, drafter)

    assert len(problems) == 1, problems
    for words in mutant.words:
        assert words in problems[0]


def test_a_drafter_of_another_width_is_refused(tmp_path, target):
    """A drafter that is sound in itself but belongs to a narrower model is told so once."""
    narrower = write_random_target(
        tmp_path / "t.gguf", shape=replace(RANDOM_SHAPE, n_embd=32), vocabulary=VOCABULARY
    )
    drafter = write_random_drafter(tmp_path / "d.gguf", narrower)

    assert complaints(target, drafter)[0] == ("width: the drafter expects 32, the target has 64",)


def test_a_drafter_of_another_vocabulary_is_refused(tmp_path, target):
    """One token more, and a drafter that is sound in itself is told both sizes once."""
    larger = write_random_target(tmp_path / "t.gguf", vocabulary=Vocabulary((*TOKENS, "<extra>")))
    drafter = write_random_drafter(tmp_path / "d.gguf", larger)

    assert complaints(target, drafter)[0] == (
        "vocabulary: the drafter has 289 tokens, the target 288",
    )


@pytest.mark.parametrize(
    "value",
    [
        GGUFValue("1,3", GGUFValueType.STRING),
        GGUFValue(["1", "3"], GGUFValueType.ARRAY, GGUFValueType.STRING),
        GGUFValue([1.0, 3.0], GGUFValueType.ARRAY, GGUFValueType.FLOAT32),
    ],
    ids=["a text", "texts", "floats"],
)
def test_taps_that_are_no_layer_numbers_are_refused(tmp_path, target, value):
    """A key of the wrong type is as good as none, and never a crash."""
    drafter = write_random_drafter(tmp_path / "d.gguf", target, mutation=keys(target_layers=value))

    assert complaints(target, drafter)[0][0].startswith("taps: ")


def test_everything_wrong_is_said_at_once(tmp_path, target):
    """Nobody has to repair one thing to hear of the next."""
    drafter = write_random_drafter(
        tmp_path / "d.gguf",
        target,
        vocabulary=swapped(97, 98),
        mutation=Mutation(
            metadata={"dflash.target_layers": [1, 9]},
            tensors={"log_snr_fc1.weight": matrix(WIDTH, 128), "markov_w2.weight": None},
        ),
    )

    problems, _ = complaints(target, drafter, draft_max=6)

    things = [problem.split(":")[0] for problem in problems]
    assert things == ["draft-dspark", "taps", "vocabulary", "tensors", "tensors"]


def test_the_exception_holds_every_sentence(tmp_path, target):
    """As one message for a log, and one by one for a screen."""
    drafter = write_random_drafter(
        tmp_path / "d.gguf", target, mutation=keys(target_layers=[7, 9])
    )
    with pytest.raises(ContractError) as refusal:
        check(target, drafter)

    assert len(refusal.value.messages) == 2
    assert str(refusal.value) == "; ".join(refusal.value.messages)


# --- hints --------------------------------------------------------------------------------------


def test_the_fork_dialect_is_sent_to_the_converter(tmp_path, target):
    """A file in the fork's dialect comes with a word on what makes the other of it."""
    drafter = write_random_drafter(
        tmp_path / "d.gguf", target, mutation=MUTANTS["the dialect of the fork"].change
    )

    assert "dspark convert" in complaints(target, drafter)[1]


def test_a_target_given_as_drafter_is_told_apart(target):
    """The refusal names the architecture found, and which option is which."""
    problems, hint = complaints(target, target)

    assert problems == ("target.gguf is no drafter: architecture llama, wanted dflash",)
    assert "-m" in hint
    assert "-md" in hint


# --- the target ---------------------------------------------------------------------------------


def target_of(tmp_path: Path, arch: str, **metadata: object) -> Target:
    """A target under another architecture's name; only its metadata is of use."""
    change = Mutation(metadata={f"{arch}.{name}": value for name, value in metadata.items()})
    return write_random_target(tmp_path / f"{arch}.gguf", arch=arch, mutation=change)


@pytest.mark.parametrize("arch", ["gemma3", "qwen2", "gpt2", "mistral4", "phi3"])
def test_a_target_that_llama_cpp_cannot_tap_is_refused(tmp_path, drafter, arch):
    """llama.cpp would abort the process; here its architecture is named, with those that work."""
    problems, _ = complaints(target_of(tmp_path, arch), drafter)

    assert len(problems) == 1
    assert f"cannot tap {arch} targets" in problems[0]
    assert "llama" in problems[0]
    assert "qwen3" in problems[0]


@pytest.mark.parametrize("arch", TAPPABLE)
def test_every_tappable_target_is_accepted(tmp_path, drafter, arch):
    """The architecture is no obstacle where llama.cpp publishes the taps."""
    check(target_of(tmp_path, arch), drafter)


@pytest.mark.parametrize("arch", TAPPABLE)
def test_only_some_targets_publish_their_final_output(tmp_path, target, arch):
    """Tap n_layer is legal on deepseek4, mimo2 and nemotron_h; anywhere else it would abort."""
    drafter = write_random_drafter(tmp_path / "d.gguf", target, taps=(1, LAYERS))
    publishes = arch in {"deepseek4", "mimo2", "nemotron_h", "nemotron_h_moe"}

    try:
        check(target_of(tmp_path, arch), drafter)
        problems = ()
    except ContractError as refusal:
        problems = refusal.problems

    about_taps = [problem for problem in problems if problem.startswith("taps: ")]
    assert len(about_taps) == (0 if publishes else 1)


def test_beyond_the_final_output_there_is_nothing_to_tap(tmp_path, target):
    """Not even where the final output can be tapped."""
    drafter = write_random_drafter(tmp_path / "d.gguf", target, taps=(1, LAYERS + 1))

    problems, _ = complaints(target_of(tmp_path, "mimo2"), drafter)

    assert len(problems) == 1
    assert "layer 5" in problems[0]
    assert "0 to 4" in problems[0]


def test_appended_prediction_layers_cannot_be_tapped(tmp_path, drafter):
    """Multi-token-prediction layers stand in block_count, but are no part of the trunk."""
    target = target_of(tmp_path, "qwen3moe", nextn_predict_layers=1)

    assert read_target(read_metadata(target.path)).layers == 3
    problems, _ = complaints(target, drafter)
    assert len(problems) == 1
    assert "layer 3" in problems[0]
    assert "0 to 2" in problems[0]


def lacking(tmp_path: Path, *names: str) -> Target:
    change = Mutation(tensors=dict.fromkeys(names))
    return write_random_target(tmp_path / "t.gguf", mutation=change)


def test_embeddings_cannot_be_borrowed_where_there_are_none(tmp_path, drafter):
    """llama.cpp would abort; here the missing tensor is named."""
    problems, _ = complaints(lacking(tmp_path, "token_embd.weight"), drafter)

    assert len(problems) == 1
    assert "token_embd.weight" in problems[0]


def test_a_head_cannot_be_borrowed_where_there_is_none(tmp_path, drafter):
    """Neither a head nor embeddings to tie it to: both are named."""
    problems, _ = complaints(lacking(tmp_path, "token_embd.weight", "output.weight"), drafter)

    assert [problem.split(":")[0] for problem in problems] == ["embeddings", "head"]


def test_a_tied_head_can_be_borrowed(tmp_path, drafter):
    """A target without output.weight uses its embeddings, and so may the drafter."""
    check(lacking(tmp_path, "output.weight"), drafter)


@pytest.mark.parametrize("arch", ["dflash", "dspark", "eagle3"])
def test_a_drafter_is_no_target(tmp_path, target, arch):
    """Whoever confuses -m and -md is told what the file is."""
    file = write_random_drafter(
        tmp_path / "d.gguf", target, mutation=Mutation(metadata={"general.architecture": arch})
    )

    with pytest.raises(ContractError, match=rf"d\.gguf is a drafter \(architecture {arch}\)"):
        check_target(read_target(read_metadata(file.path)))


@pytest.mark.parametrize(
    "missing", ["llama.block_count", "llama.embedding_length", "tokenizer.ggml.tokens"]
)
def test_a_file_that_is_no_language_model_is_no_target(tmp_path, missing):
    """Adapters and projectors are GGUF files too."""
    file = write_random_target(tmp_path / "t.gguf", mutation=Mutation(drop={missing}))

    with pytest.raises(ContractError, match="is no language model"):
        check_target(read_target(read_metadata(file.path)))


# --- damage -------------------------------------------------------------------------------------


def test_a_claim_of_endless_layers_is_refused_in_one_readable_sentence(tmp_path, target):
    """What the file says of itself is no reason to work or to write without end."""
    drafter = write_random_drafter(tmp_path / "d.gguf", target, mutation=keys(block_count=20_000))

    problems, _ = complaints(target, drafter)

    assert len(problems) == 1
    assert len(problems[0]) < 2000


@pytest.mark.parametrize("layers", [2**16, 2**24])
def test_a_target_of_endless_layers_costs_no_memory(tmp_path, layers):
    """A count that no tensor backs is not worth a table of its size."""
    change = Mutation(metadata={"llama.block_count": layers})
    metadata = read_metadata(write_random_target(tmp_path / "t.gguf", mutation=change).path)

    tracemalloc.start()
    try:
        with suppress(DsparkError):
            check_target(read_target(metadata))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 1_000_000


WRONG_VALUES = {
    "gone": Mutation(),
    "a text": GGUFValue("four", GGUFValueType.STRING),
    "texts": GGUFValue(["4"], GGUFValueType.ARRAY, GGUFValueType.STRING),
    "a truth": GGUFValue(True, GGUFValueType.BOOL),
    "zero": GGUFValue(0, GGUFValueType.UINT32),
    "negative": GGUFValue(-5, GGUFValueType.INT32),
}
HUGE = GGUFValue(2**32 - 1, GGUFValueType.UINT32)
NUMBERS = (
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "context_length",
)


def with_value(name: str, value: GGUFValue | Mutation) -> Mutation:
    return (
        Mutation(drop={name}) if isinstance(value, Mutation) else Mutation(metadata={name: value})
    )


@pytest.mark.parametrize("value", WRONG_VALUES.values(), ids=WRONG_VALUES)
def test_a_drafter_must_say_how_many_layers_it_has(tmp_path, target, value):
    """llama.cpp would refuse its tensors without saying why."""
    drafter = write_random_drafter(
        tmp_path / "d.gguf", target, mutation=with_value("dflash.block_count", value)
    )

    complaints(target, drafter)


@pytest.mark.parametrize("value", [*WRONG_VALUES.values(), HUGE], ids=[*WRONG_VALUES, "huge"])
@pytest.mark.parametrize("name", NUMBERS)
def test_a_nonsensical_number_is_never_a_crash(tmp_path, target, drafter, name, value):
    """In a drafter or in a target, it is refused or overruled, and the sizes can be planned."""
    files = [
        (
            target,
            write_random_drafter(
                tmp_path / "d.gguf", target, mutation=with_value(f"dflash.{name}", value)
            ),
        ),
        (
            write_random_target(tmp_path / "t.gguf", mutation=with_value(f"llama.{name}", value)),
            drafter,
        ),
    ]
    for ours, theirs in files:
        shape = read_target(read_metadata(ours.path))
        with suppress(DsparkError):
            check_target(shape)
            check(ours, theirs)
        with suppress(DsparkError):
            plan_sizes(shape, read_drafter(read_metadata(theirs.path)), MemoryOptions())


def test_a_drafter_read_alone_needs_no_target(drafter):
    """inspect describes a drafter whatever the target is."""
    shape = read_drafter(read_metadata(drafter.path))

    assert shape.taps == (1, 3)
    assert shape.type_name == "draft-dspark"
