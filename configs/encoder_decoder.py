r"""An encoder-decoder made of two BERTs, for summaries, translations and other texts generated from a text.

    bert-jax finetune --config encoder_decoder:summaries.jsonl --workdir runs/summaries --config.init_from=path/to/bert
    bert-jax text2text runs/summaries/model --file articles.txt
    bert-jax evaluate --model runs/summaries/model --data held_out.jsonl

The argument is a table with the columns source and target. init_from is an encoder that initialises encoder and decoder
(decoder_init_from names another for the decoder), or an encoder-decoder to train further.

Rothe et al. 2020 (arXiv:1907.12461), section 3.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config(table: str = "summaries.jsonl") -> ConfigDict:
    """The recipe."""
    c = recipes.sequence_to_sequence()
    c.global_batch_size, c.eval_batch_size = 32, 32
    c.num_epochs = 3.0
    c.optimizer.learning_rate = 5e-5
    c.optimizer.schedule = "linear"
    c.optimizer.warmup_ratio = 0.1
    c.optimizer.bias_correction = True
    c.label_smoothing = 0.1
    c.data.train, c.data.validation_split = table, 0.05
    c.data.max_seq_length, c.data.max_target_length = 512, 128
    c.generation.num_beams, c.generation.no_repeat_ngram_size = 4, 3
    return c
