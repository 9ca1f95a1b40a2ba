"""`PretrainedModel`: a loaded model that is called with arrays or texts."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from bert_jax import sharding, storage
from bert_jax.config import BertConfig
from bert_jax.conversion.text_settings import MULTI_VECTOR_SIMILARITIES, NO_SETTINGS, TextSettings
from bert_jax.errors import InputError
from bert_jax.inference import programs
from bert_jax.inference.padding import POSITIONS, fetched, pad_inputs, padded_axes
from bert_jax.inference.registry import pipeline_class
from bert_jax.lazy import LazyModule
from bert_jax.modeling import Bert, BertOutput, Compute, Params
from bert_jax.tokenization import Tokenizer

if TYPE_CHECKING:
    from bert_jax.conversion import huggingface
    from bert_jax.inference import other_heads, similarity
else:
    huggingface = LazyModule("bert_jax.conversion.huggingface")
    other_heads = LazyModule("bert_jax.inference.other_heads")
    similarity = LazyModule("bert_jax.inference.similarity")


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["params"],
    meta_fields=["config", "head", "tokenizer", "compute", "max_length", "settings", "missing"],
)
@dataclasses.dataclass(frozen=True, eq=False)
class PretrainedModel:
    """A model with its parameters and its tokenizer; called with arrays or texts, it returns arrays.

    The model is a pytree whose leaves are the parameters, so `jax.tree.map`, `jax.device_put`, `jax.jit` and `jax.grad`
    accept it. Inside a transformed function it computes on tracers, without padding or checks of values.

    Attributes:
        config: the architecture.
        head: one of `modeling.HEADS`.
        params: the canonical parameter tree of jax arrays.
        tokenizer: None when the model's directory has none.
        compute: dtype, attention backend and platform of the forward pass.
        max_length: maximum number of tokens in an input.
        settings: prompts, similarity and other settings from sentence-transformers' files.
        missing: Hugging Face names of parameters that the files lack and that were freshly initialised.
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
        """Return the model as a function of parameters, for use under `jax.jit` or `jax.grad`."""
        return Bert(self.config, self.head, self.compute)

    @functools.cached_property  # cached, as each forward pass reads it
    def parts(self) -> int:
        """Return the number of devices among which the rows of a batch are split."""
        return sharding.batch_parts(mesh) if (mesh := programs.mesh_of(self.params)) else 1

    def __call__(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        token_type_ids: Any = None,
        position_ids: Any = None,
        masked_positions: Any = None,
        *,
        task_type_ids: Any = None,
        global_attention_mask: Any = None,
        word_positions: Any = None,
        type_positions: Any = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> BertOutput:
        """Run the forward pass without dropout on numpy arrays of any shape or on texts.

        Rows and tokens are padded to a few static sizes for the compiled function; outputs are cut back.

        Args:
            input_ids: `[B, S]`, or `[B, K, S]` for multiple choice; the next three have the same shape. Or one text or
                a list of texts, which the model's tokenizer pads to the longest; a text that is too long is an error.
            attention_mask: 1 for tokens, 0 for padding; None means no padding.
            token_type_ids: segment ids; None means 0.
            position_ids: rows of the position table, as in transformers. None means 0, 1, ...; for RoBERTa, XLM-R and
                MPNet it means `config.positions.position_offset` (2), 3, ..., with padding at row 1.
            masked_positions: `[B, P]`, positions at which to compute masked-LM logits; None means all positions.
            task_type_ids: ids of ERNIE's tasks, with the shape of input_ids; None means 0.
            global_attention_mask: for a Longformer, 1 for tokens with global attention, with the shape of input_ids;
                None means the tokens that transformers chooses for the head.
            word_positions: for a GLiNER, as for `Bert.apply`.
            type_positions: for a GLiNER, as for `Bert.apply`.
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
            "task_type_ids": task_type_ids,
            "global_attention_mask": global_attention_mask,
            "word_positions": word_positions,
            "type_positions": type_positions,
        }
        if isinstance(input_ids, str) or (isinstance(input_ids, list) and input_ids and isinstance(input_ids[0], str)):
            inputs |= self._tokenized(input_ids)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((self.params, inputs))):
            if position_ids is not None:
                inputs["position_ids"] = position_ids - self.config.positions.position_offset
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
        max_active_dims: int | None = None,
        batch_invariant: bool = False,
        task: str | None = None,
    ) -> np.ndarray:
        """Embed texts as vectors, like `encode` of sentence-transformers.

        Args:
            texts: one text or a list of N texts; texts over `max_length` tokens are cut.
            prompt_name: name of the model's prompt to put before each text; None = the default prompt, "" = none.
            prompt: text to put before each text, instead of a named prompt.
            batch_size: maximum number of texts per forward pass; None = chosen for the device.
            show_progress_bar: whether to show a progress bar on stderr.
            normalize_embeddings: whether to scale the (truncated) vectors to length 1.
            truncate_dim: number of leading dimensions to keep; None = from the model's files.
            max_active_dims: number of greatest weights of a sparse vector to keep; None = from the model's files.
            batch_invariant: whether a vector is bitwise independent of the other texts; see `Pipeline`.
            task: `query` or `document`, whose prompt is put before each text; None = the default prompt.

        Returns:
            float32 `[D]` for one text, `[N, D]` for a list. A model of sparse embeddings returns a
            `scipy.sparse.csr_array` `[N, V]`, a model with a vector for each token `[T, D]` or a list of these.

        Raises:
            InputError: an item is not a text, the prompt does not exist, or the model has no tokenizer.
        """
        kind = pipeline_class("sentence-embedding", self.head)
        model = self if self.head == kind.head else other_heads.with_head(self, kind.head, "sentence-embedding")
        embed = kind(model, batch_size, batch_invariant=batch_invariant)
        options = {"task": task, "prompt_name": prompt_name, "prompt": prompt, "progress": show_progress_bar}
        vectors: Any = embed(texts, truncate_dim=truncate_dim, max_active_dims=max_active_dims, **options)
        if normalize_embeddings:
            scaled = functools.partial(similarity.comparable, "cosine")
            vectors = list(map(scaled, vectors)) if isinstance(vectors, list) else scaled(vectors)
        return vectors  # type: ignore[no-any-return]

    def encode_query(self, texts: str | Sequence[str], **options: Any) -> np.ndarray:
        """Embed queries, after the model's prompt `query`, if it has one; options as for `encode`."""
        return self.encode(texts, task="query", **options)

    def encode_document(self, texts: str | Sequence[str], **options: Any) -> np.ndarray:
        """Embed documents, after the prompt `document`, `passage` or `corpus`, if any; options as for `encode`."""
        return self.encode(texts, task="document", **options)

    def similarity(self, first: Any, second: Any) -> np.ndarray:
        """Return the similarities `[N, M]` of two sets of embeddings, as returned by `encode`.

        They are vectors `[N, D]` and `[M, D]`, dense or sparse, or lists of N and M arrays `[T, D]`. The model's files
        name the similarity: cosine, dot, negative euclidean or manhattan distance, maxsim or meanmaxsim. The default is
        cosine; for sparse embeddings it is dot, and for token vectors maxsim.
        """
        if self.settings.similarity in MULTI_VECTOR_SIMILARITIES:
            first, second = ([each] if getattr(each, "ndim", 0) == 2 else each for each in (first, second))
        elif not hasattr(first, "tocsr"):
            first, second = np.atleast_2d(first), np.atleast_2d(second)
        return similarity.similarities(self.settings.similarity, first, second)

    def _tokenized(self, texts: str | list[str]) -> dict[str, np.ndarray]:
        if self.tokenizer is None:
            raise InputError("input_ids: expected arrays of ids, as the model has no tokenizer, found text")
        if self.head == "multiple_choice":
            raise InputError("input_ids: expected an array of ids [B, K, S], found text; tokenize the choices")
        return self.tokenizer(texts, max_length=self.max_length, truncation=False)

    def run(self, *args: Any, **options: Any) -> BertOutput:
        """Run the forward pass and return the output; arguments as for `begin`."""
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
        """Dispatch the forward pass, and return a function that waits for the output and returns it.

        Several passes may be dispatched before the first output is fetched, so that the device need not wait.

        Args:
            inputs: the arguments of `__call__` that are arrays, by name.
            fields: `BertOutput` fields to compute and copy to the host, () = all; the others are None.
            rows: number of rows to which the inputs are padded; None means the next larger of a few static sizes.
            length: number of tokens to which the rows are padded; None means the next larger of a few static sizes.

        Returns:
            A function that waits for the output and returns it.
        """
        arrays = self._checked(inputs)
        padded, sizes = pad_inputs(arrays, self.config, rows, length, self.parts)
        options = fields, output_hidden_states, output_attentions
        forward = programs.compile_forward(self.bert, self.params, padded, *options)
        values = forward(self.params, padded)
        axes = padded_axes(self.head, "masked_positions" in arrays)
        choices = arrays["input_ids"].shape[1] if self.head == "multiple_choice" else 1
        return functools.partial(fetched, values, axes, sizes, choices)

    def compile(self, inputs: Mapping[str, Any], fields: tuple[str, ...], rows: int, length: int) -> None:
        """Compile the forward pass for inputs padded to `rows` and `length`, or read it from the disk cache.

        Args:
            inputs: arrays like those of `begin`, of at most `rows` rows and `length` tokens.
            fields: as in `begin`.
            rows: number of rows.
            length: number of tokens of a row.
        """
        padded, _ = pad_inputs(self._checked(inputs), self.config, rows, length, self.parts)
        programs.compile_forward(self.bert, self.params, padded, fields)

    def save_pretrained(self, directory: storage.PathLike, overwrite: bool = False) -> None:
        """Write a model directory that Hugging Face transformers can load (`huggingface.save_pretrained`)."""
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
        """Check shapes and ranges of the given inputs, and return them as int32 arrays."""
        config = self.config
        arrays = {name: _integers(name, value) for name, value in inputs.items() if value is not None}
        if config.type_vocab_size < 2:  # such models do not distinguish segments
            arrays.pop("token_type_ids", None)
        if "task_type_ids" in arrays and not config.setting("task_type_vocab_size"):
            raise InputError("task_type_ids: expected none, as the model has no task embedding, found an array")
        if "global_attention_mask" in arrays and not config.setting("max_global_tokens"):
            raise InputError("global_attention_mask: expected none, as the model has no global attention, found one")
        ids = arrays["input_ids"]
        expected = "[B, K, S]" if self.head == "multiple_choice" else "[B, S]"
        if ids.ndim != (3 if self.head == "multiple_choice" else 2) or 0 in ids.shape:
            raise InputError(f"input_ids: expected a non-empty array {expected}, found shape {list(ids.shape)}")
        length = ids.shape[-1]
        if length > config.max_position_embeddings:
            raise InputError(
                f"input_ids: expected at most the model's {config.max_position_embeddings} positions, "
                f"found a sequence of {length} tokens"
            )
        limits = {
            "input_ids": config.vocab_size,
            "token_type_ids": config.type_vocab_size,
            "task_type_ids": config.setting("task_type_vocab_size"),
            "position_ids": config.max_position_embeddings + config.positions.position_offset,
            "masked_positions": length,
            "word_positions": length,
            "type_positions": length,
            "attention_mask": 2,
            "pooling_mask": 2,
            "global_attention_mask": 2,
        }
        for name, array in arrays.items():
            fits = array.shape[:-1] == ids.shape[:-1] if name in POSITIONS else array.shape == ids.shape
            if not fits:
                raise InputError(f"{name}: expected shape {list(ids.shape)} like input_ids, found {list(array.shape)}")
            if array.size and not (array.min() >= 0 and array.max() < limits[name]):
                wrong = array[(array < 0) | (array >= limits[name])][0]
                raise InputError(f"{name}: expected 0 to {limits[name] - 1}, found {wrong}")
        int32_arrays = {name: array.astype(np.int32) for name, array in arrays.items()}
        if "position_ids" in int32_arrays:
            int32_arrays["position_ids"] -= config.positions.position_offset  # `Bert.apply` counts positions from 0
        config.attention.check_arrays(config, self.head, int32_arrays)
        return int32_arrays


def _integers(name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:
        raise InputError(f"{name}: expected rows of equal length, found rows of different lengths") from None
    if array.dtype == np.bool_:
        array = array.astype(np.int32)
    if not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"{name}: expected integers, found {array.dtype.name}")
    return array
