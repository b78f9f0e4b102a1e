"""The hyper-parameters of a checkpoint, by the rules of four frameworks."""

from collections.abc import Mapping
from dataclasses import dataclass

from dspark_cli.contract.shapes import MAX_LAYERS
from dspark_cli.convert.config import LARGEST, Config
from dspark_cli.convert.recipe import LARGEST_BLOCK, check_attention
from dspark_cli.errors import DsparkError

ARCHITECTURES = {
    "Qwen3DSparkModel",
    "DSparkDraftModel",
    "DSparkSpeculator",
    "Lfm2DSparkDraftModel",
    "LingDSparkModel",
    "DSparkForCausalLM",
    "DsparkSpeculator",
}
EASYDEL_ONLY = {"DSparkForCausalLM", "DsparkSpeculator"}
REFUSED = {
    "Gemma4DSparkModel": "its layers are Gemma's (scaled embeddings, GELU, no values)",
    "DeepseekV4DSparkModel": "its layers are DeepSeek-V4 stages",
    "DFlashDraftModel": "it is a plain DFlash drafter without DSpark's heads",
    "DFlash2DraftModel": "it is a DFlash2 drafter with a selector",
}
DEFAULT_BLOCK = 16  # llama.cpp's converter, where a config has no block_size
EASYDEL_BLOCK = 7  # the fork's
YARN_REFUSED = ("attention_factor", "attn_factor", "mscale", "mscale_all_dim", "truncate")
MAX_WINDOW_LAYERS = 28  # Qwen3Config


@dataclass(frozen=True, slots=True)
class Geometry:
    """Everything that ``config.json`` says and mainline wants to know."""

    framework: str
    layers: int
    width: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_length: int
    epsilon: float
    rope_base: float
    rope_length: int
    stretch: "Stretch"
    interleaved: bool
    context_length: int
    block_size: int
    mask_token: int
    taps: tuple[int, ...]  # inputs of target layers
    reads_anchor_row: bool
    causal: bool | None  # None: not said
    window: int | None
    sliding: tuple[bool, ...]  # per layer
    notes: tuple[str, ...]

    @property
    def kind(self) -> str:
        """What the source is, in words."""
        return f"a checkpoint of {self.framework}"

    @classmethod
    def of(cls, config: Config) -> "Geometry":
        """Read a config; raises DsparkError for what is missing or not expressible."""
        _check_kind(config)
        framework = _framework(config)
        layers = config.integer("num_hidden_layers", most=MAX_LAYERS)
        width = config.integer("hidden_size")
        heads = config.integer("num_attention_heads")
        length = config.integer("head_dim", default=width // heads)
        rope = {**config.part("rope_scaling"), **config.part("rope_parameters")}
        block, notes = _block_size(config, framework)
        window, sliding = _window(config, layers)
        anchor = config.flag("sample_from_anchor")
        if anchor is None:
            anchor = framework != "speculators"
        partial = rope.get("partial_rotary_factor", config.get("partial_rotary_factor"))
        rotated = _rope_length(config, length, partial)
        kv_heads = config.integer("num_key_value_heads", default=heads)
        check_attention(
            config.path, heads=heads, kv_heads=kv_heads, length=length, rotated=rotated
        )
        base = rope.get("rope_theta", config.get("rope_theta"))
        return cls(
            framework=framework,
            layers=layers,
            width=width,
            feed_forward=config.integer("intermediate_size"),
            heads=heads,
            kv_heads=kv_heads,
            head_length=length,
            epsilon=config.number("rms_norm_eps"),
            rope_base=_above_zero(config, "rope_theta", base, 10_000.0),
            rope_length=rotated,
            stretch=Stretch.of(config, rope),
            interleaved=config.flag("rope_is_neox_style") is False,
            context_length=config.integer("max_position_embeddings"),
            block_size=block,
            mask_token=config.integer("mask_token_id", least=0),
            taps=_taps(config),
            reads_anchor_row=anchor,
            causal=config.flag("is_causal", "causal"),
            window=window,
            sliding=sliding,
            notes=notes,
        )


def _check_kind(config: Config) -> None:
    names = config.texts("architectures")
    for name in names:
        if name in REFUSED:
            raise DsparkError(
                f"{config.path}: {name} cannot be converted here: {REFUSED[name]}",
                hint="llama.cpp's own convert_hf_to_gguf.py may know it",
            )
    kind = config.text("speculators_model_type")
    if (kind or "dspark") != "dspark" or not (kind or ARCHITECTURES & {*names}):
        raise DsparkError(
            f"{config.path}: is no DSpark drafter: architectures {', '.join(names) or 'unsaid'}, "
            f"wanted one of {', '.join(sorted(ARCHITECTURES))}"
        )
    if (markov := config.text("markov_head_type") or "vanilla") != "vanilla":
        raise DsparkError(
            f"{config.path}: its Markov head is {markov}, which llama.cpp's dflash cannot express",
            hint="only drafters with markov_head_type vanilla can be converted",
        )
    if (activation := config.text("hidden_act") or "silu") not in {"silu", "swish"}:
        raise DsparkError(f"{config.path}: hidden_act is {activation}, wanted silu")
    for name in ("input_embedding_scale", "attention_value_scale"):
        if config.get(name) not in {None, 1}:
            raise DsparkError(f"{config.path}: {name} is {config.get(name)}, wanted none")


def _framework(config: Config) -> str:
    names = {*config.texts("architectures")}
    top = config.parts[2]
    if "transformer_layer_config" in top or "aux_hidden_state_layer_ids" in top:
        return "speculators"
    if "dflash_config" in top:
        return "SpecForge"
    if EASYDEL_ONLY & names or config.get("log_snr_conditioning") is not None:
        return "EasyDeL"
    return "DeepSpec"


def _block_size(config: Config, framework: str) -> tuple[int, tuple[str, ...]]:
    default = EASYDEL_BLOCK if framework == "EasyDeL" else DEFAULT_BLOCK
    if config.get("block_size") is None:
        return default, (f"its config has no block_size; {default} is taken, as converters do",)
    return config.integer("block_size", most=LARGEST_BLOCK), ()


def _taps(config: Config) -> tuple[int, ...]:
    """Inputs of layers; only speculators names them so, the others name outputs."""
    inputs = config.integers("aux_hidden_state_layer_ids", least=0, most=MAX_LAYERS)
    outputs = config.integers("target_layer_ids", least=-1, most=MAX_LAYERS - 1)
    if outputs is not None:
        return tuple(layer + 1 for layer in outputs)
    if inputs is None:
        raise DsparkError(
            f"{config.path}: has neither target_layer_ids nor aux_hidden_state_layer_ids"
        )
    return inputs


def _window(config: Config, layers: int) -> tuple[int | None, tuple[bool, ...]]:
    """How far back sliding layers look, and which they are; None where none does."""
    everywhere = bool(config.flag("use_swa"))
    if not everywhere and not config.flag("use_sliding_window"):
        return None, ()
    if config.get("swa_window_size") is None and config.get("sliding_window") is None:
        return None, ()
    window = config.integer("swa_window_size", "sliding_window")
    kinds = config.texts("layer_types")
    if everywhere:
        sliding = (True,) * layers
    elif kinds:
        if len(kinds) != layers:
            raise DsparkError(
                f"{config.path}: layer_types names {len(kinds)} layers, wanted {layers}"
            )
        sliding = tuple(kind == "sliding_attention" for kind in kinds)
    else:
        full = config.integer("max_window_layers", default=MAX_WINDOW_LAYERS, least=0)
        sliding = tuple(number >= full for number in range(layers))
    return (window, sliding) if any(sliding) else (None, ())


def _rope_length(config: Config, length: int, partial: object) -> int:
    share = _above_zero(config, "partial_rotary_factor", partial, 1.0)
    return int(length * share)


@dataclass(frozen=True, slots=True)
class Stretch:
    """How rotary positions are scaled; by YaRN where ``trained`` is not None."""

    factor: float = 1.0
    trained: int | None = None  # positions before stretching
    fast: float = 32.0
    slow: float = 1.0

    @classmethod
    def of(cls, config: Config, rope: Mapping[str, object]) -> "Stretch":
        kind = rope.get("rope_type") or rope.get("type") or "default"
        if kind in {"default", "none", "mrope"}:
            return cls()
        odd = sorted(name for name in YARN_REFUSED if rope.get(name) is not None)
        if kind not in {"linear", "yarn"} or (kind == "yarn" and odd):
            raise DsparkError(
                f"{config.path}: its rotary positions are scaled by "
                f"{' '.join([str(kind)[:40], *odd])}, which is not supported here"
            )
        factor = _above_zero(config, "rope_scaling.factor", rope.get("factor"), None)
        if kind == "linear":
            return cls(factor)
        longest = float(config.integer("max_position_embeddings"))
        original = rope.get("original_max_position_embeddings")
        trained = _above_zero(config, "original_max_position_embeddings", original, longest)
        return cls(
            factor,
            int(min(trained, longest)) or 1,
            _above_zero(config, "beta_fast", rope.get("beta_fast"), 32.0),
            _above_zero(config, "beta_slow", rope.get("beta_slow"), 1.0),
        )


def _above_zero(config: Config, name: str, value: object, default: float | None) -> float:
    if value is None and default is not None:
        return default
    sound = isinstance(value, int | float) and not isinstance(value, bool)
    if not sound or not 0 < value < LARGEST:  # type: ignore[operator]
        raise DsparkError(f"{config.path}: {name} wants a number above 0, got {repr(value)[:60]}")
    return float(value)  # type: ignore[arg-type]
