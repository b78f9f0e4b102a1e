"""Faults that users of other runners reported in public; the same input, and the right answer.

The reference in each docstring names the project and the thread: lc is ggml-org/llama.cpp, pr and
bd are PrismML-Eng's llama.cpp and Bonsai-demo, lcp is abetlen/llama-cpp-python. Reports whose
answer is a matter of counting stand in ``test_generate``, those about a single refusal in
``test_refusals``.
"""

import llama_cpp.llama_cpp as bindings
import pytest
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from pairs import (
    Mutation,
    Vocabulary,
    write_random_drafter,
    write_rigged_drafter,
    write_rigged_target,
)

from dspark_cli import Generation, GenerationOptions, MemoryOptions, PairOptions, open_pair
from dspark_cli.engine.context import ContextSettings, open_context
from dspark_cli.engine.model import open_model
from dspark_cli.errors import LlamaError
from dspark_cli.metadata import read_metadata
from dspark_cli.sizes import ContextSizes

MEMORY = MemoryOptions(ctx_size=256, threads=1)
PROMPT = ["-p", "abc", "-t", "1", "--stats", "none"]


def following(token: int) -> int:
    return token + 1 if ord("a") <= token < ord("z") else ord("a")


@pytest.fixture(scope="module")
def alphabet(tmp_path_factory):
    return write_rigged_target(
        tmp_path_factory.mktemp("reports") / "target.gguf", next_token=following
    )


@pytest.fixture(scope="module")
def knowing(tmp_path_factory, alphabet):
    return write_rigged_drafter(
        tmp_path_factory.mktemp("reports") / "drafter.gguf", alphabet, knows=following
    )


@pytest.fixture
def pair_arguments(alphabet, knowing):
    return ["run", "-m", alphabet.path, "-md", knowing.path]


@pytest.mark.parametrize("prompt", ["", "\n"])
def test_an_empty_prompt_is_no_crash(dspark, pair_arguments, tmp_path, prompt):
    """llama-speculative-simple dies of SIGSEGV; without a BOS there is nothing to go on from."""
    file = tmp_path / "prompt"
    file.write_text(prompt)

    outcome = dspark(*pair_arguments, "-f", file, "-t", "1")

    assert outcome.code == 2
    assert outcome.out == ""
    assert "the prompt is empty" in outcome.errors[0]


@pytest.mark.parametrize("count", [0, 1, 4, 5, 8])
def test_n_is_the_number_of_tokens(dspark, pair_arguments, count):
    """llama-speculative-simple: -n 8 gives 9 tokens, -n 0 gives 1."""
    outcome = dspark(*pair_arguments, *PROMPT, "-n", count)

    assert (outcome.code, outcome.out) == (0, "defghijk"[:count])


@pytest.mark.parametrize("draft_max", [0, 3, 5, 64])
def test_a_draft_length_is_never_clamped_in_silence(dspark, pair_arguments, draft_max):
    """llama-speculative-simple reports 64 though it drafts 5, and divides by zero at 0."""
    outcome = dspark(*pair_arguments, *PROMPT, "--spec-draft-n-max", draft_max)

    assert outcome.code == 4
    assert outcome.errors == [
        f"draft-dspark: --spec-draft-n-max ({draft_max}) must equal the drafter's block_size (4)"
    ]


def test_the_draft_length_comes_from_the_drafter(alphabet, knowing):
    """lc#25792, vllm#50012: a default of 3 or 7 on another block drafts badly or crashes."""
    with open_pair(PairOptions(alphabet.path, knowing.path, memory=MEMORY)) as pair:
        assert pair.drafter.draft_max == knowing.block_size == 4


def test_a_drafter_without_the_target_s_context_is_refused(knowing):
    """lc#26883, lc#26904: a null crash; here llama.cpp's own sentence and exit code 5."""
    sizes = ContextSizes(256, 256, 256, 256, 64, 5, 0, 0, 0)
    settings = ContextSettings(1, "f16", "f16", "auto")
    with (
        open_model(knowing.path) as model,
        pytest.raises(LlamaError, match="could not make the drafter's context") as refusal,
        open_context(model, "drafter", 288, sizes, settings),
    ):
        pass
    assert any("ctx_other" in line for line in refusal.value.log)


def test_a_failing_drafter_context_is_no_reason_to_go_on_without(
    dspark, pair_arguments, monkeypatch
):
    """lc#24922: it is only logged and decoding goes on unspeculated; pr#109: it crashes."""
    make = bindings.llama_init_from_model

    def out_of_memory(model, params):
        return None if params.ctx_other else make(model, params)

    monkeypatch.setattr(bindings, "llama_init_from_model", out_of_memory)

    outcome = dspark(*pair_arguments, *PROMPT)

    assert outcome.code == 5
    assert outcome.out == ""
    assert outcome.errors == ["llama.cpp could not make the drafter's context"]


def test_a_memory_that_cannot_be_cut_back_is_no_silent_corruption(
    dspark, pair_arguments, monkeypatch
):
    """lc#20080, lc#20075 and lcp's own loop ignore that llama_memory_seq_rm said no."""
    monkeypatch.setattr(bindings, "llama_memory_seq_rm", lambda *_: False)

    outcome = dspark(*pair_arguments, *PROMPT, "-n", "8")

    assert outcome.code == 5
    assert "memory cannot be rewound to position" in outcome.errors[0]


def test_a_drafter_s_buffers_do_not_grow_with_the_context(alphabet, knowing):
    """lc#28433, lc#25714: 5.9 GB for a drafter whose n_ubatch followed n_ctx."""
    memory = MemoryOptions(ctx_size=4096, threads=1)
    with open_pair(PairOptions(alphabet.path, knowing.path, memory=memory)) as pair:
        assert pair.drafter.context.n_batch == 4096 + 4
        assert pair.drafter.context.n_ubatch == 64


@pytest.mark.parametrize("ubatch", [1, 2])
def test_a_ubatch_below_the_block_is_enough(alphabet, knowing, ubatch):
    """lc#18757: non-causal attention wants n_ubatch rows, an assertion elsewhere."""
    memory = MemoryOptions(ctx_size=256, threads=1, ubatch_size=ubatch, batch_size=2)
    with open_pair(PairOptions(alphabet.path, knowing.path, memory=memory)) as pair:
        run = Generation(pair, list(b"abc"), GenerationOptions(n_predict=10))
        assert len(list(run)) > 1

    assert run.text == "defghijklm"


def test_a_target_that_names_no_end_is_warned_of(dspark, tmp_path):
    """mlx-dspark: a missing end token gave 8192 tokens instead of 14."""
    endless = write_rigged_target(
        tmp_path / "t.gguf",
        next_token=following,
        vocabulary=Vocabulary(chat_template="{{ messages[-1]['content'] }}"),
        mutation=Mutation(
            metadata={"tokenizer.ggml.tokens": [f"t{token}" for token in range(288)]},
            drop={"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"},
        ),
    )

    outcome = dspark("run", "-m", endless.path, "--no-draft", "--token-ids", ids(tmp_path),
                     "-c", "8", "-t", "1", "--stats", "none")  # fmt: skip

    assert outcome.code == 0
    assert "names no end-of-generation token" in outcome.err


def ids(folder):
    path = folder / "ids"
    path.write_text("97 98")
    return path


def test_help_and_version_need_no_llama_cpp(dspark, monkeypatch):
    """mlx-dspark#1: an import that breaks must not take the help with it."""
    monkeypatch.setitem(__import__("sys").modules, "llama_cpp", None)

    assert dspark("--version").code == 0
    assert "--model-draft" in dspark("run", "--help").out


@pytest.mark.parametrize("option", ["-ctkd", "-ctvd", "-td", "-ngld"])
def test_the_drafter_has_options_of_its_own(dspark, option):
    """lc#10552: cache types for the drafter were wished for."""
    assert option in dspark("run", "--help").out


@pytest.mark.parametrize("command", ["run", "check"])
def test_verbose_is_over_with_its_command(dspark, pair_arguments, command):
    """A program that runs two commands hears llama.cpp in the one that asked for it."""
    arguments = [command, *pair_arguments[1:], *PROMPT[:4], "-n", "2"]

    assert "DFlash extract_layers" in dspark(*arguments, "--verbose").err
    assert "DFlash extract_layers" not in dspark(*arguments).err


@pytest.mark.parametrize("kind", ["f16", "q8_0", "q4_0"])
def test_the_drafter_s_cache_type_is_what_was_asked_for(alphabet, tmp_path, kind):
    """lc#11200: another type than requested; lc#25725: quantised, drafts nobody accepts."""
    drafter = write_random_drafter(tmp_path / "d.gguf", alphabet, taps=(1, 2))
    memory = MemoryOptions(
        ctx_size=256, threads=1, cache_type_k_draft=kind, cache_type_v_draft=kind
    )
    with open_pair(PairOptions(alphabet.path, drafter.path, memory=memory)) as pair:
        run = Generation(pair, list(b"abc"), GenerationOptions(n_predict=10))
        assert len(list(run)) > 1
        cells = pair.plan.sizes.drafter.n_ctx
        # 2 layers x 3 heads x (32 + 32) elements per position
        per_position = {"f16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}[kind] * 2 * 3 * 64
        assert pair.plan.sizes.drafter.kv_bytes == int(cells * per_position)

    assert run.text == "defghijklm"


def split(target, folder):
    """The same model in several files, as gguf-py splits them."""
    reader = GGUFReader(target.path)
    writer = GGUFWriter(folder / "split.gguf", "llama", split_max_tensors=9)
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        value_type = field.types[0]
        inner = field.types[-1] if value_type is GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), value_type, inner)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.glob("split-*.gguf"))


def test_a_split_target_runs_from_its_first_file(dspark, alphabet, knowing, tmp_path):
    """As llama.cpp loads it: the name of the first part stands for all of them."""
    parts = split(alphabet, tmp_path)
    assert len(parts) > 2
    assert len(read_metadata(parts[0]).tensors) == len(read_metadata(alphabet.path).tensors)

    outcome = dspark("run", "-m", parts[0], "-md", knowing.path, *PROMPT, "-n", "8")

    assert (outcome.code, outcome.out) == (0, "defghijk")
