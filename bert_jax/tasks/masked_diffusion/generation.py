"""The pipeline text-generation: answers to prompts, or texts, by a model of masked diffusion."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.errors import InputError, TextError
from bert_jax.inference.base import as_list, check_option, positive
from bert_jax.tasks.masked_diffusion.data import encode_prompts
from bert_jax.tasks.masked_diffusion.unmasking import Filled, Unmasking, UnmaskingOrder
from bert_jax.tasks.masked_diffusion.writing import OnPass, RegionRow, WritingPipeline

_LONGEST = 64  # maximum number of tokens in an answer, for models that do not record it


class TextGeneration(WritingPipeline):
    """Generation of answers to prompts, or of texts, with a model of masked diffusion."""

    def __call__(
        self,
        prompts: str | Sequence[Any],
        max_new_tokens: int = 0,
        steps: int = 0,
        order: UnmaskingOrder = "confidence",
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        block_length: int = 0,
        remasking: float = 0.0,
        num_return_sequences: int = 1,
        seed: int = 0,
        length: str | int = "auto",
        min_new_tokens: int = 0,
        prefix: str = "",
        forbidden: Sequence[str] = (),
        truncation: bool = False,
        on_pass: OnPass | None = None,
    ) -> list[Any]:
        """Return generated texts.

        Args:
            prompts: a prompt, or a list of prompts: texts, or conversations as lists of `{"role": ..., "content":
                ...}`. An empty text means no prompt.
            max_new_tokens: maximum number of tokens in an answer, end of text included; 0 = as in the model's training,
                else 64. Answers beyond the model's positions are generated in windows, each after as much text as fits.
            steps: number of forward passes per window; 0 = half of its tokens, at least one for each block.
            order: see `bert_jax.tasks.masked_diffusion.unmasking.Unmasking`.
            temperature: see `Unmasking`.
            top_k: see `Unmasking`.
            top_p: see `Unmasking`.
            block_length: tokens of a block and of a window; blocks are filled from left to right, each with its share
                of the passes. 0 = all tokens are one block.
            remasking: see `Unmasking`.
            num_return_sequences: number of answers to each prompt.
            seed: seed of the random numbers; those of an answer do not depend on the texts of other prompts.
            length: `free` = the model ends an answer by its end-of-text token; a number = answers have this number of
                tokens; `sampled` = their lengths are drawn from those of the training answers; `auto` = sampled for a
                model that was trained with `answer_fill=none`, else free.
            min_new_tokens: minimum number of tokens in an answer, end of text excluded.
            prefix: the beginning of each answer.
            forbidden: words, one token each, that are not generated.
            truncation: whether to cut prompts that leave no room for an answer; otherwise they are an error.
            on_pass: called after each forward pass with a batch's texts so far; `_` marks a token not yet generated.

        Returns:
            For each prompt a list of dicts, one for each answer: `generated_text`, `num_tokens` (end of text excluded)
            and `score`, the mean log-probability of the generated tokens in the passes that kept them. For a single
            prompt, only its list.

        Raises:
            InputError: a prompt is malformed or too long, or an option is out of its range.
        """
        single = isinstance(prompts, str)
        dialogues = [_messages(i, prompt) for i, prompt in enumerate([prompts] if single else as_list(prompts))]
        options = Unmasking(order, temperature, top_k, top_p, block_length, remasking)
        count = positive("num_return_sequences", num_return_sequences)
        for name, value in (("max_new_tokens", max_new_tokens), ("steps", steps), ("min_new_tokens", min_new_tokens)):
            if value:
                positive(name, value)
        drafts = self._drafts(len(dialogues) * count, length, max_new_tokens, min_new_tokens, prefix, seed)
        windows = [self._window(draft.total, options.block_length) for draft in drafts]
        todo = list(range(len(drafts)))
        while todo:
            rows = [self._row(i // count, i, dialogues[i // count], drafts[i], windows[i], truncation) for i in todo]
            for i, filled in zip(todo, self._generate(rows, options, steps, seed, forbidden, on_pass), strict=True):
                drafts[i].extend(filled, self._end)
            todo = [i for i in todo if not drafts[i].complete]
        answers = [
            {
                "generated_text": self.tokenizer.decode(draft.tokens),
                "num_tokens": len(draft.tokens),
                "score": float(np.mean(draft.log_probabilities)) if draft.log_probabilities else 0.0,
            }
            for draft in drafts
        ]
        by_prompt = [answers[i : i + count] for i in range(0, len(answers), count)]
        return by_prompt[0] if single else by_prompt

    def _drafts(
        self, count: int, length: str | int, longest: int, least: int, prefix: str, seed: int
    ) -> list["_Draft"]:
        """Return the drafts of `count` answers before generation."""
        known = self.model.settings.records.get("generated")
        if length == "auto":
            length = "sampled" if known is not None and known.fill == "none" else "free"
        check_option("prefix", prefix)
        begin = self.tokenizer.encode(prefix)
        total = longest or (known.length if known is not None else _LONGEST)
        exact = length != "free"
        if length == "free":
            totals = np.full(count, total)
        elif length == "sampled":
            if known is None:
                raise InputError(
                    "length: expected a model that records the lengths of its answers, found another; give a number"
                )
            shares = np.array(known.lengths) / sum(known.lengths)
            totals = np.minimum(np.random.default_rng(seed).choice(len(shares), count, p=shares), total)
        elif isinstance(length, str):
            raise InputError(f"length: expected auto, free, sampled or a number of tokens, found {length!r}")
        else:
            totals = np.full(count, positive("length", length) + 1)
        totals = np.maximum(totals, max(least, len(begin)) + 1)
        return [_Draft([*begin], [], int(each), exact, least) for each in totals]

    def _window(self, longest: int, block_length: int) -> int:
        """Return the number of tokens to generate in one window: the whole answer if it fits."""
        positions = self.model.config.max_position_embeddings
        if longest + self.tokenizer.layout.num_special(True) <= positions:
            return longest
        return min(block_length or positions // 2, positions // 2)

    def _row(
        self, text: int, number: int, messages: Sequence[str], draft: "_Draft", window: int, truncation: bool
    ) -> RegionRow:
        """Return the row that continues an answer: the prompt, the end of the answer so far, and mask tokens."""
        size = min(window, draft.total - len(draft.tokens))
        room = self.model.config.max_position_embeddings - size
        most = max(room - len(draft.tokens), room // 2)  # tokens left for the prompt
        begin = encode_prompts(self.tokenizer, [messages], most)[0]
        if not truncation and not draft.log_probabilities:
            uncut_ids = encode_prompts(self.tokenizer, [messages], room + (1 << 30))[0]
            if len(uncut_ids) > most:
                expected = f"at most {most} tokens before an answer of {size}"
                raise TextError(text, f"expected {expected}, found {len(uncut_ids)}; truncation=True cuts the prompt")
        context = draft.tokens[len(draft.tokens) - min(len(draft.tokens), room - len(begin)) :]
        region = [self.tokenizer.mask_id] * size
        least = draft.least - len(draft.tokens)
        if draft.exact:
            least = size
            if size == draft.total - len(draft.tokens):
                region[-1] = self._end
        types = len(begin) if messages else len(begin) + len(context) + size
        return RegionRow(text, number, len(draft.tokens), [*begin, *context], region, [], types, max(least, 0))


@dataclasses.dataclass
class _Draft:
    """An answer while it is generated.

    Attributes:
        tokens: the tokens so far, without end of text.
        log_probabilities: those of the generated tokens.
        total: maximum number of tokens, end of text included.
        exact: whether the answer must have `total` tokens.
        least: minimum number of tokens, end of text excluded.
        complete: whether nothing more is generated.
    """

    tokens: list[int]
    log_probabilities: list[float]
    total: int
    exact: bool
    least: int
    complete: bool = False

    def extend(self, filled: Filled, end: int) -> None:
        """Add a generated region up to its first end-of-text token."""
        ends = np.flatnonzero(filled.tokens == end)
        kept = int(ends[0]) if len(ends) else len(filled.tokens)
        self.tokens += filled.tokens[:kept].tolist()
        self.log_probabilities += filled.log_probabilities[: kept + (not self.exact)].tolist()
        self.complete = len(ends) > 0 or len(self.tokens) >= self.total


def _messages(number: int, prompt: Any) -> tuple[str, ...]:
    """Return the messages of a prompt: a text, or a conversation. Raises InputError for anything else."""
    if isinstance(prompt, str):
        return (prompt,) if prompt else ()
    if isinstance(prompt, list | tuple) and prompt and all(isinstance(each, Mapping) for each in prompt):
        contents = [each.get("content") for each in prompt]
        if all(isinstance(content, str) for content in contents):
            return tuple(contents)
    expected = 'a text or a list of {"role": TEXT, "content": TEXT}'
    raise TextError(number, f"expected {expected}, found {repr(prompt)[:80]}")
