"""Collecting: the target's own words, its taps and its distributions, and a dataset that lasts."""

import itertools
import json
import signal
import subprocess
import sys
import time
from contextlib import ExitStack

import numpy as np
import pytest
from pairs import VOCABULARY, Shape, write_random_target
from reference import TargetReference, greedy

from dspark_cli.contract import read_target
from dspark_cli.engine.context import ContextSettings, open_context
from dspark_cli.engine.lanes import Lanes
from dspark_cli.engine.model import open_model
from dspark_cli.engine.taps import Taps
from dspark_cli.errors import DsparkError, UsageError
from dspark_cli.metadata import read_metadata
from dspark_cli.sizes import plan_lanes
from dspark_cli.train.collect import Collection, Manner, manner_of, top_of
from dspark_cli.train.dataset import Answer, Dataset, DatasetWriter, Header

TAPS = (1, 3)
GREEDY = Manner(temperature=0.0, opening=0)


@pytest.fixture
def lanes(target):
    """Four lanes of the random target, tapped at two layers."""
    shape = read_target(read_metadata(target.path))
    with ExitStack() as owned:
        model = owned.enter_context(open_model(target.path))
        sizes = plan_lanes(shape, lanes=4, positions=64, taps=len(TAPS))
        settings = ContextSettings(1, "f16", "f16", "off")
        context = owned.enter_context(open_context(model, "target", 288, sizes, settings))
        yield Lanes(context, Taps(context, TAPS, shape.width), 4, 288)


def header(**changes) -> Header:
    usual = {
        "target": "0" * 64,
        "target_name": "target.gguf",
        "vocabulary": 50,
        "width": 4,
        "taps": TAPS,
        "top": 3,
        "stores_taps": True,
        "prompts": "some",
        "distinct_prompts": 0,
        "answer_tokens": 16,
        "seed": 0,
    }
    return Header(**{**usual, **changes})


def answer(prompt: int, *, n_prompt: int = 3, n_answer: int = 5, taps: bool = True) -> Answer:
    random = np.random.default_rng(prompt)
    n = n_prompt + n_answer
    return Answer(
        prompt=prompt,
        n_prompt=n_prompt,
        temperature=0.5 * (prompt % 2),
        tokens=random.integers(0, 50, n).astype(np.int32),
        top_ids=random.integers(0, 50, (n_answer, 3)).astype(np.int32),
        top_logprobs=-random.random((n_answer, 3)).astype(np.float16),
        taps=random.normal(size=(n - 1, 8)).astype(np.float16) if taps else None,
    )


def same(one: Answer, other: Answer) -> bool:
    arrays = ("tokens", "top_ids", "top_logprobs", "taps")
    return (one.prompt, one.n_prompt, one.temperature) == (
        other.prompt,
        other.n_prompt,
        other.temperature,
    ) and all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays)


# --- lanes --------------------------------------------------------------------------------------


def test_every_lane_is_a_text_of_its_own(lanes, target):
    """Logits and taps of four texts in one batch are those of each text alone."""
    reference = TargetReference(target)
    texts = [list(b"ab"), list(b"xyz"), list(b"hello"), list(b"q")]
    for lane, text in enumerate(texts):
        rows = lanes.begin(lane, text)
        expected = reference.forward(text)
        np.testing.assert_allclose(rows.logits[0], expected.logits[-1], atol=2e-2)
        np.testing.assert_allclose(rows.taps, expected.taps(TAPS), atol=2e-2)
    for step in b"mnop":
        tokens = [text.append(step + lane) or text[-1] for lane, text in enumerate(texts)]
        rows = lanes.step(
            np.arange(4, dtype=np.int32),
            np.array(tokens, np.int32),
            np.array([len(text) - 1 for text in texts], np.int32),
        )
        for lane, text in enumerate(texts):
            expected = reference.forward(text)
            np.testing.assert_allclose(rows.logits[lane], expected.logits[-1], atol=3e-2)
            np.testing.assert_allclose(rows.taps[lane], expected.taps(TAPS)[-1], atol=2e-2)


def test_a_lane_that_begins_again_has_forgotten(lanes, target):
    """A new prompt in a used lane is read as if the lane were new."""
    lanes.begin(2, list(b"something else"))

    rows = lanes.begin(2, list(b"ab"))

    expected = TargetReference(target).forward(list(b"ab")).logits[-1]
    np.testing.assert_allclose(rows.logits[0], expected, atol=2e-2)


# --- answers ------------------------------------------------------------------------------------


def collection(lanes, **changes) -> Collection:
    usual = {
        "question": lambda prompt: [*b"say ", ord("a") + prompt],
        "manner": lambda _prompt: GREEDY,
        "ends": lambda _token: False,
        "answer_tokens": 12,
        "positions": 64,
        "top": 5,
        "seed": 0,
        "store_taps": True,
    }
    options = {**usual, **changes}
    return Collection(lanes, options.pop("question"), **options)


def test_greedy_answers_are_what_the_target_says_alone(lanes, target):
    """Six prompts over four lanes: each answer is the target's own greedy text."""
    answers = {item.prompt: item for item in collection(lanes).answers(iter(range(6)))}

    assert sorted(answers) == list(range(6))
    reference = TargetReference(target)
    for prompt, item in answers.items():
        asked = [*b"say ", ord("a") + prompt]
        assert item.tokens.tolist() == asked + greedy(reference, asked, 12)


def test_an_answer_carries_the_states_and_chances_it_came_from(lanes, target):
    """Taps are those of each token but the last; the top is the target's own distribution."""
    (item,) = collection(lanes).answers(iter([1]))

    expected = TargetReference(target).forward(item.tokens[:-1].tolist())
    np.testing.assert_allclose(item.taps.astype(np.float32), expected.taps(TAPS), atol=3e-2)
    logits = expected.logits[item.n_prompt - 1 :]
    logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    for row in range(12):
        np.testing.assert_allclose(
            item.top_logprobs[row].astype(np.float32),
            np.sort(logprobs[row])[::-1][:5],
            atol=3e-2,
        )
    assert (item.top_ids[:, 0] == item.tokens[item.n_prompt :]).all()


def test_an_answer_stops_where_its_text_ends(lanes):
    """The token that ends a text is kept: the drafter has to learn it too."""
    first = next(iter(collection(lanes).answers(iter([0]))))
    third = int(first.tokens[first.n_prompt + 2])
    at = first.tokens[first.n_prompt :].tolist().index(third)

    (item,) = collection(lanes, ends=lambda token: token == third).answers(iter([0]))

    assert item.tokens.tolist() == first.tokens[: first.n_prompt + at + 1].tolist()


def test_a_lane_never_runs_over_its_room(lanes):
    """A long prompt gets a short answer."""
    (item,) = collection(lanes, positions=8, answer_tokens=50).answers(iter([0]))

    assert len(item.tokens) == 8


def test_sampled_answers_depend_on_the_prompt_and_the_seed_alone(lanes):
    """Who is answered beside a prompt changes nothing, so a resumed collection is the same one."""
    sampled = {"manner": lambda _prompt: Manner(temperature=0.9, opening=0)}
    together = {a.prompt: a for a in collection(lanes, **sampled).answers(iter(range(4)))}
    (alone,) = collection(lanes, **sampled).answers(iter([2]))
    (other,) = collection(lanes, **sampled, seed=1).answers(iter([2]))

    assert alone.tokens.tolist() == together[2].tokens.tolist()
    assert other.tokens.tolist() != alone.tokens.tolist()


def test_prompts_that_are_too_long_are_counted(lanes):
    """They are neither asked nor forgotten."""
    these = collection(lanes, question=lambda prompt: None if prompt % 2 else [*b"hi"])

    assert len(list(these.answers(iter(range(4))))) == 2
    assert these.skipped == 2


def test_most_answers_are_greedy_and_a_prompt_is_so_once():
    """The mixture is decided by index; what would come out the same again is sampled."""
    usual = {"held_out": False, "greedy_allowed": True, "from_nothing": False}
    manners = [manner_of(i, 0, **usual) for i in range(2000)]

    assert 0.55 < np.mean([manner.temperature == 0 for manner in manners]) < 0.65
    assert all(
        manner_of(i, 0, **{**usual, "greedy_allowed": False}).temperature > 0 for i in range(100)
    )


def test_a_prompt_that_is_held_out_is_answered_greedily():
    """Greedy answers are what a drafter is judged by."""
    assert all(
        manner_of(i, 0, held_out=True, greedy_allowed=True, from_nothing=False).temperature == 0
        for i in range(100)
    )


def test_the_top_of_a_distribution_is_normalised_over_all_of_it():
    """Log-probabilities are those of the whole softmax, likeliest first."""
    logits = np.random.default_rng(0).normal(size=(3, 100)).astype(np.float32)

    ids, logprobs = top_of(logits, 7)

    exact = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    for row in range(3):
        order = np.argsort(-exact[row])[:7]
        assert ids[row].tolist() == order.tolist()
        np.testing.assert_allclose(logprobs[row], exact[row, order], atol=1e-5)


# --- datasets -----------------------------------------------------------------------------------


def test_answers_come_back_as_they_were(tmp_path):
    """Shards are cut anywhere, and every array of every answer is read from its own place."""
    given = [answer(i, n_prompt=2 + i % 3, n_answer=3 + i % 4) for i in range(11)]
    with DatasetWriter(tmp_path, header()) as writer:
        for index, item in enumerate(given):
            writer.add(item)
            if index in {3, 4, 8}:
                writer.flush()

    found = Dataset(tmp_path)

    assert len(found) == 11
    assert found.tokens == sum(len(item.tokens) for item in given)
    assert all(same(found[i], item) for i, item in enumerate(given))


def test_a_dataset_may_leave_its_taps_to_be_computed_again(tmp_path):
    """Tokens and distributions alone take a hundredth of the room."""
    with DatasetWriter(tmp_path, header(stores_taps=False)) as writer:
        writer.add(answer(0, taps=False))

    assert Dataset(tmp_path)[0].taps is None


def test_states_beyond_half_precision_are_clipped(tmp_path):
    """An attention sink's state may be larger than any F16; it becomes the largest one."""
    item = answer(0)
    huge = Answer(
        **{
            **{n: getattr(item, n) for n in Answer.__slots__},
            "taps": item.taps.astype(np.float32) * 1e9,
        }
    )
    with DatasetWriter(tmp_path, header()) as writer:
        writer.add(huge)

    taps = Dataset(tmp_path)[0].taps

    assert np.isfinite(taps).all()
    assert abs(taps).max() == 65504


def test_what_a_kill_left_behind_is_swept_up(tmp_path):
    """A shard that no manifest names never happened."""
    with DatasetWriter(tmp_path, header()) as writer:
        writer.add(answer(0))
    (tmp_path / "shard-00001.safetensors").write_bytes(b"half a shard")
    (tmp_path / "shard-00002.safetensors.part").write_bytes(b"less")

    with DatasetWriter(tmp_path, header()) as writer:
        assert writer.prompts == {0}
        writer.add(answer(1))

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "manifest.json",
        "shard-00000.safetensors",
        "shard-00001.safetensors",
    ]
    assert [Dataset(tmp_path)[i].prompt for i in range(2)] == [0, 1]


@pytest.mark.parametrize(
    "change", [{"taps": (0, 2)}, {"target": "1" * 64}, {"seed": 7}, {"stores_taps": False}]
)
def test_a_dataset_is_continued_with_the_same_options_only(tmp_path, change):
    """Mixing two collections would train on answers to another question."""
    with DatasetWriter(tmp_path, header()) as writer:
        writer.add(answer(0))
    (name,) = change

    with pytest.raises(UsageError, match=f"holds another dataset: {name} is"):
        DatasetWriter(tmp_path, header(**change))


@pytest.mark.parametrize(
    "manifest", [b"", b"{}", b"[1]", b'{"format": 1, "header": {}, "shards": []}', b"\xff"]
)
def test_a_damaged_manifest_is_one_sentence(tmp_path, manifest):
    """Whatever stands in it."""
    (tmp_path / "manifest.json").write_bytes(manifest)

    with pytest.raises(DsparkError, match=r"manifest\.json"):
        Dataset(tmp_path)


def test_a_damaged_shard_is_one_sentence(tmp_path):
    """A file that is cut is named."""
    with DatasetWriter(tmp_path, header()) as writer:
        writer.add(answer(0))
    shard = tmp_path / "shard-00000.safetensors"
    shard.write_bytes(shard.read_bytes()[:-40])

    with pytest.raises(DsparkError, match=r"shard-00000\.safetensors: the shard cannot be read"):
        Dataset(tmp_path)


def test_a_full_disk_is_one_sentence(talker, tmp_path, dspark, monkeypatch):
    """What was written before stays a dataset."""

    def full(_file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dspark_cli.files.os.fsync", full)

    done = dspark(*collect_words(talker, tmp_path, 2000))

    assert done.code == 1
    assert len(done.errors) == 1
    assert "cannot be written: No space left on device" in done.errors[0]
    assert not list(tmp_path.rglob("*.part"))


def test_a_folder_without_a_dataset_is_said_so(tmp_path):
    """Rather than an empty one being trained on."""
    with pytest.raises(UsageError, match="holds no dataset"):
        Dataset(tmp_path)


# --- the command --------------------------------------------------------------------------------


@pytest.fixture
def talker(tmp_path):
    """A small random target that is asked raw prompts from a file."""
    shape = Shape(n_embd=32, n_head=2, n_head_kv=1, head_dim=16, n_layer=3, n_ff=48)
    path = write_random_target(tmp_path / "talker.gguf", shape=shape, vocabulary=VOCABULARY).path
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("".join(f"tell me about {number}\n" for number in range(40)))
    return path, prompts


def collect_words(talker, folder, tokens):
    model, prompts = talker
    return [
        "train", "-m", model, "-o", folder / "drafter.gguf", "--step", "collect",
        "--prompts", prompts, "--tokens", tokens, "--answer-tokens", 24, "--lanes", 4, "-t", 1,
    ]  # fmt: skip


def test_a_collection_says_what_it_will_take_and_is_complete(talker, tmp_path, dspark):
    """The projected size comes first; then the folder holds at least what was asked for."""
    done = dspark(*collect_words(talker, tmp_path, 2000))

    assert done.code == 0
    assert "the dataset in" in done.err.splitlines()[0]
    found = Dataset(tmp_path / "drafter.gguf.train" / "dataset")
    assert found.tokens >= 2000
    assert found.header.taps == (0, 1, 2)


def test_a_finite_file_of_prompts_is_gone_through_again(talker, tmp_path, dspark):
    """The second time answers are sampled; the prompt stays on its side of the held-out line."""
    dspark(*collect_words(talker, tmp_path, 3000))

    found = Dataset(tmp_path / "drafter.gguf.train" / "dataset")

    assert len(found) > 40
    assert set(found.groups) == set(range(40))
    repeated = [item for item in found if item.prompt >= 40]
    assert repeated
    assert all(item.temperature > 0 for item in repeated)


def test_a_killed_collection_goes_on(talker, tmp_path):
    """SIGKILL at random moments: what is on disk stays valid, and nothing is missing at last."""
    folder = tmp_path / "drafter.gguf.train"
    often = (
        "from dspark_cli.train import dataset; dataset.SHARD_BYTES = 20_000; "
        "from dspark_cli.cli.app import main; main()"
    )
    words = [sys.executable, "-c", often, *map(str, collect_words(talker, tmp_path, 4000))]
    random = np.random.default_rng(0)
    for attempt in itertools.count():
        resume = ["--resume", str(folder)] if folder.exists() else []
        running = subprocess.Popen(
            [*words, *resume], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        if attempt < 4:
            time.sleep(0.5 + float(random.random()))
            running.send_signal(signal.SIGKILL)
        _, err = running.communicate(timeout=120)
        if running.returncode == 0:
            break
        assert running.returncode == -signal.SIGKILL, err
        if (folder / "dataset" / "manifest.json").exists():
            json.loads((folder / "dataset" / "manifest.json").read_text())
            Dataset(folder / "dataset")

    found = Dataset(folder / "dataset")
    prompts = [item.prompt for item in found]
    assert found.tokens >= 4000
    assert len(prompts) == len(set(prompts))


@pytest.mark.parametrize(
    ("more", "code", "sentence"),
    [
        (["--max-disk", "0.0001"], 2, "--max-disk allows"),
        (["--block-size", "5000"], 2, "--block-size wants 1 to 64, got 5000"),
        (["--max-disk", "inf"], 2, "--max-disk wants more than 0 GiB, got inf"),
        (["--taps", "1,9"], 2, "can be tapped at the inputs of layers 0 to 2, got 9"),
        (["--taps", "one"], 2, "--taps wants auto or layers as 2,8,15, got one"),
        (["--taps", "1,1"], 2, "--taps wants different layers"),
        (["--tokens", "5"], 2, "--tokens wants 1000 to"),
        (["--lanes", "0"], 2, "--lanes wants 1 to 256, got 0"),
        (["--resume", "nowhere"], 2, "no such folder"),
    ],
)
def test_what_cannot_be_collected_is_one_sentence(talker, tmp_path, dspark, more, code, sentence):
    """Before the target's weights are loaded."""
    done = dspark(*collect_words(talker, tmp_path, 2000), *more)

    assert done.code == code
    assert len(done.errors) == 1
    assert sentence in done.errors[0]


def test_a_block_longer_than_the_context_is_refused(tmp_path, dspark):
    """Its last row would stand where the target was never trained."""
    shape = Shape(
        n_embd=32, n_head=2, n_head_kv=1, head_dim=16, n_layer=3, n_ff=48, context_length=8
    )
    path = write_random_target(tmp_path / "short.gguf", shape=shape).path

    done = dspark(
        "train", "-m", path, "-o", tmp_path / "d.gguf", "--step", "collect", "--block-size", 8
    )

    assert done.code == 2
    assert "--block-size 8 does not fit into the target's context of 8" in done.errors[0]


def test_a_repeated_prompt_is_asked_once(talker, tmp_path, dspark):
    """Otherwise it could stand on both sides of the held-out line."""
    model, prompts = talker
    prompts.write_text(prompts.read_text() * 3)

    dspark(*collect_words((model, prompts), tmp_path, 1000))

    assert Dataset(tmp_path / "drafter.gguf.train" / "dataset").header.distinct_prompts == 40


def test_too_few_prompts_are_refused(talker, tmp_path, dspark):
    """A part is held out, so a handful is not enough."""
    model, prompts = talker
    prompts.write_text("one\ntwo\nthree\n")

    done = dspark(*collect_words((model, prompts), tmp_path, 2000))

    assert done.code == 2
    assert "holds 3 distinct prompts, wanted at least 20" in done.errors[0]


def test_a_target_that_cannot_be_tapped_is_refused(tmp_path, dspark):
    """llama.cpp would abort; the metadata already says so."""
    path = write_random_target(tmp_path / "gpt2.gguf", arch="gpt2").path

    done = dspark("train", "-m", path, "-o", tmp_path / "drafter.gguf", "--step", "collect")

    assert done.code == 4
    assert "llama.cpp cannot tap gpt2 targets" in done.errors[0]


def test_a_folder_in_use_is_not_overwritten(talker, tmp_path, dspark):
    """Without --resume an earlier training stays as it is."""
    dspark(*collect_words(talker, tmp_path, 2000))

    done = dspark(*collect_words(talker, tmp_path, 2000))

    assert done.code == 2
    assert "holds a training already" in done.errors[0]
    assert "--resume" in done.err
