"""`EncoderDecoder`: two BERTs, of which the decoder generates a text from the states of the encoder.

Rothe et al. 2020 (arXiv:1907.12461), "BERT2BERT".
"""

import dataclasses
from typing import Any

import jax

from bert_jax.config import BertConfig
from bert_jax.config.layers import LayerConfig, StackConfig
from bert_jax.errors import InputError
from bert_jax.head_names import DECODER_HEAD, ENCODER_DECODER_HEAD
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.models import Bert
from bert_jax.modeling.spec import Params

# Families of decoders: those with a Hugging Face class that has cross-attention with BERT's names.
DECODER_FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert")
# Fields of BertConfig, with the one value that decoders support.
_FIXED = (
    ("norm_placement", "post"), ("stack", StackConfig()), ("relative_attention_buckets", 0), ("local_window", None),
    ("first_layer_norm", True), ("position_embedding_type", "absolute"), ("trigram_input", False),
    ("layer", LayerConfig()), ("quantization", None), ("head_dim", None),
)  # fmt: skip


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class EncoderDecoderOutput:
    """The output of a forward pass of encoder and decoder, float32.

    Attributes:
        logits: `[B, T, V]`, logits of the next token; None with labels.
        losses: `[B, T]`, the loss of each label, with label smoothing; None without labels.
        cross_entropies: `[B, T]`, the cross entropy of each label; None without labels.
        correct: `[B, T]`, 1 where the label has the greatest logit; None without labels.
    """

    logits: jax.Array | None = None
    losses: jax.Array | None = None
    cross_entropies: jax.Array | None = None
    correct: jax.Array | None = None


@dataclasses.dataclass(frozen=True)
class EncoderDecoder:
    """An encoder and a decoder.

    The object holds no parameters. Their tree is `{"encoder": canonical tree, "decoder": canonical tree}`, where the
    decoder's has `cross_attention` and `mlm` too. If their hidden sizes differ, the tree also has `projection`, a
    dense layer between them.

    Attributes:
        config: the encoder's architecture.
        decoder_config: the decoder's architecture.
        compute: compute options of both.

    Raises:
        InputError: the decoder's family or architecture is not supported.
    """

    config: BertConfig
    decoder_config: BertConfig
    compute: Compute = dataclasses.field(default_factory=Compute)
    head = ENCODER_DECODER_HEAD

    def __post_init__(self) -> None:
        if self.decoder_config.family not in DECODER_FAMILIES:
            expected = ", ".join(DECODER_FAMILIES)
            raise InputError(f"decoder: expected one of the families {expected}, found {self.decoder_config.family}")
        values = self.decoder_config.settings() | self.decoder_config.parts
        for name, value in _FIXED:
            if (decoder_value := values.get(name)) != value and (decoder_value or value):
                raise InputError(f"decoder: {name}: expected {value}, found {decoder_value}")
        if self.config.quantization is not None:
            raise InputError("encoder: quantization: expected None in an encoder-decoder, found a quantized model")

    @property
    def encoder(self) -> Bert:
        """Return the encoder."""
        return Bert(self.config, "encoder", self.compute)

    @property
    def decoder(self) -> Bert:
        """Return the decoder; `EncoderDecoder` applies it."""
        return Bert(self.decoder_config, DECODER_HEAD, self.compute)

    @property
    def models(self) -> tuple[Bert, ...]:
        """Return the models that a forward pass runs, in order."""
        return self.encoder, self.decoder

    @property
    def has_projection(self) -> bool:
        """Return whether a dense layer maps the encoder's states to the decoder's width."""
        return self.config.hidden_size != self.decoder_config.hidden_size

    def init(self, key: jax.Array) -> Params:
        """Initialise float32 parameters; jit with `out_shardings` to create them sharded."""
        keys = jax.random.split(key, 3)
        params = {"encoder": self.encoder.init(keys[0]), "decoder": self.decoder.init(keys[1])}
        if self.has_projection:
            from bert_jax.modeling.projection import init_projection  # imports Flax

            params["projection"] = init_projection(self.config.hidden_size, self.decoder_config, keys[2])
        return params

    def abstract_params(self) -> Params:
        """Return the tree of `init` with `jax.ShapeDtypeStruct` leaves."""
        params: Params = jax.eval_shape(self.init, jax.random.key(0))
        return params

    def encode(
        self,
        params: Params,
        input_ids: jax.Array,
        attention_mask: jax.Array | None = None,
        dropout_key: jax.Array | None = None,
    ) -> jax.Array:
        """Return the encoder's states, `[B, S, D]` with the decoder's D.

        Args:
            params: the tree of `init`.
            input_ids: `[B, S]` int32, the source.
            attention_mask: 1 for tokens, 0 for padding; None means no padding.
            dropout_key: None means no dropout.
        """
        out = self.encoder.apply(params["encoder"], input_ids, attention_mask, dropout_key=dropout_key)
        assert out.last_hidden_state is not None
        if not self.has_projection:
            return out.last_hidden_state
        from bert_jax.modeling.projection import project  # imports Flax

        return project(params["projection"], out.last_hidden_state, self.decoder_config, self.compute)

    def apply(
        self,
        params: Params,
        input_ids: jax.Array,
        attention_mask: jax.Array | None,
        decoder_input_ids: jax.Array,
        *,
        labels: jax.Array | None = None,
        label_smoothing: float = 0.0,
        dropout_key: jax.Array | None = None,
    ) -> EncoderDecoderOutput:
        """Run encoder and decoder; a pure function, to be jitted by the caller.

        Args:
            params: the tree of `init`.
            input_ids: `[B, S]` int32, the source.
            attention_mask: 1 for tokens of the source, 0 for padding; None means no padding.
            decoder_input_ids: `[B, T]`, the start token and the target without its last token. Padding comes last.
            labels: `[B, T]`, the tokens to predict. If given, the output has losses in place of logits.
            label_smoothing: fraction of the label's probability that is spread evenly over the vocabulary.
            dropout_key: None means no dropout.

        Raises:
            InputError: source or target is longer than the model's positions.
        """
        limit = self.decoder_config.max_position_embeddings
        if decoder_input_ids.shape[-1] > limit:
            raise InputError(
                f"decoder_input_ids: expected at most the decoder's {limit} positions (max_position_embeddings), "
                f"found a sequence of {decoder_input_ids.shape[-1]} tokens"
            )
        from bert_jax.modeling import decoder  # imports Flax

        keys: Any = (None, None) if dropout_key is None else jax.random.split(dropout_key)
        states = self.encode(params, input_ids, attention_mask, keys[0])
        decoder_params = params["decoder"]
        x = decoder.decode(self.decoder, decoder_params, states, attention_mask, decoder_input_ids, keys[1])
        if labels is None:
            return EncoderDecoderOutput(decoder.output_logits(self.decoder, decoder_params, x))
        losses, plain, right = decoder.output_losses(self.decoder, decoder_params, x, labels, label_smoothing)
        return EncoderDecoderOutput(losses=losses, cross_entropies=plain, correct=right)
