"""What many tests share: one tiny pair that fits, and the command as its user meets it."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from pairs import Drafter, Target, write_random_drafter, write_random_target

from dspark_cli.cli.app import main


@dataclass(frozen=True)
class Outcome:
    """What one command left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def errors(self) -> list[str]:
        """The sentences after ``error:``, one per line."""
        lines = self.err.splitlines()
        return [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """Nothing is read from the user's cache, and nothing is left there; commands inherit it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def dspark(capsys, monkeypatch):
    """Run ``dspark`` with some arguments, through the door its user goes through."""
    monkeypatch.setenv("COLUMNS", "200")  # tables are read here, not looked at

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Outcome(left.value.code, out, err)

    return run


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> Path:
    """A folder for files that many tests read and none changes."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def target(models) -> Target:
    """4 layers, width 64, 288 tokens; it puts no BOS before a text."""
    return write_random_target(models / "target.gguf")


@pytest.fixture(scope="session")
def drafter(models, target) -> Drafter:
    """A DSpark drafter of ``target``: block_size 4, taps 1 and 3, everything else borrowed."""
    return write_random_drafter(models / "drafter.gguf", target)
