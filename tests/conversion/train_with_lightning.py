"""Train a small classifier with Lightning: `python train_with_lightning.py DIR` writes `best.ckpt` and `logits.npy`.

A process of its own, as Lightning sets handlers and options of the whole process.
"""

import argparse
import logging
import sys

import lightning
import numpy as np
import torch
import transformers

IDS = np.random.default_rng(0).integers(5, 40, (3, 9))


class Module(lightning.LightningModule):
    """A classifier, with hyperparameters that are objects."""

    def __init__(self, settings, sizes):
        super().__init__()
        self.save_hyperparameters()
        self.model = transformers.BertForSequenceClassification(
            transformers.BertConfig(
                vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
                max_position_embeddings=20, num_labels=3,
            )
        )  # fmt: skip
        for parameter in self.model.parameters():
            torch.nn.init.normal_(parameter, std=0.2)

    def training_step(self, batch, _):
        return self.model(**batch).loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 1e-3)


def main(directory: str) -> None:
    torch.manual_seed(0)
    logging.getLogger("lightning").setLevel(logging.ERROR)
    module = Module(argparse.Namespace(lr=np.float64(0.1)), {"sizes": [1, 2]})
    rows = [{"input_ids": torch.tensor(IDS[0]), "labels": torch.tensor(1)}] * 4
    callback = lightning.pytorch.callbacks.ModelCheckpoint(directory, "best", monitor=None)
    trainer = lightning.Trainer(
        max_steps=2, accelerator="cpu", logger=False, callbacks=[callback], enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=directory,
    )  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader(rows, 2))
    with torch.no_grad():
        logits = module.model.eval()(torch.tensor(IDS)).logits
    np.save(f"{directory}/logits.npy", logits.numpy())


if __name__ == "__main__":
    main(sys.argv[1])
