"""Open a teacher, and make a student from its layers or its embeddings."""

import hashlib
from typing import Any, NamedTuple

import jax
import numpy as np

from bert_jax.config import BertConfig
from bert_jax.conversion.load_pretrained import Loaded, load_pretrained
from bert_jax.conversion.model_tokenizer import open_tokenizer
from bert_jax.conversion.open_checkpoint import open_model
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.errors import InputError
from bert_jax.jobs import fingerprints
from bert_jax.jobs.distillation.settings import Distillation
from bert_jax.modeling import Bert, Compute, Params
from bert_jax.tokenization import Tokenizer, load_tokenizer

_KEY = "config.distillation"
# Fields that configs had not at first, where they are not set: the hashes of runs that began before stay the same.
_LATER_FIELDS = (", classifies_embedding=False", ", query_weights=''")


class Teacher(NamedTuple):
    """A teacher with its parameters.

    Attributes:
        model: its architecture and head.
        params: float32 numpy arrays.
        tokenizer: its tokenizer.
        settings: prompts and other settings from sentence-transformers' files.
    """

    model: Bert
    params: Params
    tokenizer: Tokenizer
    settings: TextSettings

    @property
    def fingerprint(self) -> str:
        """Return a hash of the architecture, the parameters and the tokenizer."""
        architecture = repr((self.model.config, self.model.head))
        for unset in _LATER_FIELDS:
            architecture = architecture.replace(unset, "")
        digest = hashlib.blake2b(architecture.encode(), digest_size=16)
        fingerprints.add_params(digest, self.params)
        digest.update(self.tokenizer.fingerprint.encode())
        return digest.hexdigest()


def teacher_head(settings: Distillation, head: str) -> str:
    """Return the head whose outputs the loss needs from the teacher of a student with `head`."""
    if "soft_labels" in settings.weights:
        return "masked_lm" if head == "pretraining" else head
    return "sentence_embedding" if "embeddings" in settings.weights else "encoder"


def teacher_config(settings: Distillation, head: str) -> BertConfig:
    """Return the architecture of the teacher with `head`, without reading its weights.

    Raises:
        InputError: the directory is not a model, or has no trained head.
    """
    with open_model(settings.teacher, head, "") as opened:
        _check_trained(settings, head, list(opened.match().missing))
        return opened.model.config.replace(quantization=None)


def tokenizer_of_model(directory: str) -> Tokenizer:
    """Return the tokenizer of a model directory, such as the teacher's for a student without one of its own."""
    with open_model(directory, None, "") as opened:
        return opened.settings.tokenizer(load_tokenizer(opened.directory))


def teacher_text_settings(settings: Distillation, head: str = "sentence_embedding") -> TextSettings:
    """Return the teacher's prompts, similarity and other settings for a head."""
    with open_model(settings.teacher, head, "") as opened:
        return opened.settings


def _check_trained(settings: Distillation, head: str, missing: list[str]) -> None:
    if missing:
        raise InputError(
            f"{_KEY}.teacher: expected a model with a trained {head} head, found {settings.teacher} without "
            f"{', '.join(missing[:3])}"
        )


def load_teacher(settings: Distillation, head: str, compute: Compute) -> Teacher:
    """Load the teacher with `head`.

    Raises:
        InputError: the directory is not a model with a tokenizer, or lacks a trained head that the loss needs.
    """
    loaded = load_pretrained(settings.teacher, head, dequantize=True)
    _check_trained(settings, head, loaded.missing)
    return Teacher(Bert(loaded.config, head, compute), loaded.params, open_tokenizer(loaded), loaded.settings)


def open_teacher(settings: Distillation, head: str, compute: Compute) -> Teacher:
    """Open the teacher with `head` without reading its weights; its parameters are abstract (shapes only).

    Raises:
        InputError: as for `load_teacher`.
    """
    with open_model(settings.teacher, head, "") as opened:
        _check_trained(settings, head, list(opened.match().missing))
        model = Bert(opened.model.config.replace(quantization=None), head, compute)
        tokenizer = opened.settings.tokenizer(load_tokenizer(opened.directory))
        return Teacher(model, model.abstract_params(), tokenizer, opened.settings)


def student_from_layers(settings: Distillation, head: str) -> Loaded:
    """Return a student with the teacher's embeddings, its layers `student_layers`, and its head if that is trained.

    Raises:
        InputError: a layer does not exist, or the chosen layers cannot be a model of the teacher's family.
    """
    loaded = load_pretrained(settings.teacher, head, dequantize=True)
    if loaded.missing:
        loaded = load_pretrained(settings.teacher, "encoder", dequantize=True)
    config, layers = loaded.config, settings.student_layers
    key, count = f"{_KEY}.student_layers", config.num_hidden_layers
    for layer in layers:
        if layer >= count:
            raise InputError(f"{key}: expected layers of the teacher, 0 to {count - 1}, found {layer}")
    if groups := config.setting("num_hidden_groups"):
        raise InputError(
            f"{key}: expected a teacher whose layers have parameters of their own, found num_hidden_groups "
            f"{groups}, which ties them"
        )
    if experts := config.setting("num_experts"):
        raise InputError(f"{key}: expected a teacher without experts, found num_experts {experts}")
    student = config.replace(num_hidden_layers=len(layers))
    if not config.norms.first_layer_norm and layers[0]:
        raise InputError(f"{key}: expected layer 0 first, as only that layer of {config.family} reads the embeddings "
                         f"without LayerNorm, found {layers[0]}")  # fmt: skip
    if student.windows != tuple(config.windows[layer] for layer in layers):
        raise InputError(f"{key}: expected layers whose local windows are those of a model of {len(layers)} layers "
                         f"(global_every is {config.attention.global_every}), found {layers}")  # fmt: skip
    return loaded._replace(config=student, params=_with_layers(loaded.params, layers))


def principal_embeddings(teacher: Teacher, student: BertConfig) -> Params:
    """Return the teacher's embedding tables projected on the principal components of its word embeddings.

    Inner products of embeddings change as little as the student's width allows (Eckart and Young 1936). The LayerNorm
    of the embeddings is left out, as its weights apply to the teacher's dimensions.

    Args:
        teacher: the teacher, with embeddings of width D.
        student: architecture with embeddings of width d < D and the same tables.

    Raises:
        InputError: the student's embeddings are not narrower, a table has another number of rows in the student, or
            one model has word embeddings of another width than its other tables.
    """
    width, key = student.embedding_width, f"{_KEY}.student_embeddings"
    if width >= teacher.model.config.embedding_width:
        raise InputError(f"{key}: expected a student with embeddings narrower than the teacher's "
                         f"{teacher.model.config.embedding_width}, found {width}")  # fmt: skip
    if student.setting("word_projection") or teacher.model.config.setting("word_projection"):
        raise InputError(f"{key}: expected word embeddings as wide as those of positions, found word_projection")
    expected = Bert(student, "encoder").abstract_params()["embeddings"]
    tables = {name: tree for name, tree in teacher.params["embeddings"].items() if name.endswith("_embeddings")}
    words = np.asarray(tables["word_embeddings"]["embedding"], np.float64)
    basis = np.linalg.eigh(words.T @ words)[1][:, : -width - 1 : -1]  # [D, d], the largest components first
    projected: Params = {}
    for name, tree in tables.items():
        table = np.asarray(tree["embedding"] @ basis, np.float32)
        shape = expected[name]["embedding"].shape if name in expected else "none"
        if table.shape != shape:
            raise InputError(f"{key}: expected {name} of shape {table.shape}, as the teacher has, found {shape}")
        projected[name] = {"embedding": table}
    return {"embeddings": projected}


def _with_layers(params: Params, layers: tuple[int, ...]) -> Params:
    index = list(layers)
    chosen: Any = jax.tree.map(lambda leaf: leaf[index], params["encoder"]["layers"])
    student = params | {"encoder": params["encoder"] | {"layers": chosen}}
    if "contact_head" in params:  # the contact head has a weight for each attention map
        dense = params["contact_head"]["dense"]
        count = len(jax.tree.leaves(params["encoder"]["layers"])[0])
        rows = dense["kernel"].reshape(count, -1)[index].reshape(-1, 1)
        student |= {"contact_head": {"dense": dense | {"kernel": rows}}}
    return student
