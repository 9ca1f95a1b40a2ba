"""PyTorch and transformers as the rival.

python -m benchmarks.pytorch pretraining DTYPE
python -m benchmarks.pytorch fine-tuning DTYPE MODEL TRAIN.tsv DEV.tsv LEARNING_RATE
"""

import contextlib
import csv
import sys

import torch
import transformers

from benchmarks import BATCH, LENGTH, PREDICTIONS
from benchmarks.turns import serve

torch.manual_seed(0)


def precision(dtype: str) -> contextlib.AbstractContextManager:
    """float32, or bfloat16 by autocast."""
    return torch.autocast("cpu", dtype=torch.bfloat16) if dtype == "bfloat16" else contextlib.nullcontext()


def pretraining(dtype: str) -> None:
    """Training steps of BERT-base: masked LM and next sentence, dropout, clipping, AdamW."""
    config = transformers.BertConfig()
    model = transformers.BertForPreTraining(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    ids = torch.randint(1000, config.vocab_size, (BATCH, LENGTH))
    labels = torch.full((BATCH, LENGTH), -100)
    for row in labels:
        row[torch.randperm(LENGTH - 1)[:PREDICTIONS] + 1] = torch.randint(1000, config.vocab_size, (PREDICTIONS,))
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "token_type_ids": (torch.arange(LENGTH) >= LENGTH // 2).long().expand(BATCH, -1),
        "labels": labels,
        "next_sentence_label": torch.randint(0, 2, (BATCH,)),
    }

    def work(units: int) -> int:
        for _ in range(units):
            with precision(dtype):
                loss = model(**inputs).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        return units * BATCH * LENGTH

    serve(work)


def fine_tuning(dtype: str, directory: str, train: str, dev: str, learning_rate: str) -> None:
    """One epoch of a two-class TSV file: random order, batches of 32 padded to their longest, AdamW, linear decay."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(directory, num_labels=2).train()
    rows, dev_rows = read(train), read(dev)
    order = torch.randperm(len(rows)).tolist()
    batches = [[rows[i] for i in order[start : start + 32]] for start in range(0, len(rows), 32)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=float(learning_rate), weight_decay=0.01)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, len(batches) // 10, len(batches))
    for batch in batches:
        with precision(dtype):
            loss = model(**encode(tokenizer, batch), labels=torch.tensor([label for _, label in batch])).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    model.eval()
    right = 0
    with torch.no_grad(), precision(dtype):
        for start in range(0, len(dev_rows), 32):
            batch = dev_rows[start : start + 32]
            answers = model(**encode(tokenizer, batch)).logits.argmax(-1).tolist()
            right += sum(answer == label for answer, (_, label) in zip(answers, batch, strict=True))
    print(f"accuracy {right / len(dev_rows):.4f}")


def read(path: str) -> list[tuple[str, int]]:
    """(sentence, label) of each row."""
    with open(path, encoding="utf-8") as file:
        table = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(row["sentence"], int(row["label"])) for row in table]


def encode(tokenizer, batch):
    """Tensors of a batch, as long as its longest row."""
    return tokenizer([text for text, _ in batch], padding=True, truncation=True, max_length=128, return_tensors="pt")


if __name__ == "__main__":
    {"pretraining": pretraining, "fine-tuning": fine_tuning}[sys.argv[1]](*sys.argv[2:])
