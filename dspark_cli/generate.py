"""From a prompt to text and numbers: one run of an open pair.

This is the package as a library::

    options = PairOptions(model=find_target("smollm2"), draft=find_drafter("smollm2"))
    with open_pair(options) as pair:
        run = Generation(pair, chat_prompt(pair, "Explain rainbows to a child."))
        for text in run.text_pieces():
            print(text, end="", flush=True)
        print(run.statistics.mean_acceptance_length)
"""

import codecs
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from dspark_cli.auto import make_schedule
from dspark_cli.chat import ChatOptions, render_chat
from dspark_cli.decode import Decoding, NoDrafter
from dspark_cli.engine.sampler import chooser_for, random_seed
from dspark_cli.engine.vocab import Vocabulary
from dspark_cli.errors import DsparkError, InterruptedRunError, LlamaError, UsageError
from dspark_cli.events import Finish, FinishReason, Report, Round, Text
from dspark_cli.options import GenerationOptions
from dspark_cli.pair import Pair
from dspark_cli.stats import JsonObject, Statistics
from dspark_cli.text import Segment, TextStream
from dspark_cli.versions import versions

SINGLE_PASSES = (
    3  # single-token passes measured after a run; their median stands for plain decoding
)


class Generation:
    """One run: iterate over it to go on, read its result at any time.

    Raises UsageError for an empty prompt, DsparkError for one that the context cannot hold.
    """

    def __init__(
        self, pair: Pair, prompt: Sequence[int], options: GenerationOptions | None = None
    ) -> None:
        options = options or GenerationOptions()
        if not options.sampling.greedy and options.sampling.seed is None:
            options = replace(options, sampling=replace(options.sampling, seed=random_seed()))
        _check_prompt(prompt, pair)
        self.options = options
        self.statistics = Statistics(n_prompt=len(prompt))
        self.tokens: list[int] = []
        self._pair = pair
        self._prompt = list(prompt)
        self._drafted: list[bool] = []
        self._stream = TextStream(options.stops)
        self._released: list[Segment] = []
        self._begun = False
        self._text = bytearray()

    @property
    def seed(self) -> int | None:
        """The seed in use; a random one was drawn where none was given."""
        return self.options.sampling.seed

    @property
    def finish_reason(self) -> FinishReason | None:
        """None while the run goes on, or when its reader stopped reading."""
        return self.statistics.finish_reason

    @property
    def ended_at_once(self) -> bool:
        """Whether the target had nothing to say."""
        return self.finish_reason == "eog" and len(self.tokens) == 1

    @property
    def data(self) -> bytes:
        """The text so far, byte for byte."""
        return bytes(self._text)

    @property
    def text(self) -> str:
        """The text so far; bytes that are no UTF-8 become replacement characters."""
        return self.data.decode(errors="replace")

    def __iter__(self) -> Iterator[Report]:
        """Run from the prompt to the end.

        Raises RuntimeError the second time, and once another run has begun on the same pair.
        What was committed before a LlamaError has been reported when it is raised.
        """
        if self._begun:
            raise RuntimeError("this run is over or under way: make a new Generation to go again")
        self._begun = True
        pair, options = self._pair, self.options
        number = pair.clear(len(self._prompt) - 1)
        choose = chooser_for(options.sampling, pair.vocabulary, self._prompt)
        decoding = Decoding(
            pair.target,
            pair.drafter or NoDrafter(),
            self._prompt,
            choose,
            room=pair.room,
            limit=None if options.n_predict < 0 else options.n_predict,
            ends=self._ends,
            schedule=make_schedule(options.schedule, len(self._prompt)),
        )
        try:
            for event in decoding:
                if isinstance(event, Round):
                    self.tokens += event.tokens
                    drafted = [index < event.accepted for index in range(len(event.tokens))]
                    self._drafted += drafted
                if isinstance(event, Finish):
                    yield from self._texts(self._stream.flush())
                    pair.check_newest(number)
                    if event.reason != "interrupted":
                        self._measure_single_passes(decoding)
                self.statistics.add(event)
                yield event
                if isinstance(event, Round):
                    released, self._released = self._released, []
                    yield from self._texts(released)
                if not isinstance(event, Finish):
                    pair.check_newest(number)
        except LlamaError:
            yield from self._texts(self._stream.flush())
            raise

    def text_pieces(self) -> Iterator[str]:
        """Only the text, as it comes."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        for report in self:
            if isinstance(report, Text) and (piece := decoder.decode(report.data)):
                yield piece
        if rest := decoder.decode(b"", final=True):
            yield rest

    def as_json(self) -> JsonObject:
        """The document of ``dspark run --json``; its keys are documented in the README."""
        plan = self._pair.plan
        drafter = plan.drafter_fingerprint
        return {
            "text": self.text,
            "tokens": [*self.tokens],
            "finish_reason": self.finish_reason,
            "seed": self.seed,
            "speculation": plan.drafter.type_name if plan.drafter else "off (--no-draft)",
            **self.statistics.as_json(),
            "timings": {
                "load_seconds": self._pair.load_seconds,
                **self.statistics.timings_as_json(),
            },
            "sizes": sizes_as_json(self._pair),
            "target": dict(plan.target_fingerprint.as_json()),
            "drafter": dict(drafter.as_json()) if drafter else None,
            "versions": dict(versions()),
        }

    def _ends(self, token: int) -> FinishReason | None:
        """Feed one committed token to the text; says whether the text ends with it."""
        if self._pair.vocabulary.is_eog(token):
            return "eog"
        self._released += self._stream.feed(self._pair.vocabulary.piece(token))
        return "stop" if self._stream.stopped else None

    def _texts(self, segments: Sequence[Segment]) -> Iterator[Text]:
        for segment in segments:
            self._text += segment.data
            yield Text(segment.data, self._drafted[segment.token])

    def _measure_single_passes(self, decoding: Decoding) -> None:
        """Time the target over one token at the depth where the run ended, after its end."""
        if not self.statistics.num_spec_steps:
            return
        position = min(decoding.position, self._pair.room - 1)
        target = self._pair.target
        if not target.reaches(position):
            return  # a full context, whose last pass was over one token
        with suppress(InterruptedRunError):
            target.rewind(position)
            for _ in range(SINGLE_PASSES):
                seconds = target.rehearse([decoding.last], position, kept=1)
                self.statistics.plain_score_seconds.append(seconds)


def run_to_end(pair: Pair, prompt: Sequence[int], tokens: int) -> Statistics:
    """Answer ``prompt`` greedily with up to ``tokens`` tokens, as far as the context holds them.

    Raises InterruptedRunError after Ctrl-C.
    """
    room = pair.room - len(prompt)
    run = Generation(pair, prompt, GenerationOptions(n_predict=max(min(tokens, room), 1)))
    for _ in run:
        pass
    if run.finish_reason == "interrupted":
        raise InterruptedRunError
    return run.statistics


def raw_prompt(pair: Pair, text: str) -> list[int]:
    """Tokens of a text as it stands, with the BOS that the model wants before any text."""
    return raw_tokens(pair.vocabulary, text)


def raw_tokens(vocabulary: Vocabulary, text: str) -> list[int]:
    """As ``raw_prompt``, where there is no pair."""
    return vocabulary.tokenize(text, add_special=True, parse_special=True)


def chat_prompt(pair: Pair, user: str, options: ChatOptions | None = None) -> list[int]:
    """Tokens of a conversation that asks for the assistant's answer to ``user``."""
    return chat_tokens(pair.vocabulary, user, options)


def chat_tokens(
    vocabulary: Vocabulary, user: str, options: ChatOptions | None = None
) -> list[int]:
    """As ``chat_prompt``, where there is no pair."""
    bos = vocabulary.text(vocabulary.bos)
    text = render_chat(
        user,
        options or ChatOptions(),
        template=vocabulary.chat_template(),
        bos=bos,
        eos=vocabulary.text(vocabulary.eos),
    )
    # Many templates begin with the BOS themselves; a second one derails some models.
    has_bos = bool(bos) and text.startswith(bos)
    return vocabulary.tokenize(text, add_special=not has_bos, parse_special=True)


def own_tokens(vocabulary: Vocabulary, text: str) -> list[int]:
    """Tokens of a text put to a target as it wants it: in its chat template, where it has one."""
    encode = raw_tokens if vocabulary.chat_template() is None else chat_tokens
    return encode(vocabulary, text)


def sizes_as_json(pair: Pair) -> JsonObject:
    """Requested and effective sizes of both contexts."""
    sizes = pair.plan.sizes
    document: JsonObject = {
        "limit": sizes.limit,
        "target": {
            "n_ctx_requested": sizes.target.n_ctx_requested,
            "n_ctx": pair.target.context.n_ctx,
            "n_batch_requested": sizes.target.n_batch_requested,
            "n_batch": pair.target.context.n_batch,
            "n_ubatch": pair.target.context.n_ubatch,
        },
        "drafter": None,
    }
    if pair.drafter is not None and sizes.drafter is not None and pair.plan.drafter is not None:
        document["drafter"] = {
            "block_size": pair.plan.drafter.block_size,
            "n_max": pair.drafter.draft_max,
            "n_ctx_requested": sizes.drafter.n_ctx_requested,
            "n_ctx": pair.drafter.context.n_ctx,
            "n_batch_requested": sizes.drafter.n_batch_requested,
            "n_batch": pair.drafter.context.n_batch,
            "n_ubatch": pair.drafter.context.n_ubatch,
        }
    return document


def _check_prompt(prompt: Sequence[int], pair: Pair) -> None:
    if not prompt:
        raise UsageError(
            "the prompt is empty, and this model puts no BOS before a text: nothing to go on from"
        )
    if len(prompt) > pair.room:
        raise DsparkError(
            f"the prompt has {len(prompt)} tokens, the context holds {pair.room}",
            hint=f"use -c {len(prompt)} or more, or a shorter prompt",
        )
