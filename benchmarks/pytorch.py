"""PyTorch and transformers as the competitor.

python -m benchmarks.pytorch pretraining DTYPE eager|compile
python -m benchmarks.pytorch learning PREPARED STEPS STEPS_BETWEEN_EVALUATIONS SEED
"""

import contextlib
import sys

import torch
import transformers

from benchmarks import BATCH, LENGTH, PREDICTIONS
from benchmarks import learning as learning_setup
from benchmarks.turns import serve
from bert_jax.data.pretraining.sources import PretrainingEvalSource, PretrainingSource

torch.manual_seed(0)


def precision(dtype: str) -> contextlib.AbstractContextManager:
    """Return a context of float32, or of bfloat16 by autocast."""
    return torch.autocast("cpu", dtype=torch.bfloat16) if dtype == "bfloat16" else contextlib.nullcontext()


def pretraining(dtype: str, mode: str) -> None:
    """Run training steps of BERT-base: masked LM and next sentence, dropout, clipping, AdamW; attention is SDPA."""
    config = transformers.BertConfig()
    model = transformers.BertForPreTraining(config).train()
    forward = torch.compile(model) if mode == "compile" else model
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
                loss = forward(**inputs).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        return units * BATCH * LENGTH

    serve(work)


def learning(prepared: str, steps: str, every: str, seed: str) -> None:
    """Pretrain a small BERT on prepared pairs, masked by transformers' collator, and print its held-out loss."""
    torch.manual_seed(int(seed))
    train = PretrainingSource(prepared, "train", LENGTH, learning_setup.BATCH, seed=int(seed))
    held_out = PretrainingEvalSource(
        prepared, "validation", LENGTH, learning_setup.BATCH, max_examples=learning_setup.HELD_OUT
    )
    tokenizer = transformers.BertTokenizerFast(f"{prepared}/tokenizer/vocab.txt")
    collator = transformers.DataCollatorForLanguageModeling(tokenizer)
    config = transformers.BertConfig(vocab_size=len(tokenizer), **learning_setup.SIZE)
    model = transformers.BertForPreTraining(config).train()
    decayed = [p for n, p in model.named_parameters() if "LayerNorm" not in n and not n.endswith("bias")]
    others = [p for n, p in model.named_parameters() if "LayerNorm" in n or n.endswith("bias")]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=learning_setup.LEARNING_RATE, fused=True)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, int(steps) // 10, int(steps))
    for step in range(int(steps)):
        ids, inputs = pairs(train.batch(step))
        special = torch.isin(ids, torch.tensor(tokenizer.all_special_ids))
        inputs["input_ids"], inputs["labels"] = collator.torch_mask_tokens(ids, special_tokens_mask=special)
        model(**inputs).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if (step + 1) % int(every) == 0 or step + 1 == int(steps):
            print(f"step {step + 1} loss {held_out_loss(model, held_out):.4f}", flush=True)


def pairs(batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the unmasked tokens of a batch, and the other inputs of the model."""
    batch = {name: torch.from_numpy(array).long() for name, array in batch.items()}
    ids = batch["input_ids"].clone()
    row, slot = batch["masked_weights"].nonzero(as_tuple=True)
    ids[row, batch["masked_positions"][row, slot]] = batch["masked_labels"][row, slot]
    inputs = {name: batch[name] for name in ("attention_mask", "token_type_ids")}
    return ids, inputs | {"next_sentence_label": batch["next_sentence_labels"]}


def held_out_loss(model, source) -> float:
    """Return the masked-LM loss on the same batches and masks on which bert_jax is evaluated."""
    model.eval()
    total = count = 0.0
    with torch.no_grad():
        for i in range(source.num_batches):
            batch = source.batch(i)
            _, inputs = pairs(batch)
            del inputs["next_sentence_label"]
            logits = model(input_ids=torch.from_numpy(batch["input_ids"]).long(), **inputs).prediction_logits
            row, slot = map(torch.from_numpy, batch["masked_weights"].nonzero())
            labels = torch.from_numpy(batch["masked_labels"]).long()[row, slot]
            positions = torch.from_numpy(batch["masked_positions"]).long()[row, slot]
            total += torch.nn.functional.cross_entropy(logits[row, positions], labels, reduction="sum").item()
            count += len(labels)
    model.train()
    return total / count


if __name__ == "__main__":
    {"pretraining": pretraining, "learning": learning}[sys.argv[1]](*sys.argv[2:])
