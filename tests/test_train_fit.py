"""Fitting and exporting: one function in PyTorch and in llama.cpp, a training that lasts."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from fakes import full_disk
from pairs import VOCABULARY, Shape, write_random_target
from reference import DrafterReference

torch = pytest.importorskip("torch", reason="needs the extra train")
pytest.importorskip("matplotlib", reason="needs the extra train")

from pairs import Drafter  # noqa: E402

from dspark_cli import MemoryOptions, PairOptions, find_drafter, find_target, open_pair  # noqa: E402
from dspark_cli.contract import TEMPERATURES_KEY  # noqa: E402
from dspark_cli.errors import DsparkError, UsageError  # noqa: E402
from dspark_cli.metadata import read_metadata  # noqa: E402
from dspark_cli.train.dataset import Dataset, DatasetWriter  # noqa: E402
from dspark_cli.train.design import DesignOptions, design_drafter  # noqa: E402
from dspark_cli.train.export import write_drafter  # noqa: E402
from dspark_cli.train.faithful import compare_proposals  # noqa: E402
from dspark_cli.train.fit import (  # noqa: E402
    FitOptions,
    Judgement,
    choose_device,
    held_out,
)
from dspark_cli.train.loss import (  # noqa: E402
    CROSS_ENTROPY,
    GAMMA,
    TOTAL_VARIATION,
    Labels,
    loss_of,
)
from dspark_cli.train.model import TrainedDrafter  # noqa: E402
from dspark_cli.train.pipeline import CollectOptions, collect, open_teaching  # noqa: E402
from dspark_cli.train.trust import (  # noqa: E402
    ConfidenceHead,
    learn_trust,
    reached_rows,
    surprise,
)
from dspark_cli.train.weights import half_rotated, initial_weights, read_weights  # noqa: E402

SHAPE = Shape(n_embd=32, n_head=2, n_head_kv=1, head_dim=16, n_layer=3, n_ff=48)


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Tests run beside each other; PyTorch would take every core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def design(target, **options):
    return design_drafter(target.path, DesignOptions(**{"markov_rank": 8, **options}))


def random_weights(drafter_design, target, draft_tokens, seed=0):
    """Weights in which everything matters: no head is zero, no norm is one."""
    scale = np.ones(drafter_design.tap_width, np.float32)
    weights = initial_weights(
        drafter_design, read_metadata(target.path), draft_tokens, scale, seed=seed
    )
    random = np.random.default_rng(seed)
    return {
        name: (values + 0.3 * random.normal(size=values.shape)).astype(np.float32)
        for name, values in weights.items()
    }


def trained(target, drafter_design, draft_tokens, weights, tap_scale=None):
    return TrainedDrafter(
        drafter_design,
        weights,
        embedding=target.weights["token_embd.weight"].astype(np.float32),
        head=target.weights["output.weight"][draft_tokens].astype(np.float32),
        draft_tokens=draft_tokens,
        tap_scale=np.ones(drafter_design.tap_width) if tap_scale is None else tap_scale,
    )


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def talker(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("talker") / f"{request.param}.gguf"
    return write_random_target(path, shape=SHAPE, arch=request.param)


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A target, and 3,000 tokens of its own words with their taps."""
    folder = tmp_path_factory.mktemp("words")
    target = write_random_target(folder / "target.gguf", shape=SHAPE, vocabulary=VOCABULARY)
    prompts = folder / "prompts.txt"
    prompts.write_text("".join(f"tell me about {number}\n" for number in range(60)))
    options = CollectOptions(tokens=3000, prompts=prompts, answer_tokens=24, lanes=8, threads=1)
    collect(target.path, design(target), options, folder, progress=lambda *_: None)
    return target, folder


# --- one function, two implementations -----------------------------------------------------------


@pytest.mark.parametrize("pruned", [False, True])
@pytest.mark.parametrize("block_size", [1, 4, 5])
def test_pytorch_computes_what_the_equations_say(talker, block_size, pruned):
    """Proposals and confidences are those of a numpy forward pass that shares no code."""
    plan = design(talker, block_size=block_size)
    tokens = np.arange(3, 288, 3) if pruned else np.arange(288)
    weights = random_weights(plan, talker, tokens)
    drafter = trained(talker, plan, tokens, weights)
    stored = {**weights}
    if pruned:
        stored |= {"d2t": tokens, "output.weight": talker.weights["output.weight"][tokens]}
    reference = DrafterReference(
        Drafter(
            talker.path, _drafter_shape(plan), VOCABULARY, block_size, plan.taps,
            plan.mask_token, True, stored,
        ),
        talker,
    )  # fmt: skip
    taps = np.random.default_rng(1).normal(size=(9, plan.tap_width)).astype(np.float32)
    anchors = np.array([1, 4, 9])

    ours = drafter.propose(
        torch.from_numpy(taps)[None],
        torch.from_numpy(anchors)[None],
        torch.tensor([[65, 66, 67]]),
    )

    for row, (anchor, token) in enumerate(zip(anchors, [65, 66, 67], strict=True)):
        expected = reference.propose(taps[:anchor], token)
        assert ours.tokens[row].tolist() == expected.proposals
        np.testing.assert_allclose(ours.confidences[row], expected.confidences, atol=1e-4)


def _drafter_shape(plan):
    return Shape(
        n_embd=plan.width, n_head=plan.heads, n_head_kv=plan.kv_heads, head_dim=plan.head_length,
        n_layer=plan.layers, n_ff=plan.feed_forward, rms_eps=plan.rms_epsilon,
        rope_base=plan.rope_base,
    )  # fmt: skip


@pytest.mark.parametrize("pruned", [False, True])
def test_the_exported_file_proposes_what_was_trained(talker, tmp_path, pruned):
    """llama.cpp and PyTorch draft the same tokens at every anchor of a target's own words."""
    target, folder = talker, tmp_path
    plan = design(target)
    prompts = folder / "prompts.txt"
    prompts.write_text("".join(f"tell me about {number}\n" for number in range(30)))
    options = CollectOptions(tokens=1000, prompts=prompts, answer_tokens=24, lanes=8, threads=1)
    collect(target.path, plan, options, folder, progress=lambda *_: None)
    tokens = np.arange(0, 288, 2) if pruned else np.arange(288)
    scale = np.linspace(0.5, 2, plan.tap_width).astype(np.float32)
    drafter = trained(target, plan, tokens, random_weights(plan, target, tokens), scale)
    out = tmp_path / "drafter.gguf"
    write_drafter(
        out, plan, read_metadata(target.path), drafter.export(), draft_tokens=tokens,
        head=target.weights["output.weight"][tokens], context_length=32,
        out_type="f32", temperatures=[0.5] * 5,
    )  # fmt: skip
    dataset = Dataset(folder / "dataset")

    whole = MemoryOptions(draft_window=0)
    with open_pair(PairOptions(target.path, out, memory=whole)) as pair:
        found = compare_proposals(drafter, pair.drafter, [dataset[i] for i in range(6)], 60)

    assert found.blocks == 60
    assert found.same == 60 or max(found.gaps) < 0.05
    assert found.confidence_error < 0.02
    metadata = read_metadata(out)
    assert metadata.values[TEMPERATURES_KEY] == (0.5,) * 5
    assert metadata.values["tokenizer.ggml.mask_token_id"] == plan.mask_token


@pytest.mark.parametrize("out_type", ["f32", "f16", "q8_0", "q4_0"])
def test_every_out_type_is_a_drafter_that_fits(words, tmp_path, dspark, out_type):
    """inspect says fits, and run drafts with it."""
    target, _ = words
    plan = design(target)
    tokens = np.arange(288)
    weights = random_weights(plan, target, tokens)
    out = tmp_path / "drafter.gguf"
    write_drafter(
        out, plan, read_metadata(target.path), weights, draft_tokens=tokens,
        head=target.weights["output.weight"], context_length=512, out_type=out_type,
    )  # fmt: skip

    assert dspark("inspect", "-m", target.path, "-md", out).code == 0
    drafted = dspark(
        "run", "-m", target.path, "-md", out, "-p", "hello", "-n", 20, "--json",
        "--schedule", "fixed",
    )  # fmt: skip
    plain = dspark("run", "-m", target.path, "--no-draft", "-p", "hello", "-n", 20, "--json")
    assert drafted.document["tokens"] == plain.document["tokens"]
    assert drafted.document["num_spec_steps"] > 0


def test_a_full_disk_leaves_no_half_drafter(words, tmp_path):
    """The file appears whole or not at all, and the reason is one sentence."""
    target, _ = words
    plan, tokens = design(target), np.arange(288)
    weights = random_weights(plan, target, tokens)

    with (
        full_disk(20_000),
        pytest.raises(DsparkError, match="cannot be written: File too large"),
    ):
        write_drafter(
            tmp_path / "drafter.gguf", plan, read_metadata(target.path), weights,
            draft_tokens=tokens, head=target.weights["output.weight"], context_length=512,
            out_type="f16",
        )  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_interleaved_rotary_rows_are_parted():
    """llama stores rotary pairs side by side, drafters half a head apart; qwen3 as drafters."""
    rows = np.arange(16, dtype=np.float32)[:, None]

    assert half_rotated(rows, 8)[:, 0].tolist() == [
        0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15,
    ]  # fmt: skip


def test_a_training_starts_from_the_target_s_last_layers(talker):
    """Blocks are the target's, and the fusion passes the tap nearest to them."""
    plan, metadata = design(talker), read_metadata(talker.path)
    weights = initial_weights(
        plan, metadata, np.arange(288), np.ones(plan.tap_width, np.float32), seed=0
    )

    first = plan.target.layers - plan.layers
    np.testing.assert_array_equal(
        weights["blk.0.ffn_up.weight"], read_weights(metadata, f"blk.{first}.ffn_up.weight")
    )
    at = plan.taps.index(first) * plan.width
    np.testing.assert_array_equal(
        weights["fc.weight"][:, at : at + plan.width], np.eye(plan.width)
    )


def test_a_training_can_go_on_from_an_earlier_drafter(words, tmp_path):
    """All that fits is taken over, the Markov head row by row of the new draft vocabulary."""
    target, _ = words
    plan = design(target)
    old, new = np.arange(0, 200), np.arange(100, 288)
    weights = random_weights(plan, target, old)
    out = tmp_path / "old.gguf"
    write_drafter(
        out, plan, read_metadata(target.path), weights, draft_tokens=old,
        head=target.weights["output.weight"][old], context_length=512, out_type="f32",
    )  # fmt: skip

    begun = initial_weights(
        plan, read_metadata(target.path), new, np.ones(plan.tap_width, np.float32), seed=5,
        start=read_metadata(out),
    )  # fmt: skip

    np.testing.assert_array_equal(begun["fc.weight"], weights["fc.weight"])
    np.testing.assert_array_equal(
        begun["markov_w2.weight"][:100], weights["markov_w2.weight"][100:]
    )
    assert not begun["markov_w2.weight"][100:].any()


# --- the loss -----------------------------------------------------------------------------------


def naive_loss(hidden, markov, labels, head, markov_head):
    """The definition, by autograd, all rows at once."""
    logits = hidden @ head.T + markov @ markov_head.T
    logprobs = logits.log_softmax(-1)
    weights = torch.exp(-labels.position / GAMMA)
    weights = weights / weights.sum()
    named = labels.token >= 0
    said = logprobs.gather(1, labels.token.clamp(min=0)[:, None])[:, 0]
    ours = logprobs.gather(1, labels.top.clamp(min=0)).exp() * (labels.top >= 0)
    overlap = torch.minimum(ours, labels.chances).sum(-1)
    rows = CROSS_ENTROPY * -said * named + TOTAL_VARIATION * (1 - overlap)
    return (rows * weights).sum()


@pytest.mark.parametrize("piece", [40, 1 << 21])
def test_the_loss_and_its_gradients_are_the_definition_s(monkeypatch, piece):
    """Computed piece by piece and by hand, they are what autograd finds."""
    monkeypatch.setattr("dspark_cli.train.loss.LOGITS_AT_ONCE", piece)
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    hidden, markov = draw(11, 6).requires_grad_(), draw(11, 3).requires_grad_()
    head, markov_head = draw(20, 6), draw(20, 3).requires_grad_()
    labels = Labels(
        token=torch.randint(-1, 20, (11,), generator=generator),
        greedy=torch.randint(-1, 20, (11,), generator=generator),
        top=torch.stack([torch.randperm(21, generator=generator)[:4] - 1 for _ in range(11)]),
        chances=torch.rand(11, 4, generator=generator, dtype=torch.float64) / 4,
        position=torch.arange(11) % 5,
    )
    learned = (hidden, markov, markov_head)
    expected = naive_loss(hidden, markov, labels, head, markov_head)
    gradients = torch.autograd.grad(expected, learned)

    found = loss_of(
        hidden, markov, torch.zeros(11, dtype=torch.float64), labels,
        head=head, markov_head=markov_head,
    )  # fmt: skip
    ours = torch.autograd.grad(found.total, learned)

    nothing_known = 0.1 * np.log(2)  # the confidence's part: a coin's
    assert float(found.total.detach()) == pytest.approx(float(expected.detach()) + nothing_known)
    for mine, theirs in zip(ours, gradients, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)
    likeliest = (hidden @ head.T + markov @ markov_head.T).argmax(-1)
    assert found.hits.tolist() == (likeliest == labels.greedy).tolist()


# --- learning -----------------------------------------------------------------------------------


def test_a_drafter_learns(tmp_path):
    """Sixty steps on the built-in target's words bring half a token more a round."""
    target = find_target("builtin")
    options = CollectOptions(tokens=12_000, answer_tokens=64, lanes=16, threads=1)
    plan = design_drafter(target, DesignOptions())
    collect(target, plan, options, tmp_path, progress=lambda *_: None)

    with open_teaching(target, plan, FitOptions(threads=1), tmp_path) as teaching:
        before = teaching.fit.judge(teaching.judged)
        for _ in range(60):
            teaching.fit._learn(1e-3)  # noqa: SLF001
        after = teaching.fit.judge(teaching.judged)

    assert after.tau > before.tau + 0.5
    assert after.conditional[0] > before.conditional[0] + 0.2


def test_nothing_held_out_is_trained_on(words):
    """The split goes by prompt, however often one was asked."""
    dataset = Dataset(words[1] / "dataset")

    learned, judged = held_out(dataset)

    groups = dataset.groups
    assert not {groups[i] for i in learned} & {groups[i] for i in judged}
    assert sorted(learned + judged) == list(range(len(dataset)))


def test_texts_from_nothing_are_held_out_by_their_opening(tmp_path):
    """Two texts of one opening are one text: never one of them on each side."""
    target = find_target("builtin")
    options = CollectOptions(tokens=12_000, answer_tokens=48, lanes=16, threads=1)
    collect(
        target, design_drafter(target, DesignOptions()), options, tmp_path,
        progress=lambda *_: None,
    )  # fmt: skip
    dataset = Dataset(tmp_path / "dataset")

    learned, judged = held_out(dataset)

    known = {dataset[i].tokens.tobytes() for i in learned}
    assert judged
    assert not [i for i in judged if dataset[i].tokens.tobytes() in known]
    assert all(dataset[i].temperature == 0 for i in judged)


def test_an_answer_of_one_token_teaches_nothing_and_breaks_nothing(words, tmp_path):
    """A base model may end its text at once."""
    _, folder = words
    source = Dataset(folder / "dataset")
    with DatasetWriter(tmp_path / "dataset", source.header) as writer:
        for i in range(len(source)):
            item = source[i]
            short = 1 if i % 2 else len(item.tokens) - 1
            writer.add(
                replace(
                    item, prompt=i, temperature=0.0, n_prompt=short,
                    tokens=item.tokens[: short + 1],
                    top_ids=item.top_ids[:1], top_logprobs=item.top_logprobs[:1],
                    taps=item.taps[:short],
                )
            )  # fmt: skip

    learned, judged = held_out(Dataset(tmp_path / "dataset"))

    assert judged
    assert all(i % 2 == 0 for i in learned + judged)


def test_a_failed_export_leaves_no_drafter(words, tmp_path, dspark, monkeypatch):
    """The file gets its name when it has proved to be what was trained."""
    target, folder = words
    (tmp_path / "dataset").symlink_to(folder / "dataset")
    command = train_words(target, tmp_path, "--resume", tmp_path, "--minutes", 0.01)
    assert dspark(*command, "--step", "fit").code == 0
    real = compare_proposals

    def far_off(*arguments):
        found = real(*arguments)
        return replace(found, gaps=(3.0,) * found.blocks)

    monkeypatch.setattr("dspark_cli.train.faithful.compare_proposals", far_off)

    done = dspark(*command, "--step", "export")

    assert done.code == 1
    assert "the exported drafter is not what was trained" in done.errors[0]
    assert not (tmp_path / "drafter.gguf").exists()


def test_a_drafter_of_another_target_is_no_start(asked, dspark):
    """Same shapes or not, its words are others."""
    target, folder = asked
    other = find_drafter("builtin")

    done = dspark(*train_words(target, folder, "--start-from", other))

    assert done.code == 2
    assert "--start-from" in done.errors[0]
    assert not (folder / "drafter.gguf.train").exists()


def test_taps_can_be_computed_again_while_fitting(words, tmp_path):
    """Without stored taps a fit reads the same states from the target itself."""
    target, folder = words
    prompts = folder / "prompts.txt"
    options = CollectOptions(
        tokens=3000, prompts=prompts, answer_tokens=24, lanes=8, threads=1, store_taps=False
    )
    collect(target.path, design(target), options, tmp_path, progress=lambda *_: None)
    stored = {item.prompt: i for i, item in enumerate(Dataset(folder / "dataset"))}

    with open_teaching(target.path, design(target), FitOptions(threads=1), tmp_path) as teaching:
        again = teaching.read(0)
        kept = Dataset(folder / "dataset")[stored[again.prompt]]
        loss, _ = teaching.fit._learn(1e-3)  # noqa: SLF001

    assert again.tokens.tolist() == kept.tokens.tolist()
    np.testing.assert_allclose(
        again.taps.astype(np.float32), kept.taps.astype(np.float32), atol=3e-2
    )
    assert np.isfinite(loss)


def train_words(target, folder, *more):
    return [
        "train", "-m", target.path, "-o", folder / "drafter.gguf", "--prompts",
        folder / "prompts.txt", "--tokens", 3000, "--answer-tokens", 24, "--lanes", 8,
        "--markov-rank", 8, "-t", 1, *more,
    ]  # fmt: skip


@pytest.fixture
def asked(words, tmp_path):
    """The target and a new folder with the prompts in it."""
    target, folder = words
    (tmp_path / "prompts.txt").write_text((folder / "prompts.txt").read_text())
    return target, tmp_path


def test_one_command_makes_a_drafter_and_a_report(asked, dspark):
    """Collect, fit, export: the file fits its target, and the report has every number."""
    target, folder = asked

    done = dspark(*train_words(target, folder, "--minutes", 0.1, "--json"))

    assert done.code == 0, done.err
    report = done.document
    assert report["dataset_tokens"] >= 3000
    assert report["held_out_tau"] >= 1
    assert report["compared_blocks"] > 0
    assert report["same_proposals"] >= 0.99 or report["largest_gap_at_difference"] < 0.05
    assert report["confidence_error"] < 0.02
    assert len(report["confidence_temperatures"]) == report["block_size"] == 5
    assert dspark("inspect", "-m", target.path, "-md", folder / "drafter.gguf").code == 0
    kept = folder / "drafter.gguf.train"
    page = (kept / "report.md").read_text()
    assert "| held-out tau | **" in page
    assert (kept / "report.png").read_bytes()[:4] == b"\x89PNG"
    metadata = read_metadata(folder / "drafter.gguf")
    assert len(metadata.values[TEMPERATURES_KEY]) == 5
    longest = max(len(answer.tokens) for answer in Dataset(kept / "dataset"))
    assert metadata.values["dflash.context_length"] == longest


def test_a_finished_drafter_is_not_overwritten(asked, dspark):
    """--force says that it may be."""
    target, folder = asked
    (folder / "drafter.gguf").write_bytes(b"precious")

    done = dspark(*train_words(target, folder))

    assert done.code == 2
    assert "exists already" in done.errors[0]
    assert (folder / "drafter.gguf").read_bytes() == b"precious"


def test_a_killed_fit_goes_on_where_it_was(words, tmp_path):
    """SIGKILL in the middle: the checkpoint is whole, and minutes and steps are counted on."""
    target, folder = words
    (tmp_path / "dataset").symlink_to(folder / "dataset")
    often = (
        "from dspark_cli.train import fit; fit.SECONDS_BETWEEN_CHECKPOINTS = 0.2; "
        "from dspark_cli.cli.app import main; main()"
    )
    command = [
        sys.executable, "-c", often,
        *map(str, train_words(target, tmp_path, "--step", "fit", "--resume", tmp_path)),
    ]  # fmt: skip
    checkpoint = tmp_path / "checkpoint.pt"
    seen = 0
    for _ in range(2):
        running = subprocess.Popen(
            [*command, "--minutes", "60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        before = checkpoint.stat().st_mtime if checkpoint.exists() else 0
        while not checkpoint.exists() or checkpoint.stat().st_mtime == before:
            assert running.poll() is None
            time.sleep(0.05)
        time.sleep(0.3)
        running.send_signal(signal.SIGKILL)
        running.wait()
        state = torch.load(checkpoint, weights_only=True)
        assert state["step"] > seen
        seen = state["step"]

    done = subprocess.run(
        [*command, "--minutes", str(state["minutes"] + 0.02)],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert torch.load(checkpoint, weights_only=True)["step"] > seen


def test_ctrl_c_keeps_what_was_learned(words, tmp_path):
    """Exit code 130, a checkpoint, and the words that go on."""
    target, folder = words
    (tmp_path / "dataset").symlink_to(folder / "dataset")
    running = subprocess.Popen(
        [
            sys.executable, "-m", "dspark_cli",
            *map(str, train_words(target, tmp_path, "--step", "fit", "--resume", tmp_path)),
            "--minutes", "60",
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    for line in running.stderr:
        if line.startswith("fit"):
            break
    time.sleep(0.5)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)

    assert running.returncode == 130
    assert f"goes on with --resume {tmp_path}" in err
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["step"] > 0


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--device", "tpu9"], "--device tpu9: PyTorch has no such device here"),
        (["--minutes", "0"], "--minutes wants more than 0"),
        (["--learning-rate", "2"], "--learning-rate wants more than 0 and at most 1, got 2.0"),
        (["--taps", "0,2"], "holds taps of layers (0, 1, 2), wanted (0, 2)"),
    ],
)
def test_what_cannot_be_fitted_is_one_sentence(words, tmp_path, dspark, more, sentence):
    """Before anything is learned."""
    target, folder = words
    (tmp_path / "dataset").symlink_to(folder / "dataset")

    done = dspark(*train_words(target, tmp_path, "--step", "fit", "--resume", tmp_path, *more))

    assert done.code == 2
    assert len(done.errors) == 1
    assert sentence in done.errors[0]


@pytest.mark.parametrize(
    ("other", "found"),
    [
        (["--layers", 1], "layers is 2, wanted 1"),
        (["--layers", 3], "layers is 2, wanted 3"),
        (["--markov-rank", 16], "markov_rank is 8, wanted 16"),
        (["--block-size", 4], "block_size is 5, wanted 4"),
    ],
)
def test_a_checkpoint_of_another_design_is_refused(words, tmp_path, dspark, other, found):
    """Rather than half of it being loaded."""
    target, folder = words
    (tmp_path / "dataset").symlink_to(folder / "dataset")
    fit = train_words(target, tmp_path, "--step", "fit", "--resume", tmp_path, "--minutes", 0.01)
    assert dspark(*fit).code == 0

    done = dspark(*fit, *other)

    assert done.code == 2
    assert f"is of a drafter of another design: {found}" in done.errors[0]


def test_a_fit_that_diverges_keeps_what_it_had(words, tmp_path, dspark, monkeypatch):
    """A loss that is no number ends the fit in one sentence, before it is saved."""
    target, folder = words
    (tmp_path / "dataset").symlink_to(folder / "dataset")
    fit = train_words(target, tmp_path, "--step", "fit", "--resume", tmp_path)
    assert dspark(*fit, "--minutes", 0.01).code == 0
    before = (tmp_path / "checkpoint.pt").read_bytes()
    monkeypatch.setattr("dspark_cli.train.fit.Fit._learn", lambda *_: (float("nan"), 0.0))

    done = dspark(*fit, "--minutes", 5)

    assert done.code == 1
    assert "the fit has diverged" in done.errors[0]
    assert (tmp_path / "checkpoint.pt").read_bytes() == before


def test_what_was_never_fitted_is_not_exported(words, tmp_path, dspark):
    """An untrained drafter is a file that nobody wants."""
    target, folder = words
    (tmp_path / "dataset").symlink_to(folder / "dataset")

    done = dspark(*train_words(target, tmp_path, "--step", "export", "--resume", tmp_path))

    assert done.code == 2
    assert "run the step fit first" in done.err
    assert not (tmp_path / "drafter.gguf").exists()


def test_the_draft_vocabulary_is_chosen_once(words, tmp_path, dspark):
    """A head has its rows from the beginning on."""
    target, folder = words
    (tmp_path / "dataset").symlink_to(folder / "dataset")
    fit = train_words(target, tmp_path, "--step", "fit", "--resume", tmp_path, "--minutes", 0.01)
    assert dspark(*fit, "--draft-vocab", 200).code == 0

    done = dspark(*fit, "--draft-vocab", 100)

    assert done.code == 2
    assert "proposes 200 tokens, --draft-vocab wants 100" in done.errors[0]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["-o", "nowhere/drafter.gguf"], "wanted a file in a folder that exists"),
        (["--start-from", "nothing.gguf"], "nothing.gguf: no such file"),
        (["--draft-vocab", "1"], "--draft-vocab wants 0 (all) or at least 2 tokens, got 1"),
        (["--prompts", "nothing.txt"], "nothing.txt: no such file"),
        (["--device", "tpu9"], "PyTorch has no such device here"),
    ],
)
def test_a_misspelt_name_does_not_cost_an_hour(asked, dspark, more, sentence):
    """It is refused before anything is collected."""
    target, folder = asked

    done = dspark(*train_words(target, folder), *more)

    assert done.code == 2
    assert sentence in done.errors[0]
    assert not (folder / "drafter.gguf.train").exists()


def test_a_damaged_checkpoint_is_one_sentence(words, tmp_path, dspark):
    target, folder = words
    (tmp_path / "dataset").symlink_to(folder / "dataset")
    (tmp_path / "checkpoint.pt").write_bytes(b"PK nothing")

    done = dspark(*train_words(target, tmp_path, "--step", "fit", "--resume", tmp_path))

    assert done.code == 1
    assert "is no checkpoint of a fit" in done.errors[0]


def test_an_unknown_device_is_named():
    with pytest.raises(UsageError, match="--device cuda:7"):
        choose_device("cuda:7")
    assert choose_device("cpu").type == "cpu"


def test_the_report_is_json_that_can_be_read_back(asked, dspark):
    """No NaN, no infinity: other programs read it."""
    target, folder = asked
    done = dspark(*train_words(target, folder, "--minutes", 0.02, "--json"))

    json.loads(done.out, parse_constant=pytest.fail)


# --- trust --------------------------------------------------------------------------------------


def judged(seed, n=1500, sharpness=1.0):
    """Blocks of one row whose acceptance depends on the first feature, and is known."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(n, 6)).astype(np.float32)
    hits = random.random(n) < 1 / (1 + np.exp(-sharpness * features[:, 0]))
    real = np.ones((n, 1), bool)
    return Judgement(np.zeros((n, 1), np.float32), hits[:, None], real, (), features)


def test_a_head_that_is_too_sure_is_fitted_to_what_it_never_saw():
    """It shouts the right thing and noise besides; held-out answers bring it back."""
    shouting = ConfidenceHead(np.array([6, 4, -4, 0, 0, 0], np.float32), 2.0)

    trusted = learn_trust(judged(1), judged(2), shouting)

    (position,) = trusted.calibration
    assert position.error_before > 0.2
    assert position.error_after < 0.08
    fresh = judged(3)
    assert surprise(fresh, trusted.head) < surprise(fresh, shouting) - 0.5
    weight = trusted.head.weight
    assert weight[0] > 4 * abs(weight[1:]).max()


def test_only_rows_behind_accepted_ones_teach_a_head():
    """A confidence is conditional on everything before it."""
    hits = np.array([[True, False, True], [False, True, True]])
    real = np.array([[True, True, True], [True, True, False]])
    found = Judgement(np.zeros((2, 3)), hits, real, (), np.zeros((5, 1), np.float32))

    assert reached_rows(found).tolist() == [True, True, False, True, False]
