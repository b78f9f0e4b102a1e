"""A model's vocabulary: text to tokens and back, and which tokens end a text."""

from collections.abc import Iterable

import llama_cpp.llama_cpp as bindings

from dspark_cli.engine.model import Model
from dspark_cli.errors import DsparkError
from dspark_cli.native import tokens as native

NO_TOKEN = -1  # LLAMA_TOKEN_NULL


class Vocabulary:
    """The tokenizer of a loaded model; valid as long as the model is."""

    def __init__(self, model: Model) -> None:
        self._handle = bindings.llama_model_get_vocab(model.handle)
        self._model = model
        self._pieces: dict[int, bytes] = {}

    def __len__(self) -> int:
        return int(bindings.llama_vocab_n_tokens(self._handle))

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Tokens of ``text``.

        ``add_special`` adds what the model wants around a text (BOS), ``parse_special`` turns the
        text of control tokens into them.
        """
        try:
            raw = text.encode()
        except UnicodeEncodeError as error:
            raise DsparkError(
                f"the prompt is not UTF-8: character {error.start} is {text[error.start]!a}"
            ) from None
        tokens = native.tokenize(
            self._handle, raw, add_special=add_special, parse_special=parse_special
        )
        if tokens is None:
            raise DsparkError(f"llama.cpp could not tokenize a text of {len(text)} characters")
        return tokens

    def piece(self, token: int) -> bytes:
        """The bytes that ``token`` adds to a text; control tokens add none."""
        if token not in self._pieces:
            self._pieces[token] = native.token_to_piece(self._handle, token, special=False)
        return self._pieces[token]

    def text(self, token: int) -> str:
        """``token`` as people write it, control tokens included; empty for no token."""
        if token == NO_TOKEN:
            return ""
        return native.token_to_piece(self._handle, token, special=True).decode(errors="replace")

    def spell(self, tokens: Iterable[int]) -> str:
        """The text of ``tokens``, control tokens included."""
        pieces = (native.token_to_piece(self._handle, token, special=True) for token in tokens)
        return b"".join(pieces).decode(errors="replace")

    def is_eog(self, token: int) -> bool:
        return bool(bindings.llama_vocab_is_eog(self._handle, token))

    def eog_tokens(self) -> list[int]:
        """Every end-of-generation token: EOS, EOT and the vocabulary's other ends."""
        return [token for token in range(len(self)) if self.is_eog(token)]

    @property
    def bos(self) -> int:
        return int(bindings.llama_vocab_bos(self._handle))

    @property
    def eos(self) -> int:
        return int(bindings.llama_vocab_eos(self._handle))

    def chat_template(self) -> str | None:
        template = bindings.llama_model_chat_template(self._model.handle, None)
        return None if template is None else str(template.decode(errors="replace"))
