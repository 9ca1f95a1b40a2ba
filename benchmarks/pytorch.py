"""PyTorch and transformers as the competitor; on a GPU if there is one, except for `learning`.

python -m benchmarks.pytorch pretraining|encoding DTYPE eager|compile [SIZE SEQUENCES TOKENS]
python -m benchmarks.pytorch learning PREPARED STEPS STEPS_BETWEEN_EVALUATIONS SEED
"""

import contextlib
import sys

import torch
import transformers

from benchmarks import BATCH, LENGTH, predictions
from benchmarks.turns import peak_and_resident_memory, serve

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


def precision(dtype: str) -> contextlib.AbstractContextManager:
    """Return a context of float32, or of bfloat16 by autocast."""
    return torch.autocast(DEVICE, dtype=torch.bfloat16) if dtype == "bfloat16" else contextlib.nullcontext()


def _config(size: str) -> transformers.BertConfig:
    """Return the same configuration as bert_jax's of this name."""
    from bert_jax.config import BertConfig

    ours = BertConfig.named(size)
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    return transformers.BertConfig(**{name: getattr(ours, name) for name in names})


def _inputs(vocab_size: int, sequences: int, length: int) -> dict[str, torch.Tensor]:
    """Return the inputs of pairs without padding."""
    ids = torch.randint(1000, vocab_size, (sequences, length))
    types = (torch.arange(length) >= length // 2).long().expand(sequences, -1)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": types}
    return {name: array.to(DEVICE) for name, array in inputs.items()}


def pretraining(dtype: str, mode: str, size: str = "base", sequences: str = str(BATCH), length: str = str(LENGTH)):
    """Run training steps: masked LM and next sentence, dropout, clipping, AdamW; attention is SDPA."""
    config, shape = _config(size), (int(sequences), int(length))
    model = transformers.BertForPreTraining(config).train().to(DEVICE)
    forward = torch.compile(model) if mode == "compile" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    labels, count = torch.full(shape, -100), predictions(shape[1])
    for row in labels:
        row[torch.randperm(shape[1] - 1)[:count] + 1] = torch.randint(1000, config.vocab_size, (count,))
    inputs = _inputs(config.vocab_size, *shape)
    inputs |= {"labels": labels.to(DEVICE), "next_sentence_label": torch.randint(0, 2, shape[:1]).to(DEVICE)}

    def work(units: int) -> int:
        for _ in range(units):
            with precision(dtype):
                loss = forward(**inputs).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        _wait()
        return units * shape[0] * shape[1]

    serve(work, _memory)


def encoding(dtype: str, mode: str, size: str, sequences: str, length: str) -> None:
    """Compute means of the last hidden state with weights in `dtype`; attention is SDPA."""
    config = _config(size)
    model = transformers.BertModel(config, add_pooling_layer=False).eval().to(DEVICE, getattr(torch, dtype))
    forward = torch.compile(model) if mode == "compile" else model
    inputs = _inputs(config.vocab_size, int(sequences), int(length))

    def work(units: int) -> int:
        with torch.inference_mode():
            for _ in range(units):
                forward(**inputs).last_hidden_state.float().mean(1)
        _wait()
        return units * int(sequences) * int(length)

    serve(work, _memory)


def _wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def _memory() -> tuple[int, int]:
    """Return peak and present memory of the device, or on a CPU of the process, in bytes."""
    if DEVICE == "cuda":
        return torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated()
    return peak_and_resident_memory()


def learning(prepared: str, steps: str, every: str, seed: str) -> None:
    """Pretrain a small BERT on prepared pairs, masked by transformers' collator, and print its held-out loss."""
    from benchmarks import learning as setup
    from bert_jax.data.pretraining.sources import PretrainingEvalSource, PretrainingSource

    torch.manual_seed(int(seed))
    train = PretrainingSource(prepared, "train", LENGTH, setup.BATCH, seed=int(seed))
    held_out = PretrainingEvalSource(prepared, "validation", LENGTH, setup.BATCH, max_examples=setup.HELD_OUT)
    tokenizer = transformers.BertTokenizerFast(f"{prepared}/tokenizer/vocab.txt")
    collator = transformers.DataCollatorForLanguageModeling(tokenizer)
    config = transformers.BertConfig(vocab_size=len(tokenizer), **setup.SIZE)
    model = transformers.BertForPreTraining(config).train()
    decayed = [p for n, p in model.named_parameters() if "LayerNorm" not in n and not n.endswith("bias")]
    others = [p for n, p in model.named_parameters() if "LayerNorm" in n or n.endswith("bias")]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=setup.LEARNING_RATE, fused=True)
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
    {"pretraining": pretraining, "encoding": encoding, "learning": learning}[sys.argv[1]](*sys.argv[2:])
