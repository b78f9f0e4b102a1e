"""llama.cpp's own runner of the same job, ``llama-speculative-simple``, as one side of a bench.

It reads a prompt as text from a file, decodes greedily, and says on stderr how many tokens it
decoded in how many seconds (examples/speculative-simple/speculative-simple.cpp).
"""

import re
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dspark_cli.engine.model import repacking_is_allowed
from dspark_cli.engine.vocab import Vocabulary
from dspark_cli.errors import DsparkError, InterruptedRunError
from dspark_cli.plan import Plan
from dspark_cli.stats import Statistics

READ = re.compile(r"encoded +(\d+) tokens in")
DECODED = re.compile(r"decoded +(\d+) tokens in +([\d.]+) seconds")
DRAFTED = re.compile(r"n_drafted += +(\d+)")
ACCEPTED = re.compile(r"n_accept += +(\d+)")
LAST_WORDS = 10  # lines of its stderr that are kept of a failure


@dataclass(frozen=True, slots=True)
class Peer:
    """A binary, and the pair and settings that it is given."""

    path: Path
    plan: Plan
    vocabulary: Vocabulary

    def decode(self, prompt: Sequence[int], tokens: int) -> Statistics:
        """Continue ``prompt`` greedily by at least ``tokens`` tokens.

        Raises DsparkError where the prompt cannot be given as text, or where the binary fails or
        reads something else; InterruptedRunError where Ctrl-C ended it.
        """
        text = prompt_text(self.vocabulary, prompt)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "prompt.txt"
            # The last newline of a file is not part of its prompt (common/arg.cpp).
            file.write_text(text + "\n", encoding="utf-8", newline="")
            words = [str(self.path), *peer_words(self.plan, len(prompt), tokens)]
            try:
                done = subprocess.run(  # noqa: S603  the binary that the user has named
                    [*words, "-f", str(file)], capture_output=True, check=False
                )
            except OSError as error:
                raise DsparkError(f"--peer {self.path}: {error.strerror}") from None
        said = done.stderr.decode(errors="replace")
        if done.returncode == -signal.SIGINT:
            raise InterruptedRunError
        if done.returncode != 0:
            raise DsparkError(
                f"--peer {self.path} ended with exit code {done.returncode}",
                log=said.splitlines()[-LAST_WORDS:],
            )
        return read_report(said, str(self.path), len(prompt))


def peer_words(plan: Plan, prompt_tokens: int, tokens: int) -> list[str]:
    """The options that make it do what this pair's run does."""
    memory = plan.options.memory
    drafter = plan.drafter
    words = ["-m", str(plan.options.model), "-md", str(plan.options.draft)]
    words += ["--spec-type", drafter.type_name if drafter else "none"]
    words += ["--spec-draft-n-max", str(drafter.draft_max if drafter else 0)]
    words += ["-t", str(memory.target_threads), "-td", str(memory.drafter_threads)]
    words += ["-c", str(plan.sizes.limit), "-b", str(max(memory.batch_size, prompt_tokens))]
    words += ["-ub", str(memory.ubatch_size), "-fa", memory.flash_attention]
    words += ["-ctk", memory.cache_type_k, "-ctv", memory.cache_type_v]
    words += ["-ctkd", memory.cache_type_k_draft, "-ctvd", memory.cache_type_v_draft]
    if memory.gpu_layers is not None:
        words += ["-ngl", str(memory.gpu_layers)]
    if memory.gpu_layers_draft is not None:
        words += ["-ngld", str(memory.gpu_layers_draft)]
    if not repacking_is_allowed():
        words.append("--no-repack")
    # It ends behind the first round that brings more than -n.
    return [*words, "--temp", "0", "-n", str(tokens - 1)]


def prompt_text(vocabulary: Vocabulary, prompt: Sequence[int]) -> str:
    """The text that becomes ``prompt`` again; raises DsparkError where there is none."""
    for begin in (0, 1):  # a BOS that is put before any text must not be in it
        text = vocabulary.spell(prompt[begin:])
        if vocabulary.tokenize(text, add_special=True, parse_special=True) == [*prompt]:
            return text
    raise DsparkError(
        f"a prompt of {len(prompt)} tokens is no text that becomes the same tokens again, which "
        "--peer would need"
    )


def read_report(said: str, name: str, prompt_tokens: int) -> Statistics:
    """What the runner says of its run; raises DsparkError where it says something else."""
    read, decoded = READ.search(said), DECODED.search(said)
    if read is None or decoded is None:
        raise DsparkError(
            f"--peer {name} reports no time, wanted llama-speculative-simple",
            log=said.splitlines()[-LAST_WORDS:],
        )
    if int(read[1]) != prompt_tokens:
        raise DsparkError(
            f"--peer {name} read {read[1]} tokens of a prompt of {prompt_tokens}: it is of "
            "another version, or tokenizes otherwise"
        )
    drafted, accepted = (
        int(found[1]) if (found := pattern.search(said)) else 0 for pattern in (DRAFTED, ACCEPTED)
    )
    n_predict = int(decoded[1])
    return Statistics(
        n_prompt=prompt_tokens,
        n_predict=n_predict,
        num_spec_steps=n_predict - accepted,  # every round brings one token of the target's own
        num_proposed_draft_tokens=drafted,
        num_draft_tokens=drafted,
        num_accepted_draft_tokens=accepted,
        num_rejected_draft_tokens=drafted - accepted,
        decode_seconds=float(decoded[2]),
    )
