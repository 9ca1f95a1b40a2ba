"""The pipeline of sentence embeddings (Reimers and Gurevych 2019, arXiv:1908.10084)."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from bert_jax.inference.base import Pipeline, as_texts, progress_bar


class SentenceEmbedding(Pipeline):
    """Sentence embeddings: one vector per text, pooled and scaled as the model's files say."""

    head = "sentence_embedding"

    def __call__(
        self,
        texts: str | Sequence[str],
        truncation: bool = True,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncate_dim: int | None = None,
        progress: bool = False,
    ) -> np.ndarray:
        """Embed texts as vectors, which most models scale to unit length.

        Args:
            texts: one text or a list of N texts.
            truncation: whether to cut texts over the model's `max_length`, as sentence-transformers does; otherwise
                they are an error.
            prompt_name: name of the model's prompt to put before each text; None = the default prompt, "" = none.
            prompt: text to put before each text, instead of a named prompt.
            truncate_dim: number of leading dimensions to keep; None = from the model's files.
            progress: whether to show a progress bar on stderr.

        Returns:
            float32 `[D]` for one text, `[N, D]` for a list.

        Raises:
            InputError: an item is no text or is too long, or the prompt does not exist.
        """
        listed, text = as_texts(texts), self.model.settings.prompt(prompt_name, prompt)
        with progress_bar(len(listed), progress) as advance:
            found = self._embed(listed, text, truncation, truncate_dim, advance)
        return found[0] if isinstance(texts, str) else found

    def _embed(
        self,
        texts: list[str],
        prompt: str,
        truncation: bool = True,
        truncate_dim: int | None = None,
        advance: Callable[[int], None] = lambda rows: None,
    ) -> np.ndarray:
        """Return embeddings `[N, D]` of texts behind a prompt; `advance` is called with each batch's number of rows."""
        config, settings = self.model.config, self.model.settings
        skip = settings.pooling_skip(self.tokenizer, prompt, self.model.max_length)
        model = dataclasses.replace(self.model, config=config.replace(pooling_skip=skip)) if skip else None
        embeddings = np.zeros((len(texts), config.sentence_embedding_size), np.float32)
        for window, inputs in self._windows(texts, truncation=truncation, prompt=prompt):
            for rows, _, output in self._batches(inputs, ("sentence_embedding",), model):
                embeddings[rows + window.start] = output.sentence_embedding
                advance(len(rows))
        return embeddings[:, : settings.dimension(truncate_dim)]
