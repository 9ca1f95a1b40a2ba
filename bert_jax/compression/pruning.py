"""Prune a model directory: remove heads, feed-forward columns, layers and vocabulary, and write the smaller model."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax import storage
from bert_jax.compression import removal
from bert_jax.compression.examples import examples_of_data
from bert_jax.compression.importance import Importance, measure_importance
from bert_jax.config import BertConfig
from bert_jax.conversion.file_names import RECORD
from bert_jax.conversion.load_pretrained import Loaded, load_pretrained
from bert_jax.conversion.model_tokenizer import open_tokenizer
from bert_jax.conversion.save_pretrained import save_pretrained
from bert_jax.data.corpora.sources import open_corpus
from bert_jax.errors import InputError
from bert_jax.jobs.examples import Examples
from bert_jax.modeling import Params
from bert_jax.tokenization import Tokenizer, has_tokenizer
from bert_jax.tokenization.pruning import used_ids, with_fewer_pieces

EXAMPLES = 256  # default number of examples from which importance is computed
# Families whose Hugging Face models may have heads that do not fill hidden_size.
_FREE_HEADS = ("nomic_bert",)
NOT_IN_TRANSFORMERS = (
    "transformers cannot open this model, as its heads do not fill hidden_size (head_dim in config.json); bert_jax can"
)


@dataclasses.dataclass(frozen=True)
class Pruning:
    """Settings of pruning: the parts to remove from a model.

    Attributes:
        heads: share of each layer's attention heads to remove, rounded to a number of heads.
        columns: share of each layer's feed-forward columns to remove, rounded likewise.
        layers: the layers to keep, from 0, ascending; () = all.
        num_layers: the number of most important layers to keep; 0 = all.
        vocabulary: corpora (`bert_jax.data.corpora.sources.open_corpus`) whose pieces are kept; () = all pieces.

    Raises:
        InputError: nothing is to be removed, a share is not in [0, 1), or layers are given in both ways.
    """

    heads: float = 0.0
    columns: float = 0.0
    layers: tuple[int, ...] = ()
    num_layers: int = 0
    vocabulary: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("heads", "columns"):
            share = getattr(self, name)
            if not 0 <= share < 1:  # true for NaN too
                raise InputError(f"--{name}: expected a share from 0 to below 1, found {share:g}")
        if self.layers and self.num_layers:
            raise InputError("--layers: expected --layers or --num-layers, found both")
        if self.num_layers < 0:
            raise InputError(f"--num-layers: expected at least 1, found {self.num_layers}")
        if not any(dataclasses.astuple(self)):
            raise InputError("expected --heads, --columns, --layers, --num-layers or --vocabulary, found none of them")

    @property
    def needs_examples(self) -> bool:
        """Return whether importance decides what is removed."""
        return bool(self.heads or self.columns or self.num_layers)

    def sizes(self, config: BertConfig, done: float = 1.0) -> "Sizes":
        """Return the sizes of a model with `config` after a fraction `done` of its pruning.

        The layers that are not in `layers` are removed at once.

        Raises:
            InputError: a share removes nothing or everything, a layer is out of range or out of order, or the model is
                quantized.
        """
        if config.quantization is not None:
            raise InputError(f"expected a model that is not quantized, found mode {config.quantization.mode}; prune "
                             "first, then quantize")  # fmt: skip
        if self.heads or self.columns or self.layers or self.num_layers:
            removal.check_untied(config)
        if self.columns:
            removal.check_one_block(config)
        total = config.num_hidden_layers
        if self.num_layers > total:
            raise InputError(f"--num-layers: expected at most the model's {total} layers, found {self.num_layers}")
        if list(self.layers) != sorted(set(self.layers) & set(range(total))):
            expected = f"--layers: expected ascending numbers from 0 to {total - 1}"
            raise InputError(f"{expected}, found {', '.join(map(str, self.layers))}")
        kept = {}
        for name, count in (("heads", config.num_attention_heads), ("columns", config.intermediate_size)):
            share = getattr(self, name)
            removed = round(count * share)
            if share and not 0 < removed < count:
                what = "removes" if not removed else "leaves"
                raise InputError(f"--{name}: expected a share that {what} at least one of {count} {name} of a layer, "
                                 f"found {share:g}")  # fmt: skip
            kept[name] = count - round(removed * done)
        layers = len(self.layers)
        if self.num_layers:
            layers = total - round((total - self.num_layers) * done)
        return Sizes(kept["heads"], kept["columns"], layers or total)


class Sizes(NamedTuple):
    """Numbers of parts: heads of a layer, feed-forward columns of a layer, and layers."""

    heads: int
    columns: int
    layers: int


class PrunedModel(NamedTuple):
    """A model in memory.

    Attributes:
        config: the architecture.
        head: one of `bert_jax.modeling.HEADS`.
        params: the canonical tree of NumPy arrays.
        tokenizer: the tokenizer; None if the model has none.
    """

    config: BertConfig
    head: str
    params: Params
    tokenizer: Tokenizer | None

    @property
    def is_in_transformers(self) -> bool:
        """Return whether transformers has models of this architecture."""
        return self.config.head_dim is None or self.config.family in _FREE_HEADS


def prune(
    model_dir: storage.PathLike,
    out: storage.PathLike,
    pruning: Pruning,
    *,
    data: str = "",
    examples: int = EXAMPLES,
) -> PrunedModel:
    """Prune a model directory and write the smaller model to another one.

    Args:
        model_dir: a model directory in the Hugging Face layout.
        out: a new or empty directory.
        pruning: what to remove.
        data: labelled data, or text for a model with a masked-LM head, from which importance is computed.
        examples: the maximum number of examples of `data`.

    Returns:
        The smaller model.

    Raises:
        InputError: a path, the data or the pruning is invalid.
    """
    model, loaded = open_for_pruning(model_dir)
    sizes = pruning.sizes(model.config)
    if pruning.needs_examples and not data:
        raise InputError("--data: expected data from which importance is computed, found none")
    if data and not pruning.needs_examples:
        raise InputError("--data: expected --heads, --columns or --num-layers, which need it, found none of them")
    if examples < 1:
        raise InputError(f"--examples: expected at least 1, found {examples}")
    storage.new_directory(out)
    if pruning.vocabulary:
        model = without_unused_pieces(model, loaded, pruning.vocabulary)
    importance = importance_of(examples_of_data(loaded, data, examples)) if pruning.needs_examples else None
    model = without_parts(model, sizes, importance, pruning.layers)
    write_pruned(out, model, loaded)
    return model


def importance_of(examples: Examples) -> Importance:
    """Compute the importance of a model's parts on examples. Raises InputError as `measure_importance`."""
    return measure_importance(examples.task, examples.params, examples.batches)


def without_parts(
    model: PrunedModel, sizes: Sizes, importance: Importance | None, layers: Sequence[int] = ()
) -> PrunedModel:
    """Return a model with the most important heads and columns of each layer, and with fewer layers.

    Args:
        model: the model.
        sizes: the numbers of parts to keep.
        importance: the importance of its parts; not needed if all parts stay, or if `layers` names those to keep.
        layers: the layers to keep; () = the `sizes.layers` most important ones.

    Raises:
        InputError: as the functions of `removal`.
    """
    config, params = model.config, model.params
    together = bool(config.setting("relative_attention_buckets"))
    if sizes.heads < config.num_attention_heads:
        assert importance is not None
        kept = removal.most_important(importance.heads, sizes.heads, together=together)
        config, params = removal.keep_heads(config, params, kept)
    if sizes.columns < config.intermediate_size:
        assert importance is not None
        kept = removal.most_important(importance.columns, sizes.columns)
        config, params = removal.keep_columns(config, params, kept)
    if sizes.layers < config.num_hidden_layers:
        if not layers:
            assert importance is not None
            layers = _most_important_layers(config, importance.layers, sizes.layers)
        config, params = removal.keep_layers(config, params, layers)
    return model._replace(config=config, params=params)


def without_unused_pieces(model: PrunedModel, loaded: Loaded, corpora: Sequence[str]) -> PrunedModel:
    """Return a model whose vocabulary has only the pieces in the corpora and those that `with_fewer_pieces` keeps.

    The pieces in the model's prompts are kept too.

    Raises:
        InputError: the model has no tokenizer, a corpus has no text, or the tokenizer cannot be pruned.
    """
    if model.tokenizer is None:
        raise InputError(f"{loaded.directory}: expected a tokenizer with a vocabulary to prune, found none")
    used = used_ids(model.tokenizer, open_corpus(corpora).texts())
    if not used:
        raise InputError(f"{', '.join(corpora)}: expected text, found none")
    prompts = [text for _, text in loaded.settings.prompts if text]
    tokenizer, ids = with_fewer_pieces(model.tokenizer, used | used_ids(model.tokenizer, prompts))
    if model.config.positions.position_offset and tokenizer.pad_id != model.config.pad_token_id:
        raise InputError(f"{loaded.directory}: expected padding before all other pieces, as positions are counted from "
                         f"its id, found id {model.config.pad_token_id}")  # fmt: skip
    config, params = removal.prune_vocab(model.config, model.params, ids, tokenizer.pad_id)
    return model._replace(config=config, params=params, tokenizer=tokenizer)


def open_for_pruning(model_dir: storage.PathLike) -> tuple[PrunedModel, Loaded]:
    """Open a model directory with its saved head. Raises InputError as `load_pretrained` does."""
    loaded = load_pretrained(model_dir)
    tokenizer = open_tokenizer(loaded) if has_tokenizer(loaded.directory) else None
    return PrunedModel(loaded.config, loaded.head, loaded.params, tokenizer), loaded


def write_pruned(out: storage.PathLike, model: PrunedModel, source: Loaded) -> None:
    """Write a pruned model with the settings of its source, completely or not at all.

    Raises:
        InputError: the directory is not empty.
    """
    record = source.directory / RECORD
    with storage.directory_atomically(out) as directory:
        head, settings = model.head, source.settings
        save_pretrained(directory, model.config, head, model.params, model.tokenizer, settings=settings)
        if record.exists():
            storage.write_atomically(directory / RECORD, record.read_bytes())


def _most_important_layers(config: BertConfig, importance: np.ndarray, count: int) -> list[int]:
    """Return the most important layers, ascending; the first is always kept if it alone has no LayerNorm."""
    values = np.array(importance, np.float64)
    if not config.norms.first_layer_norm:
        values[0] = np.inf
    return sorted(np.argsort(-values, kind="stable")[:count].tolist())
