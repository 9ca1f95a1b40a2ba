r"""Fine-tuning of a masked LM to generate answers to prompts, by masked diffusion.

    bert-jax finetune --config masked_diffusion:train.jsonl --workdir runs/write --config.init_from=path/to/bert
    bert-jax finetune --config masked_diffusion:chats.jsonl,messages --workdir runs/chat \
        --config.init_from=path/to/bert
    bert-jax generate runs/write/model "the prompt"

The argument is a table with the columns `prompt` and `answer`. A comma and the name of another column of prompts may
follow: `messages` is a column of conversations, and `-` means texts without a prompt, in the column `text`.

Sahoo et al. 2024 (arXiv:2406.07524); Nie et al. 2025 (arXiv:2502.09992), sections 2.2 and 2.3.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config(data: str = "") -> ConfigDict:
    """The recipe, for `TABLE` or `TABLE,COLUMN`."""
    table, _, column = data.partition(",")
    c = recipes.masked_diffusion()
    c.global_batch_size = 32
    c.num_epochs = 10.0
    c.optimizer.learning_rate = 1e-4
    c.optimizer.schedule = "linear"
    c.optimizer.bias_correction = True
    c.data.train = table
    match column:
        case "messages":
            c.data.messages_column = column
        case "-":
            c.data.answer_column = "text"
        case _:
            c.data.text_column, c.data.answer_column = column or "prompt", "answer"
    return c
