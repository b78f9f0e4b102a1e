"""Token pieces to text: whole characters only, and nothing of a stop text.

Bytes in, bytes out: what the model says reaches the user as it is, even where it is no UTF-8.
"""

from collections.abc import Sequence
from dataclasses import dataclass

# Lead bytes of UTF-8 (RFC 3629): the first byte says how many the character has.
TWO, THREE, FOUR, BEYOND = 0xC2, 0xE0, 0xF0, 0xF5
CONTINUATION, CONTINUATION_MASK = 0x80, 0xC0


@dataclass(frozen=True, slots=True)
class Segment:
    """Whole characters, and the token that completed them."""

    data: bytes
    token: int  # which of the pieces fed so far, from 0


def incomplete_tail(data: bytes) -> int:
    """How many bytes at the end begin a character whose rest is still to come."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & CONTINUATION_MASK == CONTINUATION:  # look further left
            continue
        length = 1
        if TWO <= byte < BEYOND:
            length = 2 if byte < THREE else 3 if byte < FOUR else 4
        return back if length > back else 0
    return 0


class TextStream:
    """Holds back what is not certain yet: half a character, or what may become a stop text."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stops = [stop.encode() for stop in stops]
        self._held: list[Segment] = []
        self._fed = 0
        self.stopped = False

    def feed(self, piece: bytes) -> list[Segment]:
        """Add a token's bytes and return what may be shown now; a stop text sets ``stopped``."""
        if piece:
            self._held.append(Segment(piece, self._fed))
        self._fed += 1
        text = b"".join(segment.data for segment in self._held)
        found = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped = True
            released = self._release(min(found))
            self._held.clear()
            return released
        return self._release(len(text) - max(incomplete_tail(text), self._possible_stop(text)))

    def flush(self) -> list[Segment]:
        """Everything still held; the text is over, so half a character stays half."""
        return self._release(sum(len(segment.data) for segment in self._held))

    def _possible_stop(self, text: bytes) -> int:
        """Length of the longest end of ``text`` that a stop text begins with."""
        return max(
            (
                length
                for stop in self._stops
                for length in range(1, min(len(stop), len(text) + 1))
                if text.endswith(stop[:length])
            ),
            default=0,
        )

    def _release(self, count: int) -> list[Segment]:
        """Take the first ``count`` held bytes, each character with the token that completes it."""
        released: list[Segment] = []
        begun = b""
        while count > 0:
            segment = self._held.pop(0)
            data, rest = segment.data[:count], segment.data[count:]
            count -= len(data)
            if rest:
                self._held.insert(0, Segment(rest, segment.token))
            data = begun + data
            whole = len(data) - (incomplete_tail(data) if count else 0)
            if whole:
                released.append(Segment(data[:whole], segment.token))
            begun = data[whole:]
        return released
