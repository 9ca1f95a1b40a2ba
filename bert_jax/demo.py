"""The demo: pretrain, fine-tune and run a small BERT on the documentation inside Python, in minutes on a laptop.

All files are in one directory; steps whose results exist are not repeated.
"""

import contextlib
import random
import time
from collections.abc import Iterable, Iterator, Sequence

from ml_collections import ConfigDict
from rich.console import Console
from rich.table import Table
from rich.text import Text
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from bert_jax import recipes, storage
from bert_jax.data.corpora.readers import Document
from bert_jax.data.corpora.sentences import split_sentences
from bert_jax.data.corpora.sources import Corpus, open_corpus
from bert_jax.data.pretraining.manifest import Manifest
from bert_jax.data.pretraining.prepare import prepare
from bert_jax.data.pretraining.units import is_held_out
from bert_jax.errors import printable
from bert_jax.inference import pipeline
from bert_jax.storage import PathLike
from bert_jax.tokenization import load_tokenizer, train_wordpiece
from bert_jax.training.loop import train

VOCAB_SIZE = 4000
SEQUENCE_LENGTH = 32  # with fewer positions, position embeddings are learned sooner
HELD_OUT = 0.03  # fraction of documents that are held out of pretraining and fine-tuning
TASK_SHARE = {"train": 0.5, "held-out": 1.0}  # fraction of the sentences that the fine-tuning task uses
LIBRARIES = ("flax", "jax", "matplotlib", "numpy", "optax", "orbax", "tensorflow_datasets")
LIBRARY_HELD_OUT = 0.1  # fraction of the modules that the notebooks' classification task holds out

BLANKS = (
    "returns a [MASK] of strings.",
    "if the file does not [MASK], an error is raised.",
    "the default [MASK] is none.",
    "raises a type error if the [MASK] is not a string.",
    "the number of [MASK] in the array.",
    "returns true if the object [MASK] an instance of the class.",
)


def pretraining_recipe(workdir: PathLike) -> ConfigDict:
    """Return the recipe of the demo's pretraining: a tiny BERT, trained for about three minutes."""
    c = recipes.pretraining()
    c.data.prepared = str(storage.Path(workdir) / "prepared")
    c.data.sequence_length = SEQUENCE_LENGTH
    c.model.update(size="tiny", num_attention_heads=4, max_position_embeddings=SEQUENCE_LENGTH)
    # A run this short learns to use neighbouring words only with larger initial weights than BERT's 0.02 (which suits a
    # hidden size of 768), many small steps at a high learning rate, and no dropout, since it sees the text only a few
    # times. Muon needs half the steps of AdamW.
    c.model.update(initializer_range=0.08, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    c.dtype = "bfloat16"
    c.num_steps = 1300
    c.global_batch_size = 128
    c.optimizer.update(name="muon", learning_rate=3e-3, warmup_ratio=0.1, schedule="linear", warmup_steps=0, beta2=0.98)
    c.log_every = 100
    c.eval_every = 325
    c.checkpoint_every = 325
    return c


def fine_tuning_recipe(workdir: PathLike) -> ConfigDict:
    """Return the recipe of the demo's fine-tuning: detect whether two neighbouring words of a sentence were swapped."""
    c = recipes.classification()
    c.init_from = str(storage.Path(workdir) / "pretraining" / "model")
    c.data.train, c.data.dev = (str(storage.Path(workdir) / f"order-{split}.tsv") for split in ("train", "held-out"))
    c.data.max_seq_length = SEQUENCE_LENGTH
    c.data.length_buckets = (20, SEQUENCE_LENGTH)
    c.model.update(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    c.dtype = "bfloat16"
    c.num_epochs = 3.0
    c.global_batch_size = 64
    c.optimizer.update(learning_rate=5e-4, schedule="linear")
    c.log_every = 100
    return c


class Demo:
    """A run of the demo in a work directory; each public method is a step."""

    def __init__(self, workdir: PathLike):
        self.workdir = storage.Path(workdir)
        self.console = Console(highlight=False, soft_wrap=True)
        self.seconds: dict[str, float] = {}

    def run(self) -> None:
        """Run all steps."""
        self.workdir.mkdir(parents=True, exist_ok=True)
        documents = self.read()
        self.prepare(documents)
        self.pretrain()
        self.fine_tune(documents)
        self.predict_words()
        spent = "  ".join(f"{name} {seconds:.0f} s" for name, seconds in self.seconds.items())
        self.console.print(f"\n[bold]{sum(self.seconds.values()) / 60:.1f} minutes:[/] {spent}")
        self._say(f"Try it:  bert-jax fill-mask {self.workdir}/pretraining/model 'returns the [MASK].'")

    def read(self) -> list[Document]:
        """Read the corpus, show a sample, and return its documents."""
        with self._chapter("text", "The text: documentation inside this Python"):
            documents = list(open_corpus("python-docs"))
            words = sum(len(text.split()) for document in documents for text in document.texts)
            self.console.print(f"{len(documents):,} modules and topics, {words:,} words. The beginnings of three:")
            for document in documents[len(documents) // 6 :: len(documents) // 3]:
                self.console.print(f"  [cyan]{document.name.partition(':')[2]}[/]  {document.texts[0][:100]}")
        return documents

    def prepare(self, documents: list[Document]) -> None:
        """Train a vocabulary and cut the text into sentence pairs."""
        with self._chapter("preparing", "The vocabulary and the pretraining data"):
            place = self.workdir / "prepared"
            if not place.exists():
                texts = (text for document in documents for text in document.texts)
                tokenizer = train_wordpiece(texts, VOCAB_SIZE)
                corpus = Corpus("python-docs", lambda: iter(documents))
                prepare(corpus, tokenizer, place, max_seq_length=SEQUENCE_LENGTH, validation_fraction=HELD_OUT,
                        dupe_factor=2)  # fmt: skip
            manifest, tokenizer = Manifest.read(place), load_tokenizer(place / "tokenizer")
            for part in manifest.sets:
                self.console.print(
                    f"{part.split}: {part.examples:,} pairs, {part.tokens:,} tokens, "
                    f"from {manifest.documents[part.split]:,} documents"
                )
            sample = "Raises a ValueError when the dtype is unsupported."
            self.console.print(f"{tokenizer.vocab_size:,} word pieces: {' '.join(tokenizer.tokenize(sample))}")

    def pretrain(self) -> None:
        """Pretrain on masked words and next-sentence prediction."""
        with self._chapter("pretraining", "Pretraining: predict 15% of the words; does B follow A?"):
            scores = train(pretraining_recipe(self.workdir), self.workdir / "pretraining")
            right, majority = scores["eval/mlm_accuracy"], scores["eval/mlm_majority_accuracy"]
            self._table(
                "Accuracy on held-out documents",
                {
                    "masked tokens": f"{right:.1%}",
                    "always the most frequent token": f"{majority:.1%}",
                    "ratio": f"{right / majority:.1f}",
                    "next sentence": f"{scores['eval/nsp_accuracy']:.1%}",
                },
            )
            self._say(f"Curves: {self.workdir / 'pretraining' / 'report.png'}")

    def fine_tune(self, documents: list[Document]) -> None:
        """Fine-tune on a task made from the same text, and compare with baselines without a BERT."""
        with self._chapter("fine-tuning", "Fine-tuning: have two neighbouring words been swapped?"):
            rows = {split: list(order_task(documents, split)) for split in ("train", "held-out")}
            for split, examples in rows.items():
                table = "".join(f"{label}\t{sentence}\n" for sentence, label in examples)
                storage.write_atomically(self.workdir / f"order-{split}.tsv", "label\tsentence\n" + table)
            for sentence, label in rows["held-out"][:4]:
                self.console.print(f"  [cyan]{label:8}[/] {sentence}")
            baseline = bag_of_words_accuracy(rows["train"], rows["held-out"])
            scores = train(fine_tuning_recipe(self.workdir), self.workdir / "fine-tuning")
            labels = [label for _, label in rows["held-out"]]
            majority = max(labels.count(label) for label in set(labels)) / len(labels)
            self._table(
                f"Accuracy on {len(labels):,} sentences of held-out documents",
                {
                    "this BERT": f"{scores['eval/accuracy']:.1%}",
                    "bag of words and word pairs": f"{baseline:.1%}",
                    "always the most frequent label": f"{majority:.1%}",
                },
            )

    def predict_words(self) -> None:
        """Predict masked words with the pretrained model."""
        with self._chapter("inference", "Inference: predict the masked word"):
            table = Table(box=None)
            for column in ("text", "predictions"):
                table.add_column(column, justify="left")
            fill = pipeline("fill-mask", self.workdir / "pretraining" / "model")
            for text, answers in zip(BLANKS, fill(list(BLANKS)), strict=True):
                shown = "  ".join(f"{answer['token_str']} {answer['score']:.2f}" for answer in answers)
                table.add_row(text.replace("[MASK]", "\\[MASK]"), shown)
            self.console.print(table)

    @contextlib.contextmanager
    def _chapter(self, name: str, title: str) -> Iterator[None]:
        self.console.print(f"\n[bold]{len(self.seconds) + 1}. {title}[/]")
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start

    def _say(self, text: str) -> None:
        """Print text that may contain a path of the user, with control characters escaped."""
        self.console.print(Text(printable(text)))

    def _table(self, title: str, rows: dict[str, str]) -> None:
        table = Table(title=title, title_justify="left", show_header=False)
        for row in rows.items():
            table.add_row(*row)
        self.console.print(table)


def order_task(documents: Iterable[Document], split: str) -> Iterator[tuple[str, str]]:
    """Yield (sentence, label) of the fine-tuning task: half of the sentences have two neighbouring words swapped.

    Args:
        documents: the corpus.
        split: "train" or "held-out".

    Yields:
        Sentences of 6 to 18 words with the label "kept" or "swapped".
    """
    rng = random.Random(split)
    for document in documents:
        if is_held_out(document, HELD_OUT) != (split == "held-out"):
            continue
        for sentence in (s for text in document.texts for s in split_sentences(text)):
            words = sentence.split()
            places = [i for i in range(len(words) - 2) if words[i].lower() != words[i + 1].lower()]
            if not 6 <= len(words) <= 18 or not places or rng.random() > TASK_SHARE[split]:
                continue
            swapped = rng.random() < 0.5
            if swapped:
                i = rng.choice(places)
                words[i : i + 2] = words[i + 1], words[i]
            yield " ".join(words), "swapped" if swapped else "kept"


def library_task(documents: Iterable[Document], split: str) -> Iterator[tuple[str, str]]:
    """Yield (sentence, library) of the notebooks' classification task: which library does a sentence document?

    Args:
        documents: the corpus `python-docs`.
        split: "train" or "held-out"; no module is in both.

    Yields:
        Distinct sentences of 6 to 24 words that name none of `LIBRARIES`, in the corpus's order.
    """
    seen = set()
    for document in documents:
        library = document.name.partition(":")[2].partition(".")[0]
        if library not in LIBRARIES or is_held_out(document, LIBRARY_HELD_OUT) != (split == "held-out"):
            continue
        for sentence in (s for text in document.texts for s in split_sentences(text)):
            named = any(name in sentence.lower() for name in LIBRARIES)
            if not named and 6 <= len(sentence.split()) <= 24 and sentence not in seen:
                seen.add(sentence)
                yield sentence, library


def bag_of_words_accuracy(train_rows: Sequence[tuple[str, str]], test_rows: Sequence[tuple[str, str]]) -> float:
    """Return the accuracy of a logistic regression on the words and word pairs of a sentence."""
    model = make_pipeline(
        CountVectorizer(ngram_range=(1, 2), binary=True, token_pattern=r"\S+"), LogisticRegression(max_iter=200)
    )
    model.fit(*zip(*train_rows, strict=True))
    return float(model.score(*zip(*test_rows, strict=True)))


def main(workdir: PathLike) -> None:
    """Run the demo in `workdir`, a new directory or the one of an earlier run."""
    Demo(workdir).run()
