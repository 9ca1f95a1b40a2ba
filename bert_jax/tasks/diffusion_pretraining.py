"""Masked-diffusion pretraining on prepared data: a masked LM at every mask rate (`bert_jax.tasks.masked_diffusion`)."""

import functools
from typing import Any

from bert_jax.conversion.huggingface import save_pretrained
from bert_jax.errors import InputError
from bert_jax.modeling import Bert
from bert_jax.tasks import setup
from bert_jax.tasks.base import AbstractTask, Job
from bert_jax.tasks.masked_diffusion import HEAD, MaskedDiffusionTask
from bert_jax.tasks.pretraining_data import (
    PretrainingData,
    abstract_pretraining_task,
    abstract_stages,
    check_lengths,
    describe_mixtures,
    has_data,
    num_steps,
)
from bert_jax.tokenization import Tokenizer


def build(recipe: Any) -> Job:
    """Read the prepared data and the model that a resolved recipe names. See `bert_jax.tasks.build`."""
    data = PretrainingData.of(recipe)
    if data.objective != "mlm":
        raise InputError(
            f"config.data: expected data prepared with --objective mlm, found {data.objective}: masked diffusion "
            "has no labels of pairs"
        )
    loaded = setup.pretrained(recipe, HEAD)
    config = setup.config(recipe, data.tokenizer, loaded)
    setup.check_head(config, HEAD)
    model = Bert(config, HEAD, setup.compute(recipe))
    train_source = data.train_source(config)
    steps = num_steps(recipe, train_source)
    return Job(
        task=MaskedDiffusionTask(model),
        tokenizer=data.tokenizer,
        init_params=model.init,
        pretrained=loaded.params if loaded else None,
        train_source=train_source,
        eval_source=data.eval_source(config),
        num_steps=steps,
        save=functools.partial(_save, model=model, tokenizer=data.tokenizer),
        data=functools.partial(data.fingerprint, config),
        notes=describe_mixtures(data, train_source, steps),
    )


def abstract_task(recipe: Any) -> AbstractTask:
    """Return the abstract task of a resolved recipe. See `bert_jax.tasks.abstract_task`."""
    if has_data(recipe):
        return abstract_pretraining_task(recipe, build(recipe))
    config = setup.config_without_data(recipe, HEAD)
    check_lengths(recipe, config)
    task = MaskedDiffusionTask(Bert(config, HEAD, setup.compute(recipe)))
    return AbstractTask(task, task.model.init, abstract_stages(recipe, None, recipe.num_steps))


def _save(directory: Any, params: Any, *, model: Bert, tokenizer: Tokenizer) -> None:
    save_pretrained(directory, model.config, model.head, params, tokenizer)
