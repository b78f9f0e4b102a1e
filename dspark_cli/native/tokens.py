"""Text to tokens and back, through buffers that llama.cpp writes into."""

import ctypes
from typing import Any

import llama_cpp.llama_cpp as bindings


def tokenize(
    vocabulary: Any,
    raw: bytes,
    *,
    add_special: bool,
    parse_special: bool,
) -> list[int] | None:
    """Tokens of ``raw``, or None where llama.cpp fails."""
    capacity = len(raw) + 8  # never more tokens than bytes, plus what add_special adds
    tokens = (bindings.llama_token * capacity)()
    count = bindings.llama_tokenize(
        vocabulary, raw, len(raw), tokens, capacity, add_special, parse_special
    )
    return None if count < 0 else list(tokens[:count])


def token_to_piece(vocabulary: Any, token: int, *, special: bool) -> bytes:
    """The bytes of one token; control tokens have some only if ``special``."""
    capacity = 64  # llama.cpp answers minus the room it needs where that is too little
    while True:
        buffer = ctypes.create_string_buffer(capacity)
        length = bindings.llama_token_to_piece(vocabulary, token, buffer, capacity, 0, special)
        if length >= 0:
            return buffer.raw[:length]
        capacity = -length
