"""Read the files beside a model's config and weights: settings of texts and vectors, and layers behind the encoder."""

import contextlib
import dataclasses

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.config.gliner import GlinerConfig
from bert_jax.conversion.checkpoint import Checkpoint
from bert_jax.conversion.choose_head import ChosenHead
from bert_jax.conversion.locate_checkpoint import CheckpointFiles
from bert_jax.conversion.model_kinds import RECORD, is_stanford, names_activation
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.head_names import GLINER_HEAD


def read_side_files(
    files: CheckpointFiles, checkpoint: Checkpoint, chosen: ChosenHead, stack: contextlib.ExitStack
) -> tuple[BertConfig, TextSettings]:
    """Return the config and the settings of a model; tensors of further layers are added to the checkpoint's.

    Args:
        files: the files of the model.
        checkpoint: its config.json and its tensors.
        chosen: its head, and the config without these files.
        stack: closes the files of the layers.

    Raises:
        InputError: a file is damaged, or asks for something that is not supported.
    """
    config, settings, head, layout = chosen.config, TextSettings(), chosen.head, files.layout
    root = checkpoint.where.parent if files.is_bare else files.root
    if layout is not None:
        from bert_jax.conversion.apply_modules import apply_modules

        config, settings = apply_modules(layout, head, config, checkpoint.tensors, stack)
    if head in ("sparse_embedding", "multi_vector") and (layout is None or layout.head != head):
        from bert_jax.conversion.bge_m3 import read_m3_layer

        if head == "sparse_embedding":  # the first of SPLADE's poolings
            config, settings = config.replace(pooling="splade_max"), dataclasses.replace(settings, similarity="dot")
        else:
            settings = dataclasses.replace(settings, similarity="maxsim")
        config, settings = read_m3_layer(root, head, config, settings, checkpoint.tensors, stack)
    if head == "sequence_classification" and not settings.activation and names_activation(checkpoint.hf):
        from bert_jax.conversion.cross_encoders import cross_encoder_activation

        activation = cross_encoder_activation(checkpoint.hf, checkpoint.where)
        settings = dataclasses.replace(settings, activation=activation)
    if checkpoint.task_prompts is not None:
        settings = settings.of_task(checkpoint.task_prompts)
    if (root / RECORD).exists():
        settings = _with_record(settings, root, chosen)
    if head == "multi_vector" and layout is None and is_stanford(checkpoint.hf, checkpoint.tensors):
        from bert_jax.conversion.stanford_colbert import read_stanford

        config, settings = read_stanford(root, config, checkpoint.tensors)
    if head == GLINER_HEAD:
        gliner = files.gliner.config if files.gliner else GlinerConfig()
        config = config.replace(gliner=gliner)
        settings = dataclasses.replace(settings, added_tokens=gliner.added_tokens) if files.gliner else settings
    return config, settings


def _with_record(settings: TextSettings, root: storage.Path, chosen: ChosenHead) -> TextSettings:
    """Return the settings with what `bert_jax.json` records of a model with this head."""
    if chosen.head == "masked_lm":
        from bert_jax.conversion.generated import read_generated

        return dataclasses.replace(settings, generated=read_generated(root))
    if chosen.head == chosen.saved == "sequence_classification":
        from bert_jax.conversion.relation_settings import read_relation_settings

        return dataclasses.replace(settings, relations=read_relation_settings(root))
    return settings
