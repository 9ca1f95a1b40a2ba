"""Model FLOPs of a training step."""

import math
from collections.abc import Mapping
from typing import Any

from bert_jax.config import BertConfig
from bert_jax.data.batches import sub_batches
from bert_jax.head_names import DECODER_HEAD
from bert_jax.modeling import Bert, Electra, EncoderDecoder


def step_flops(model: Bert | Electra | EncoderDecoder, batch: Mapping[str, Any]) -> float:
    """Return the FLOPs of a training step (`train_flops`), summed over the model's parts, from a batch's shapes."""
    if "input_ids" not in batch:  # rows of data sets
        return sum(step_flops(model, part) for part in sub_batches(dict(batch)).values())
    *rows, length = batch["input_ids"].shape
    if isinstance(model, EncoderDecoder):
        return encoder_decoder_flops(model, rows[0], length, batch["decoder_input_ids"].shape[-1])
    predictions, sentences = (
        batch[name].shape[-1] if name in batch else None for name in ("masked_positions", "cls_positions")
    )
    shapes = [(math.prod(rows), length), *([batch["query_ids"].shape] if "query_ids" in batch else [])]
    return sum(
        train_flops(
            part.config, part.head, sequences, length, predictions,
            part.places_computed(length, sentences or 1, predictions),
        )
        for part in model.models
        for sequences, length in shapes
    )  # fmt: skip


def encoder_decoder_flops(model: EncoderDecoder, sequences: int, length: int, target_length: int) -> float:
    """Return the model FLOPs of one training step of an encoder-decoder.

    They are the `train_flops` of encoder and decoder, plus cross-attention. For S source and T target tokens, the
    forward pass of cross-attention takes 4 T D A for queries and outputs, 4 S D A for keys and values, and 4 T S A for
    scores and weighted sums in each decoder layer, and 2 S E D for a projection if the hidden sizes E and D differ.

    Args:
        model: encoder and decoder.
        sequences: rows in the step.
        length: S, padding included.
        target_length: T, padding included.
    """
    config = model.decoder_config
    hidden, width, layers = config.hidden_size, config.attention_width, config.num_hidden_layers
    cross = layers * 4 * width * (target_length * hidden + length * hidden + target_length * length)
    cross += 2 * length * model.config.hidden_size * hidden if model.has_projection else 0
    encoder = train_flops(model.config, "encoder", sequences, length)
    return encoder + train_flops(config, DECODER_HEAD, sequences, target_length) + 3.0 * sequences * cross


def train_flops(
    config: BertConfig,
    head: str,
    sequences: int,
    length: int,
    predictions: int | None = None,
    last: int | None = None,
) -> float:
    """Return the model FLOPs of one training step: its matrix products, with 2 FLOPs per multiply-add.

    For a sequence of S tokens and P predictions, with hidden size D, embedding size E, feed-forward size F, vocabulary
    size V, L layers, C labels, total width A of the query heads (A = D unless heads were pruned) and total width A' of
    the key heads (A' = A unless key heads are shared):

        layers        L * (4 S D (A + A') + 4 S D F)         projections, feed-forward (6 S D F if it is gated)
        bottlenecks   L * 6 S D I                            if queries and keys have a bottleneck of their own, else
                                                             L * 4 S D I; inside a layer, its width I replaces D, but
                                                             not in values that are projected from the layer's input
        blocks        N * 4 S D F                            with N feed-forward blocks per layer
        experts       2 S D E + 4 S D F k                    replaces 4 S D F in layers with E experts, k per token
        attention     4 S K A, summed over layers            scores and weighted sums; K = min(S, 2 window + 1) keys per
                                                             query; in block-sparse attention, K is the mean
        global tokens L * (4 S D A + 2 G D A + 8 G S A)      G tokens with global attention: 1 for sequence
                                                             classification, max_global_tokens for question answering
                                                             and multiple choice, else 0
        positions     2 S K A for each of `pos_att_type`     summed over layers; and once per step L * 2 R D A for each,
                                                             for the R rows of the table of relative positions
        convolution   2 k S D^2                              k = conv_kernel_size
        embeddings    2 S E D                                if E differs from D; 6 S E D for trigram inputs
        MLM head      P * (2 D E + 2 E V)                    P = S when no positions are given; 2 D E only if the head
                                                             has a transform; D replaces E if the output layer is D wide
        summary       2 D^2                                  a dense pooler, or the classifier's other hidden layer; for
                                                             each token if the head predicts per token or pools late
        classifiers   2 D C                                  NSP: C = 2; for each token as in summary
        last layer    R replaces S except in 4 S D A' for keys and values; R = S unless fewer outputs are computed

    times 3 for forward and backward (`forward_flops` has the forward pass alone). Recomputation (remat) is not counted;
    padding is.

    Args:
        config: the config of the model.
        head: the head of the model.
        sequences: sequences in the step (for multiple choice, each choice is one).
        length: S, padding included.
        predictions: P; None = S.
        last: R, positions computed in the last layer; None = S.
    """
    return 3.0 * forward_flops(config, head, sequences, length, predictions, last)


def forward_flops(
    config: BertConfig,
    head: str,
    sequences: int,
    length: int,
    predictions: int | None = None,
    last: int | None = None,
) -> float:
    """Return the model FLOPs of one forward pass, a third of `train_flops` with the same arguments."""
    hidden, width, heads = config.hidden_size, config.embedding_width, config.attention_width
    inner, blocks = config.inner_size, config.setting("num_feedforward_networks", 1)
    products = (6 if config.feed_forward.gated else 4) * blocks
    last = length if last is None else last
    queries = (config.num_hidden_layers - 1) * length + last  # query positions of all layers
    total = queries * inner * (4 * heads + products * config.intermediate_size)
    keys_and_values = 2 * (inner + config.value_input_size) * config.key_value_width
    total += config.num_hidden_layers * length * keys_and_values
    if config.setting("intra_bottleneck_size"):
        of_keys = config.num_hidden_layers * length  # key positions of all layers
        reads_bottleneck = config.setting("use_bottleneck_attention")
        narrowed = of_keys if reads_bottleneck else queries
        narrowed += 0 if reads_bottleneck or not config.setting("key_query_shared_bottleneck") else of_keys
        total += 2 * (narrowed + queries) * hidden * inner
    if any(config.has_experts):
        with_experts = sum(config.has_experts)
        fed = (with_experts - config.has_experts[-1]) * length + config.has_experts[-1] * last
        more = 4 * (config.setting("moe_top_k") - 1) * config.intermediate_size
        total += fed * hidden * (2 * config.setting("num_experts") + more)
    *keys, keys_of_last = (_keys(config, window, length) for window in config.windows)
    terms = len(config.setting("pos_att_type", ()))
    total += (4 + 2 * terms) * heads * (length * sum(keys) + last * keys_of_last)
    if tokens := min(_global_tokens(config, head), length):
        # Per layer: projections for global attention, and attention of the global tokens to all tokens.
        each = 4 * length * hidden + 2 * tokens * hidden + 4 * tokens * length
        total += heads * (config.num_hidden_layers * each + 4 * tokens * queries)
    total += 2 * config.setting("conv_kernel_size", 0) * length * hidden**2
    if width != hidden or config.setting("trigram_input"):
        total += 2 * length * width * hidden * (3 if config.setting("trigram_input") else 1)
    if head in ("pretraining", "masked_lm", "sparse_embedding", DECODER_HEAD):
        transform = hidden if config.heads.head_transform else 0
        total += (
            (length if predictions is None else predictions)
            * 2
            * config.transform_width
            * (transform + config.vocab_size)
        )
    if head == "question_answering" and config.setting("span_head") == "feed_forward":
        total += 4 * length * hidden * config.intermediate_size
    of_tokens = head in ("token_classification", "question_answering", "replaced_token_detection")
    is_late = config.heads.classifier_pooling == "late" and head in ("sequence_classification", "multiple_choice")
    places = length if of_tokens or is_late else 1
    summary = config.summary_of(head)
    if head == "replaced_token_detection" or (
        summary not in (None, "embedding") and (summary != "pooler" or config.setting("pooler_dense", True))
    ):
        total += 2 * places * hidden**2
    outputs = {
        "pretraining": 2,
        "next_sentence": 2,
        "sequence_classification": config.num_labels,
        "multiple_choice": 1,
        "token_classification": config.num_labels,
        "question_answering": 2,
        "replaced_token_detection": 1,
    }
    total += 2 * places * hidden * outputs.get(head, 0)
    distances = config.num_hidden_layers * config.attention.num_relative_embeddings(config.max_position_embeddings)
    return float(sequences * total + terms * distances * 2 * hidden * heads)


def _keys(config: BertConfig, window: int | None, length: int) -> float:
    """Return the mean number of keys that a query attends to, not counting global tokens."""
    if config.attention.longest_full is not None and length > config.attention.longest_full:
        size: int = config.setting("block_size")
        num_random_blocks: int = config.setting("num_random_blocks")
        ends = 2 * size
        return ((length - ends) * (5 + num_random_blocks) * size + ends * length) / length
    return length if window is None else min(length, 2 * window + 1)


def _global_tokens(config: BertConfig, head: str) -> int:
    """Return the maximum number of tokens with global attention in a forward pass."""
    most: int = config.setting("max_global_tokens", 0)
    if not most or head == "sequence_classification":
        return min(most, 1)
    return most if head in ("question_answering", "multiple_choice") else 0
