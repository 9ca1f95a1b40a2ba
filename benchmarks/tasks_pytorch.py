"""Fine-tuning with transformers, as the competitor of `benchmarks.tasks`: python -m benchmarks.tasks_pytorch CONTEST.

Batches in random order, each padded to its longest row; AdamW with a linear schedule, clipping, and the model's
dropout. The last printed line has the score and the number of training examples.
"""

import abc
import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from benchmarks.pytorch import precision

STRIDE, ANSWER_LENGTH, N_BEST = 128, 30, 20
OTHERS = -100  # the label of tokens that are none


class Contestant(abc.ABC):
    """A task of transformers: model, tokenizer, batching and scoring.

    Attributes:
        given: a `benchmarks.tasks.Contest` with the arguments of the run.
        tokenizer, model: tokenizer and model of transformers.
    """

    kind: Any  # the class of the model

    def __init__(self, given: dict[str, Any], **config: Any):
        self.given = given
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(given["model"])
        self.model = self.kind.from_pretrained(given["model"], **config)

    def train(self, rows: list[Any]) -> None:
        """Train on `rows` for the epochs of the contest."""
        given, model = self.given, self.model.train()
        size = given["batch_size"]
        order = [i for _ in range(int(np.ceil(given["epochs"]))) for i in torch.randperm(len(rows)).tolist()]
        order = order[: int(len(rows) * given["epochs"])]
        batches = [[rows[i] for i in order[at : at + size]] for at in range(0, len(order), size)]
        plain = [p for name, p in model.named_parameters() if "LayerNorm" in name or name.endswith("bias")]
        known = {id(p) for p in plain}
        groups = [
            {"params": [p for p in model.parameters() if id(p) not in known], "weight_decay": 0.01},
            {"params": plain, "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(groups, lr=given["learning_rate"], eps=1e-6, fused=True)
        schedule = transformers.get_linear_schedule_with_warmup(optimizer, len(batches) // 10, len(batches))
        for batch in batches:
            with precision(given["dtype"]):
                loss = model(**self.tensors(batch, labels=True)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()

    def answers(self, rows: list[Any]) -> list[tuple[Any, Any]]:
        """The model's outputs for batches of rows, and the rows."""
        self.model.eval()
        found = []
        with torch.no_grad(), precision(self.given["dtype"]):
            for at in range(0, len(rows), self.given["batch_size"]):
                batch = rows[at : at + self.given["batch_size"]]
                found.append((batch, self.model(**self.tensors(batch, labels=False))))
        return found

    def encode(self, *texts: Any, **options: Any) -> Any:
        """Tensors as long as the longest of the texts."""
        return self.tokenizer(
            *texts, padding=True, truncation=True, max_length=self.given["length"], return_tensors="pt", **options
        )

    @abc.abstractmethod
    def tensors(self, batch: list[Any], labels: bool) -> dict[str, torch.Tensor]:
        """The arguments of the model."""

    @abc.abstractmethod
    def run(self) -> tuple[float, int]:
        """The score, and the number of examples of an epoch."""


class Classification(Contestant):
    """Sequence classification or regression."""

    kind = transformers.AutoModelForSequenceClassification

    def __init__(self, given: dict[str, Any]):
        self.rows, self.dev = (table(file, given["columns"]) for file in given["files"])
        self.regression = given["kind"] == "regression"
        self.names = [] if self.regression else sorted({row[-1] for row in self.rows})
        super().__init__(given, num_labels=len(self.names) or 1)

    def tensors(self, batch: list[list[str]], labels: bool) -> dict[str, torch.Tensor]:
        *texts, answers = zip(*batch, strict=True)
        numbers = [float(answer) if self.regression else self.names.index(answer) for answer in answers]
        return self.encode(*map(list, texts)) | ({"labels": torch.tensor(numbers)} if labels else {})

    def run(self) -> tuple[float, int]:
        from sklearn.metrics import accuracy_score, matthews_corrcoef

        self.train(self.rows)
        logits = torch.cat([output.logits for _, output in self.answers(self.dev)]).float().numpy()
        gold = [row[-1] for row in self.dev]
        if self.regression:
            from scipy.stats import spearmanr

            return float(spearmanr([float(label) for label in gold], logits[:, 0])[0]), len(self.rows)
        score = {"accuracy": accuracy_score, "matthews": matthews_corrcoef}[self.given["metric"]]
        return float(score(gold, [self.names[i] for i in logits.argmax(-1)])), len(self.rows)


class Tokens(Contestant):
    """Token classification, at the first token of each word."""

    kind = transformers.AutoModelForTokenClassification

    def __init__(self, given: dict[str, Any]):
        self.rows, self.dev = (sentences(file) for file in given["files"])
        self.names = sorted({tag for _, tags in self.rows for tag in tags})
        super().__init__(given, num_labels=len(self.names))

    def tensors(self, batch: list[tuple[list[str], list[str]]], labels: bool) -> dict[str, torch.Tensor]:
        encoded = self.encode([words for words, _ in batch], is_split_into_words=True)
        if not labels:
            return encoded
        rows = []
        for i, (_, tags) in enumerate(batch):
            words = encoded.word_ids(i)
            firsts = [word is not None and word != before for before, word in zip([None, *words], words, strict=False)]
            rows.append([self.names.index(tags[w]) if f else OTHERS for w, f in zip(words, firsts, strict=True)])
        return encoded | {"labels": torch.tensor(rows)}

    def run(self) -> tuple[float, int]:
        from seqeval.metrics import f1_score

        self.train(self.rows)
        gold, found = [], []
        for batch, output in self.answers(self.dev):
            encoded = self.encode([words for words, _ in batch], is_split_into_words=True)
            for i, (logits, (_, tags)) in enumerate(zip(output.logits.argmax(-1).tolist(), batch, strict=True)):
                answers: dict[int, str] = {}
                for word, answer in zip(encoded.word_ids(i), logits, strict=True):
                    if word is not None:
                        answers.setdefault(word, self.names[answer])
                gold.append(tags)
                found.append([answers.get(word, "O") for word in range(len(tags))])
        return float(f1_score(gold, found)), len(self.rows)


class Choices(Contestant):
    """Multiple choice."""

    kind = transformers.AutoModelForMultipleChoice

    def __init__(self, given: dict[str, Any]):
        lines = (Path(file).read_text(encoding="utf-8").splitlines() for file in given["files"])
        self.rows, self.dev = ([json.loads(line) for line in file] for file in lines)
        super().__init__(given)

    def tensors(self, batch: list[dict[str, Any]], labels: bool) -> dict[str, torch.Tensor]:
        contexts = [row["context"] for row in batch for _ in row["choices"]]
        encoded = self.encode(contexts, [choice for row in batch for choice in row["choices"]])
        tensors = {name: tensor.view(len(batch), -1, tensor.shape[-1]) for name, tensor in encoded.items()}
        return tensors | ({"labels": torch.tensor([int(row["label"]) for row in batch])} if labels else {})

    def run(self) -> tuple[float, int]:
        self.train(self.rows)
        answers = torch.cat([output.logits.argmax(-1) for _, output in self.answers(self.dev)])
        gold = torch.tensor([int(row["label"]) for row in self.dev])
        return float((answers == gold).float().mean()), len(self.rows)


class Questions(Contestant):
    """Question answering on SQuAD 2.0: contexts in windows, and the best span over all windows, or no answer."""

    kind = transformers.AutoModelForQuestionAnswering

    def __init__(self, given: dict[str, Any]):
        super().__init__(given)
        self.questions, self.dev = (questions(file) for file in given["files"])

    def windows(self, asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The windows of questions: ids, segments, the characters of each token of the context, and the answer."""
        found = []
        for row in asked:
            room = self.given["length"] - len(self.tokenizer(row["question"])["input_ids"]) - 1
            encoded = self.tokenizer(
                row["question"], row["context"], truncation="only_second", max_length=self.given["length"],
                stride=room - STRIDE, return_overflowing_tokens=True, return_offsets_mapping=True,
            )  # fmt: skip
            for i, ids in enumerate(encoded["input_ids"]):
                offsets = [
                    where if part == 1 else None
                    for where, part in zip(encoded["offset_mapping"][i], encoded.sequence_ids(i), strict=True)
                ]
                found.append({"input_ids": ids, "token_type_ids": encoded["token_type_ids"][i], "offsets": offsets,
                              "span": span(row["answers"], offsets), **row})  # fmt: skip
        return found

    def tensors(self, batch: list[dict[str, Any]], labels: bool) -> dict[str, torch.Tensor]:
        rows = [{name: row[name] for name in ("input_ids", "token_type_ids")} for row in batch]
        padded = dict(self.tokenizer.pad(rows, return_tensors="pt"))
        if labels:
            padded["start_positions"], padded["end_positions"] = torch.tensor([row["span"] for row in batch]).T
        return padded

    def run(self) -> tuple[float, int]:
        from bert_jax.tasks.question_answering.data import read_questions
        from bert_jax.tasks.question_answering.metrics import squad_scores

        self.train(self.windows(self.questions))
        best = {row["id"]: (-np.inf, "") for row in self.dev}
        nothing = {row["id"]: np.inf for row in self.dev}
        for batch, output in self.answers(self.windows(self.dev)):
            logits = output.start_logits.float().numpy(), output.end_logits.float().numpy()
            for row, starts, ends in zip(batch, *logits, strict=True):
                nothing[row["id"]] = min(nothing[row["id"]], starts[0] + ends[0])
                best[row["id"]] = max(best[row["id"]], best_span(row, starts, ends))
        predictions = {name: text for name, (_, text) in best.items()}
        odds = {name: nothing[name] - score for name, (score, _) in best.items()}
        found = squad_scores(list(read_questions(self.given["files"][1])), predictions, odds)
        return found[self.given["metric"]], len(self.questions)


def span(answers: list[dict[str, Any]], offsets: list[Any]) -> tuple[int, int]:
    """Return the first and last token of the first answer in a window; (0, 0) if the answer is not inside."""
    if answers:
        begin, end = answers[0]["answer_start"], answers[0]["answer_start"] + len(answers[0]["text"])
        inside = [i for i, where in enumerate(offsets) if where and where[0] < end and where[1] > begin]
        if inside and offsets[inside[0]][0] <= begin and offsets[inside[-1]][1] >= end:
            return inside[0], inside[-1]
    return 0, 0


def best_span(row: dict[str, Any], starts: np.ndarray, ends: np.ndarray) -> tuple[float, str]:
    """Return the most likely span of a window, and its score."""
    offsets = row["offsets"]
    best = (-np.inf, "")
    for start in np.argsort(-starts[: len(offsets)])[:N_BEST]:
        for end in np.argsort(-ends[: len(offsets)])[:N_BEST]:
            if offsets[start] and offsets[end] and start <= end < start + ANSWER_LENGTH:
                text = row["context"][offsets[start][0] : offsets[end][1]]
                best = max(best, (float(starts[start] + ends[end]), text))
    return best


def table(path: str, columns: list[str]) -> list[list[str]]:
    """Read the rows of a table as dicts by column, with numbers as names without a header."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    if columns[0].isdigit():
        places = [int(column) for column in columns]
    else:
        header = rows.pop(0)
        places = [header.index(column) for column in columns]
    return [[row[place] for place in places] for row in rows]


def sentences(path: str) -> list[tuple[list[str], list[str]]]:
    """Read the words and tags of each sentence of a CoNLL file."""
    with open(path, encoding="utf-8") as file:
        blocks = file.read().split("\n\n")
    lines = [[line.split() for line in block.splitlines() if line and "-DOCSTART-" not in line] for block in blocks]
    return [([line[0] for line in block], [line[-1] for line in block]) for block in lines if block]


def questions(path: str) -> list[dict[str, Any]]:
    """Read the questions of SQuAD's JSON, each with its context."""
    with open(path, encoding="utf-8") as file:
        articles = json.load(file)["data"]
    return [
        {"context": paragraph["context"], **{name: row[name] for name in ("id", "question", "answers")}}
        for article in articles
        for paragraph in article["paragraphs"]
        for row in paragraph["qas"]
    ]


KINDS = {
    "classification": Classification,
    "regression": Classification,
    "tokens": Tokens,
    "choices": Choices,
    "questions": Questions,
}

if __name__ == "__main__":
    contest = json.loads(sys.argv[1])
    torch.manual_seed(contest["seed"])
    print(*KINDS[contest["kind"]](contest).run())
