"""`PretrainedModel`: a model directory as a callable over arrays or texts."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.conversion import huggingface
from bert_jax.conversion.text_settings import NO_SETTINGS, TextSettings
from bert_jax.errors import InputError
from bert_jax.inference.scoring import normalize_vectors, similarities
from bert_jax.modeling import Bert, BertOutput, Compute, Params
from bert_jax.tokenization import Tokenizer

_SHORTEST = 16  # least number of tokens that sequences are padded to
# Which axes of an output were padded: B rows, S tokens, P masked positions; a dot stands for an axis that was not.
_PADDED_AXES = {
    "last_hidden_state": "BS.",
    "hidden_states": "BS.",
    "attentions": "B.SS",
    "pooler_output": "B.",
    "sentence_embedding": "B.",
    "seq_relationship_logits": "B.",
    "start_logits": "BS",
    "end_logits": "BS",
}
_LOGITS_AXES = {
    "masked_lm": "BS.",
    "pretraining": "BS.",
    "token_classification": "BS.",
    "replaced_token_detection": "BS",
}


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["params"],
    meta_fields=["config", "head", "tokenizer", "compute", "max_length", "settings", "missing"],
)
@dataclasses.dataclass(frozen=True, eq=False)
class PretrainedModel:
    """A model with its parameters and its tokenizer; called with arrays or texts, it returns arrays.

    It is a pytree whose leaves are the parameters, so that `jax.tree.map`, `jax.device_put`, `jax.jit` and `jax.grad`
    take it. Within a transformed function it computes on tracers, without padding or checks of values.

    Attributes:
        config: the architecture.
        head: one of `modeling.HEADS`.
        params: the canonical tree, of jax arrays.
        tokenizer: None when the model's directory has none.
        compute: how the forward pass runs.
        max_length: the longest input in tokens that the model is meant for.
        settings: what the files of sentence-transformers say of texts, vectors and scores.
        missing: Hugging Face names of the parameters that its files lacked and that were freshly initialised.
    """

    config: BertConfig
    head: str
    params: Params = dataclasses.field(repr=False)
    tokenizer: Tokenizer | None
    compute: Compute
    max_length: int
    settings: TextSettings = NO_SETTINGS
    missing: tuple[str, ...] = ()

    @property
    def bert(self) -> Bert:
        """The same as a function of parameters, to be used under `jax.jit` or `jax.grad`."""
        return Bert(self.config, self.head, self.compute)

    def __call__(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        token_type_ids: Any = None,
        position_ids: Any = None,
        masked_positions: Any = None,
        *,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> BertOutput:
        """The forward pass without dropout, as `Bert.apply`, in and out as numpy arrays of any shape.

        Rows and tokens are padded to few sizes before the compiled function sees them, and cut back after it.

        Args:
            input_ids: `[B, S]`; `[B, K, S]` for multiple choice, as are the next three. Or a text or a list of texts,
                which the model's tokenizer pads to the longest; one that is too long is an error.
            attention_mask: 1 for tokens, 0 for padding; None means no padding.
            token_type_ids: segment ids; None means 0.
            position_ids: rows of the position table, as transformers counts them: None means from 0, and in a RoBERTa,
                XLM-R or MPNet from `config.position_offset` (2) with padding at the row before.
            masked_positions: `[B, P]`, where the masked-LM logits are wanted; None means everywhere.
            output_hidden_states: whether to return all hidden states.
            output_attentions: whether to return all attention maps.

        Raises:
            InputError: an array's shape, dtype or range does not fit the model.
        """
        inputs = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
            "masked_positions": masked_positions,
        }
        if isinstance(input_ids, str) or (isinstance(input_ids, list) and input_ids and isinstance(input_ids[0], str)):
            inputs |= self._tokenized(input_ids)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((self.params, inputs))):
            if position_ids is not None:
                inputs["position_ids"] = position_ids - self.config.position_offset
            return self.bert.apply(
                self.params, **inputs, output_hidden_states=output_hidden_states, output_attentions=output_attentions
            )
        return self.run(inputs, (), output_hidden_states, output_attentions)

    def encode(
        self,
        texts: str | Sequence[str],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,
        show_progress_bar: bool = False,
        *,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
    ) -> np.ndarray:
        """Embed texts, as `SentenceTransformer.encode` does.

        Args:
            texts: one text or a list of N; what is longer than `max_length` tokens is cut.
            prompt_name: which of the model's prompts is put before each text; None = its default, "" = none.
            prompt: the prompt itself, in place of a name.
            batch_size: texts in one forward pass, at most; None = as many as suit the machine.
            show_progress_bar: whether to show a bar on stderr.
            normalize_embeddings: whether to scale the vectors to length 1, after they are truncated.
            truncate_dim: numbers of a vector to keep, from the first; None = as the model's files say.

        Returns:
            float32 `[D]` for a text, `[N, D]` for a list.

        Raises:
            InputError: not texts; no such prompt; the model has no tokenizer.
        """
        from bert_jax.inference.pipelines import pipeline  # which imports this module

        embed = pipeline("sentence-embedding", self, batch_size=batch_size)
        found = embed(
            texts, prompt_name=prompt_name, prompt=prompt, truncate_dim=truncate_dim, progress=show_progress_bar
        )
        return normalize_vectors(found) if normalize_embeddings else found

    def similarity(self, first: Any, second: Any) -> np.ndarray:
        """Return `[N, M]`, how alike the vectors `[N, D]` and `[M, D]` are, by the similarity that the model's files
        name: cosine (the default), dot, euclidean or manhattan, the last two negative."""
        return similarities(self.settings.similarity, np.atleast_2d(first), np.atleast_2d(second))

    def _tokenized(self, texts: str | list[str]) -> dict[str, np.ndarray]:
        if self.tokenizer is None:
            raise InputError("input_ids: expected arrays of ids, as the model has no tokenizer, found text")
        if self.head == "multiple_choice":
            raise InputError("input_ids: expected an array of ids [B, K, S], found text; tokenize the choices")
        return self.tokenizer(texts, max_length=self.max_length, truncation=False)

    def run(self, *args: Any, **options: Any) -> BertOutput:
        """As `begin`, but waits for the output and returns it."""
        return self.begin(*args, **options)()

    def begin(
        self,
        inputs: Mapping[str, Any],
        fields: tuple[str, ...],
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        rows: int | None = None,
        length: int | None = None,
    ) -> Callable[[], BertOutput]:
        """As calling the model, but computes and copies to the host only some fields of the output, and not at once.

        Args:
            inputs: the arguments of `__call__` that are arrays, by name.
            fields: names of `BertOutput` fields; none means all. The others are None.
            rows, length: what the compiled function sees is padded to; None means the next of few sizes.

        Returns:
            What waits for the output and gives it. More may be begun before that, so that the device need not wait.
        """
        arrays = self._checked(inputs)
        padded, sizes = _padded(arrays, self.config, rows, length)
        output = _forward(self.bert, self.params, padded, fields, output_hidden_states, output_attentions)
        values = {field.name: getattr(output, field.name) for field in dataclasses.fields(output)}
        axes = _PADDED_AXES | {name: _LOGITS_AXES.get(self.head, "B.") for name in ("logits", "prediction_logits")}
        if "masked_positions" in arrays:
            axes |= dict.fromkeys(("logits", "prediction_logits"), "BP.")
        choices = arrays["input_ids"].shape[1] if self.head == "multiple_choice" else 1
        return functools.partial(_fetched, values, axes, sizes, choices)

    def save_pretrained(self, directory: storage.PathLike, overwrite: bool = False) -> None:
        """Writes a directory that Hugging Face transformers reads as it is (`huggingface.save_pretrained`)."""
        huggingface.save_pretrained(
            directory,
            self.config,
            self.head,
            self.params,
            self.tokenizer,
            settings=self.settings,
            overwrite=overwrite,
        )

    def _checked(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The inputs that were given as int32 arrays, after checking their shapes and ranges."""
        config = self.config
        arrays = {name: _integers(name, value) for name, value in inputs.items() if value is not None}
        if config.type_vocab_size < 2:  # such models have nothing to tell segments apart by
            arrays.pop("token_type_ids", None)
        ids = arrays["input_ids"]
        expected = "[B, K, S]" if self.head == "multiple_choice" else "[B, S]"
        if ids.ndim != (3 if self.head == "multiple_choice" else 2) or 0 in ids.shape:
            raise InputError(f"input_ids: expected a full {expected} array, found shape {list(ids.shape)}")
        length = ids.shape[-1]
        if length > config.max_position_embeddings:
            raise InputError(
                f"input_ids: expected at most the model's {config.max_position_embeddings} positions, "
                f"found a sequence of {length} tokens"
            )
        limits = {
            "input_ids": config.vocab_size,
            "token_type_ids": config.type_vocab_size,
            "position_ids": config.max_position_embeddings + config.position_offset,
            "masked_positions": length,
            "attention_mask": 2,
        }
        for name, array in arrays.items():
            fits = array.shape[:-1] == ids.shape[:-1] if name == "masked_positions" else array.shape == ids.shape
            if not fits:
                raise InputError(f"{name}: expected a shape as input_ids {list(ids.shape)}, found {list(array.shape)}")
            if array.size and not (array.min() >= 0 and array.max() < limits[name]):
                wrong = array[(array < 0) | (array >= limits[name])][0]
                raise InputError(f"{name}: expected 0 to {limits[name] - 1}, found {wrong}")
        found = {name: array.astype(np.int32) for name, array in arrays.items()}
        if "position_ids" in found:
            found["position_ids"] -= config.position_offset  # `Bert.apply` counts positions, not rows
        return found


def _integers(name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:
        raise InputError(f"{name}: expected rows of one length") from None
    if array.dtype == np.bool_:
        array = array.astype(np.int32)
    if not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"{name}: expected integers, found {array.dtype.name}")
    return array


def _bucket(size: int, smallest: int = 1) -> int:
    """The least of 1, 2, 4, 8, 16, 24, 32, 48, 64, 96, ... that is not below `size`: few shapes, little more work."""
    power = max(smallest, 1 << (size - 1).bit_length())
    return power // 4 * 3 if power > 16 and size <= power // 4 * 3 else power


def _padded(
    arrays: dict[str, np.ndarray], config: BertConfig, rows: int | None, length: int | None
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """The inputs in one of few shapes, with a mask over what is not padding; and the sizes that they had."""
    ids = arrays["input_ids"]
    sizes = {"B": ids.shape[0], "S": ids.shape[-1]}
    rows = rows or _bucket(sizes["B"])
    length = length or min(_bucket(sizes["S"], _SHORTEST), config.max_position_embeddings)
    arrays = {"attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids), **arrays}
    padded = {}
    for name, array in arrays.items():
        last = length
        if name == "masked_positions":
            sizes["P"] = array.shape[-1]
            last = _bucket(sizes["P"])
        widths = [(0, rows - array.shape[0]), *[(0, 0)] * (array.ndim - 2), (0, last - array.shape[-1])]
        padded[name] = np.pad(array, widths, constant_values=config.pad_token_id if name == "input_ids" else 0)
    return padded, sizes


def _fetched(values: Mapping[str, Any], axes: Mapping[str, str], sizes: Mapping[str, int], choices: int) -> BertOutput:
    """Fields of the output on the host, without the padding."""
    cut = dict(values)
    for name, value in values.items():
        if value is not None:
            # What comes from the encoder has a row for each choice, and the logits a row for each question.
            rows = sizes["B"] * (1 if name == "logits" else choices)
            cut[name] = jax.tree.map(functools.partial(_cut, axes=axes[name], sizes={**sizes, "B": rows}), value)
    return BertOutput(**cut)


def _cut(value: jax.Array, axes: str, sizes: dict[str, int]) -> np.ndarray:
    """An output on the host, without the padding."""
    return np.asarray(value)[tuple(slice(sizes.get(axis)) for axis in axes)]


@functools.partial(jax.jit, static_argnames=("bert", "fields", "output_hidden_states", "output_attentions"))
def _forward(
    bert: Bert,
    params: Params,
    inputs: dict[str, jax.Array],
    fields: tuple[str, ...],
    output_hidden_states: bool,
    output_attentions: bool,
) -> BertOutput:
    """The compiled forward pass; outputs that are not among `fields` (none means all) are not even computed."""
    output = bert.apply(
        params,
        **inputs,
        output_last_hidden_state=not fields or "last_hidden_state" in fields,
        output_hidden_states=output_hidden_states,
        output_attentions=output_attentions,
    )
    if not fields:
        return output
    dropped: Any = {field.name: None for field in dataclasses.fields(output) if field.name not in fields}
    return dataclasses.replace(output, **dropped)
