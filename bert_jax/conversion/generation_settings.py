"""`GenerationSettings`: the settings of text generation in `generation_config.json`."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from bert_jax.errors import InputError

_IDS = ("decoder_start_token_id", "eos_token_id", "pad_token_id")


@dataclasses.dataclass(frozen=True)
class GenerationSettings:
    """Settings of text generation with an encoder-decoder; names and defaults are those of transformers.

    Attributes:
        decoder_start_token_id: the first token of the decoder.
        eos_token_id: the token that ends a text.
        pad_token_id: padding after the end.
        max_length: maximum number of tokens of a text, including the first.
        min_length: minimum number of tokens of a text, including the first and excluding the last.
        num_beams: number of beams of beam search; 1 = greedy search, or sampling.
        length_penalty: beam search divides the log probability of a text by its length to this power.
        early_stopping: when beam search ends for a text: True = as soon as it has `num_beams` complete texts; False =
            when no beam would be better at its current length; "never" = when no beam can become better.
        no_repeat_ngram_size: no sequence of this number of tokens occurs twice; 0 = no limit.
        do_sample: whether tokens are sampled, with one beam only.
        temperature: divisor of the logits before sampling.
        top_k: number of most likely tokens to sample from; 0 = all.
        top_p: tokens are sampled from the smallest set of most likely tokens whose probabilities sum to this.

    Raises:
        InputError: a value is out of its range, or two contradict each other.
    """

    decoder_start_token_id: int
    eos_token_id: int
    pad_token_id: int
    max_length: int = 20
    min_length: int = 0
    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    no_repeat_ngram_size: int = 0
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 1.0

    def __post_init__(self) -> None:
        for name, least in (*((name, 0) for name in _IDS), ("max_length", 2), ("min_length", 0), ("num_beams", 1),
                            ("no_repeat_ngram_size", 0), ("top_k", 0)):  # fmt: skip
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InputError(f"{name}: expected an integer of at least {least}, found {value!r}")
        for name, above, most in (("temperature", 0.0, math.inf), ("top_p", 0.0, 1.0)):
            value = getattr(self, name)
            if not _is_number(value) or not above < value <= most:
                limit = "" if most == math.inf else f" and at most {most:g}"
                raise InputError(f"{name}: expected a number above {above:g}{limit}, found {value!r}")
        if not _is_number(self.length_penalty):
            raise InputError(f"length_penalty: expected a number, found {self.length_penalty!r}")
        if not isinstance(self.do_sample, bool):
            raise InputError(f"do_sample: expected true or false, found {self.do_sample!r}")
        if self.early_stopping is not True and self.early_stopping is not False and self.early_stopping != "never":
            raise InputError(f"early_stopping: expected true, false or never, found {self.early_stopping!r}")
        if self.do_sample and self.num_beams > 1:
            raise InputError(f"num_beams: expected 1 with do_sample, found {self.num_beams}")
        if self.min_length >= self.max_length:
            raise InputError(f"min_length: expected less than max_length ({self.max_length}), found {self.min_length}")

    def changed(self, **changes: Any) -> "GenerationSettings":
        """Return the settings with the changes that are not None."""
        return dataclasses.replace(self, **{name: value for name, value in changes.items() if value is not None})

    def to_hf(self) -> dict[str, Any]:
        """Return the keys of `generation_config.json` that differ from transformers' defaults, and the ids."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        values = dataclasses.asdict(self)
        return {name: value for name, value in values.items() if name in _IDS or value != defaults[name]}


def read_generation_settings(keys: Mapping[str, Any], decoder: Mapping[str, Any], where: object) -> GenerationSettings:
    """Return the settings of an encoder-decoder.

    Args:
        keys: keys of its `generation_config.json`, and of `config.json` where the former lacks them.
        decoder: the decoder's config, whose ids are used where `keys` has none.
        where: the file, for messages.

    Raises:
        InputError: an id is missing, or a value is invalid.
    """
    settings = {key: value for key, value in keys.items() if value is not None}
    for name in ("eos_token_id", "pad_token_id", "bos_token_id"):
        if name not in settings and decoder.get(name) is not None:
            settings[name] = decoder[name]
    settings.setdefault("decoder_start_token_id", settings.get("bos_token_id"))
    values: dict[str, Any] = {}
    for name in (field.name for field in dataclasses.fields(GenerationSettings)):
        value = settings.get(name)
        if isinstance(value, list) and len(value) == 1:  # newer files have a list of ids
            value = value[0]
        if name in _IDS and value is None:
            raise InputError(f"{where}: {name}: expected the id of a token, found none")
        if value is not None:
            values[name] = value
    for name, key in (("max_length", "max_new_tokens"), ("min_length", "min_new_tokens")):
        if isinstance(settings.get(key), int):
            values[name] = settings[key] + 1
    try:
        return GenerationSettings(**values)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
