"""Where a command's prompts come from, and how they become tokens."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dspark_cli.chat import ChatOptions, parse_variables
from dspark_cli.errors import UsageError
from dspark_cli.prompts import (
    Prompt,
    from_file,
    parse_token_ids,
    read_bytes,
    read_jsonl,
    read_text,
    read_to_end,
    read_token_ids,
    unescape,
)

if TYPE_CHECKING:
    from dspark_cli.pair import Pair


STDIN = Path("-")


def source_of(prompt: Prompt | list[int]) -> str:
    """Where a prompt stood, for messages."""
    return prompt.source if isinstance(prompt, Prompt) else "--token-ids"


@dataclass(frozen=True, slots=True)
class PromptSource:
    """Where prompts come from: ``-p``, ``-f``, ``--prompts``, ``--token-ids`` or stdin."""

    text: str | None
    file: Path | None
    many: Path | None
    token_ids: Path | None
    escape: bool
    chat: ChatOptions | None  # None: the text as it stands

    def check(self) -> None:
        """Refuse what cannot be, before anything is loaded."""
        given = [self.text, self.file, self.many, self.token_ids]
        if sum(source is not None for source in given) > 1:
            raise UsageError("give one of -p, -f, --prompts and --token-ids, not several")
        if self.chat is not None and self.token_ids is not None:
            raise UsageError("--token-ids is a finished prompt, --chat cannot wrap it")
        if self.escape and self.text is None:
            raise UsageError("-e reads the escapes in -p, which is not given")
        unsaid = all(source is None for source in given)
        if (unsaid or STDIN in {self.file, self.token_ids}) and (
            sys.stdin is None or (unsaid and sys.stdin.isatty())
        ):
            raise UsageError("no prompt", hint="give -p TEXT or -f FILE, or pipe one into stdin")

    def read(self, vocabulary: int) -> list[Prompt | list[int]]:
        """Every prompt, as text or as token ids, read before any weights are."""
        if self.text is not None:
            return [Prompt(unescape(self.text) if self.escape else self.text, "-p")]
        if self.token_ids == STDIN:
            return [parse_token_ids(self._stdin(), "stdin", vocabulary)]
        if self.token_ids is not None:
            return [read_token_ids(self.token_ids, vocabulary)]
        if self.many is not None:
            return list(read_jsonl(self.many))
        if self.file is not None and self.file != STDIN:
            return [from_file(read_bytes(self.file), str(self.file))]
        return [from_file(self._stdin(), "stdin")]

    def _stdin(self) -> bytes:
        return read_to_end(sys.stdin.buffer, "stdin")

    def tokens(self, pair: "Pair", prompt: Prompt | list[int]) -> list[int]:
        """One prompt as the target's tokens, in its chat template where that is wanted.

        Raises InterruptedRunError on Ctrl-C: a template may take any time.
        """
        from dspark_cli.generate import chat_prompt, raw_prompt
        from dspark_cli.native.interrupt import ctrl_c_raises

        if isinstance(prompt, list):
            return prompt
        with ctrl_c_raises():
            if self.chat is None:
                return raw_prompt(pair, prompt.text)
            return chat_prompt(pair, prompt.text, self.chat)


def chat_options(
    *,
    wanted: bool,
    system: str | None,
    template_file: Path | None,
    variables: str | None,
    no_thinking: bool,
) -> ChatOptions | None:
    """What ``--chat`` and its companions say; None where the text is to stay as it is."""
    template = None if template_file is None else read_text(template_file)
    if template is not None and not template.strip():
        raise UsageError(f"{template_file}: holds no template, --chat-template-file wants one")
    options = ChatOptions(
        system=system,
        template=template,
        variables=parse_variables(variables, no_thinking=no_thinking),
    )
    if wanted:
        return options
    if options != ChatOptions():
        raise UsageError("--system, --chat-template-* and --no-thinking need --chat")
    return None
