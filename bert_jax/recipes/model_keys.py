"""The keys of recipes that set fields of `BertConfig`."""

from bert_jax.config.values import CHOICES, POOLINGS
from bert_jax.recipes.base import Key

MODEL_KEYS = {
    "model.size": Key("base", "named size: tiny, mini, small, medium, base, large, or a size of model.family; other "
                      "keys override it"),
    "model.vocab_size": Key(0, "number of rows in the word embedding; 0 = the tokenizer's number of tokens", least=0),
    "model.family": Key(str, "family of the encoder; not set = the family of init_from, or bert", CHOICES["family"]),
    "model.hidden_size": Key(int, "width of the residual stream", least=1),
    "model.num_hidden_layers": Key(int, "number of encoder layers, counting each use of tied parameters", least=1),
    "model.num_hidden_groups": Key(int, "number of groups of layers with tied parameters; 0 = every layer has its own "
                                   "parameters", least=0),
    "model.inner_group_num": Key(int, "number of layers in a group of tied layers", least=1),
    "model.num_attention_heads": Key(int, "number of attention heads; must divide hidden_size", least=1),
    "model.num_key_value_heads": Key(int, "number of heads of keys and values, which attention heads share; not "
                                     "set = num_attention_heads", least=1),
    "model.intermediate_size": Key(int, "width of the feed-forward layer", least=1),
    "model.intra_bottleneck_size": Key(int, "width inside the layers of a MobileBERT; 0 = hidden_size, without "
                                       "bottlenecks", least=0),
    "model.key_query_shared_bottleneck": Key(bool, "whether queries and keys of a MobileBERT share a bottleneck of "
                                             "their own"),
    "model.use_bottleneck_attention": Key(bool, "whether queries, keys and values of a MobileBERT read the bottleneck "
                                          "of the layer's input"),
    "model.num_feedforward_networks": Key(int, "number of feed-forward blocks in a layer of a MobileBERT", least=1),
    "model.hidden_act": Key(str, "activation of the feed-forward layer", CHOICES["hidden_act"]),
    "model.hidden_dropout_prob": Key(float, "dropout rate after embeddings, attention output and feed-forward output",
                                     least=0, below=1),
    "model.attention_probs_dropout_prob": Key(float, "dropout rate of attention probabilities", least=0, below=1),
    "model.classifier_dropout": Key(float, "dropout rate before a classifier; not set = hidden_dropout_prob", least=0,
                                    below=1),
    "model.max_position_embeddings": Key(int, "maximum number of tokens in a sequence", least=1),
    "model.type_vocab_size": Key(int, "number of segment ids; 0 = no segment embedding", least=0),
    "model.task_type_vocab_size": Key(int, "number of task ids; 0 = no task embedding", least=0),
    "model.initializer_range": Key(float, "standard deviation parameter of the truncated normal initializer", least=0),
    "model.layer_norm_eps": Key(float, "added to the variance in LayerNorm", above=0),
    "model.position_embedding_type": Key(str, "positions: learned, fixed sinusoids, rotary, or none",
                                         CHOICES["position_embedding_type"]),
    "model.position_buckets": Key(int, "buckets of a DeBERTa's relative positions on either side; 0 = one for each "
                                  "distance", least=0),
    "model.max_relative_positions": Key(int, "distance from which on a DeBERTa's relative positions are alike; 0 = "
                                        "max_position_embeddings", least=0),
    "model.share_att_key": Key(bool, "whether a DeBERTa projects relative positions as queries and keys"),
    "model.norm_rel_ebd": Key(bool, "whether a DeBERTa's embeddings of relative positions have a LayerNorm"),
    "model.conv_kernel_size": Key(int, "width of a DeBERTa's convolution beside the first layer, an odd number; 0 = "
                                  "none", least=0),
    "model.rotary_value": Key(bool, "whether the rotary positions of a RoFormer rotate values too"),
    "model.token_dropout": Key(bool, "whether an ESM rescales embeddings in place of those of the mask token"),
    "model.trigram_input": Key(bool, "whether a MobileBERT's embeddings read the next and the previous token too"),
    "model.embedding_size": Key(int, "width of the embeddings; not set = hidden_size", least=1),
    "model.local_window": Key(int, "local layers attend to this number of tokens on either side; not set = all layers "
                              "are global", least=1),
    "model.global_every": Key(int, "one layer in this number is global, starting with the first", least=1),
    "model.attention_windows": Key(tuple, "tokens on either side to which each layer of a Longformer attends, repeated "
                                   "for later layers; not set = as usual"),
    "model.max_global_tokens": Key(int, "most tokens of a row with global attention in a Longformer", least=1),
    "model.attention_type": Key(str, "attention of a BigBird in long rows", CHOICES["attention_type"]),
    "model.block_size": Key(int, "tokens in a block of a BigBird's block-sparse attention", least=1),
    "model.num_random_blocks": Key(int, "random blocks to which each block of a BigBird attends", least=0),
    "model.rope_theta": Key(float, "base of the rotary position embedding", above=0),
    "model.local_rope_theta": Key(float, "base of the rotary position embedding in local layers; not set = rope_theta",
                                  above=0),
    "model.norm": Key(str, "norm of the layers; MobileBERT: no_norm (scale and bias alone) or layer_norm",
                      CHOICES["norm"]),
    "model.norm_bias": Key(bool, "whether LayerNorm has biases"),
    "model.attention_bias": Key(bool, "whether the attention projections have biases"),
    "model.mlp_bias": Key(bool, "whether the feed-forward layer has biases"),
    "model.head_bias": Key(bool, "whether the dense layer of the masked-LM head has a bias"),
    "model.decoder_bias": Key(bool, "whether the masked-LM head has a bias for each token"),
    "model.tie_word_embeddings": Key(bool, "whether the output matrix of the masked-LM head is the word embedding"),
    "model.classifier_pooling": Key(str, "input of a classifier with its own layer: the first token (cls) or "
                                    "the mean over tokens; late = all tokens, and the mean of their logits",
                                    CHOICES["classifier_pooling"]),
    "model.pooler_dense": Key(bool, "whether the pooler of a MobileBERT has a dense layer"),
    "model.qa_dropout": Key(float, "dropout rate before the span head of question answering", least=0, below=1),
    "model.pooling": Key(str, f"pooling of token vectors into a sentence embedding: {', '.join(POOLINGS)}; + joins "
                         f"several"),
    "model.normalize_embeddings": Key(bool, "whether a sentence embedding is scaled to unit length"),
}  # fmt: skip
MODEL_FIELDS = tuple(name.removeprefix("model.") for name in MODEL_KEYS if isinstance(MODEL_KEYS[name].default, type))
