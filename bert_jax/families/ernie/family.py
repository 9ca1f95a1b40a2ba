"""ERNIE (Sun et al. 2019, arXiv:1904.09223; task ids: 2019, arXiv:1907.12412): BERT's tensors under another prefix."""

from bert_jax.families import bert
from bert_jax.families.base import Family, Json, boolean, whole_number
from bert_jax.families.ernie.parts import TaskEmbeddingsConfig
from bert_jax.model_files.keys import FileKey, honoured

_KEYS: tuple[FileKey, ...] = (
    honoured("use_task_id", "whether there is a task embedding"),
    honoured("task_type_vocab_size", "rows of the task embedding, if use_task_id is true"),
)

_NAMES = bert.with_bert_heads("Ernie", "ernie.", bert.encoder("ernie."), "ForCausalLM")


def _read_ernie(hf: Json) -> Json:
    """Return the number of task ids; 0 unless `use_task_id` is true."""
    use = boolean({"use_task_id": False} | hf, "use_task_id")
    rows = whole_number({"task_type_vocab_size": 3} | hf, "task_type_vocab_size", 1)
    return {"task_type_vocab_size": rows if use else 0}


def _write_ernie(fields: Json) -> Json:
    rows = fields["task_type_vocab_size"]
    return {"use_task_id": rows > 0} | ({"task_type_vocab_size": rows} if rows else {})


ERNIE_FAMILY = Family(
    name="ernie",
    title="ERNIE",
    file_keys=_KEYS,
    names=_NAMES,
    tokenizer_class="BertTokenizer",
    sign=r"^ernie\.|(^|\.)task_type_embeddings\.",
    classes="Ernie",
    fixed={"embeddings": TaskEmbeddingsConfig()},
    reads=_read_ernie,
    writes=_write_ernie,
)
