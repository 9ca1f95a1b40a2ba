"""Open a model directory: determine its family, sizes and head from config.json and the weights."""

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.config.gliner import GlinerConfig
from bert_jax.conversion import evidence, model_kinds, readers, state_dict
from bert_jax.conversion.formats.lazy_tensors import Tensors
from bert_jax.conversion.slots import EMBEDDING_LAYER
from bert_jax.conversion.text_settings import NO_SETTINGS, TextSettings
from bert_jax.conversion.weights import Weights, is_weights, open_weights
from bert_jax.errors import InputError, did_you_mean, logger
from bert_jax.families import FAMILIES, architectures_of
from bert_jax.families.names import Names
from bert_jax.head_names import CLASSIFIERS, DECODER_HEAD, EMBEDDING_HEADS, GLINER_HEAD, NAMED_CLASSIFIERS
from bert_jax.modeling import HEADS, Bert
from bert_jax.storage import hub
from bert_jax.tokenization import has_tokenizer

_log = logger(__name__)
_CLASSIFIER = "classifier."  # of tensors of `CLASSIFIERS`


class Opened(NamedTuple):
    """An open model directory, whose tensors can be read."""

    model: Bert
    saved_head: str | None  # None: a head that is not known here
    weights: Weights
    settings: TextSettings
    directory: storage.Path

    def match(self) -> state_dict.Matched:
        tensors, fresh_head = self.weights.tensors, self.model.head != self.saved_head
        if fresh_head and self.saved_head in CLASSIFIERS:
            tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(_CLASSIFIER)}
        return state_dict.match(self.model, tensors, fresh_head, self.weights.where)

    def report(self, matched: state_dict.Matched) -> dict[str, Any]:
        """Return the fields of `bert_jax.conversion.huggingface.Loaded` except params."""
        tensors = self.weights.tensors
        return {
            "config": self.model.config,
            "head": self.model.head,
            "missing": list(matched.missing),
            "unused": sorted(tensors.keys() - matched.used),
            "directory": self.directory,
            "settings": self.settings,
            "format": self.weights.format,
            "read": {name: (tensors[name].dtype.name, tensors[name].shape) for name in tensors if name in matched.used},
        }


@contextlib.contextmanager
def open_model(
    path: storage.PathLike,
    head: str | None,
    family: str,
    base: storage.PathLike | None = None,
    classes: int | tuple[str, ...] | None = None,
    task: str | None = None,
    config: model_kinds.ConfigLike | None = None,
    tokenizer: storage.PathLike | None = None,
) -> Iterator[Opened]:
    """Yield an open model directory, whose tensors can be read inside the block.

    Args:
        path, head, family, base, classes, task, config, tokenizer: as for
            `bert_jax.conversion.huggingface.load_pretrained`.

    Raises:
        InputError: as for `load_pretrained`.
    """
    if head is not None and head not in (*HEADS, DECODER_HEAD):
        raise InputError(f"head {head!r} is not known{did_you_mean(head, HEADS)}")
    is_bare = config is not None or model_kinds.is_file(path)
    root = storage.Path(path) if model_kinds.is_file(path) else hub.locate(path)
    is_layout = not is_bare and model_kinds.has_modules(root)
    layout = readers.sentence_transformers.read_layout(root) if is_layout else None
    directory = layout.transformer if layout else root
    described = readers.gliner.read_gliner(root, base) if not is_bare and model_kinds.is_gliner(root) else None
    with contextlib.ExitStack() as stack:
        if is_bare:
            found = _open_bare(root, family, stack, task, config, tokenizer, head)
            root = found.where.parent
        elif described:
            found = _open_plain(directory, family, stack, task, gliner_files=described)
        elif model_kinds.is_adapter(directory):
            found = _open_adapter(directory, family, base, task, stack)
        elif base is not None:
            raise InputError(f"{directory}: expected an adapter (adapter_config.json) for the base model, found none")
        else:
            settings = layout.settings if layout else TextSettings()
            found = _open_plain(directory, family, stack, task, settings)
        hf, where, weights, directory, own, task = found
        directory = directory if tokenizer is None else readers.bare_files.given_tokenizer(tokenizer)
        names = FAMILIES[hf["model_type"]].names
        saved_head = layout.head if layout and layout.head in EMBEDDING_HEADS else None
        is_colbert = layout is None and model_kinds.is_stanford(hf)
        projection = readers.multi_vector_encoders.stanford_projection(hf, weights.tensors) if is_colbert else None
        saved_head = saved_head or ("multi_vector" if projection else GLINER_HEAD if described else None)
        saved_head = saved_head or _saved_head(hf, weights.tensors, names, where, head)
        head = head or saved_head
        assert head is not None
        bert = _config(hf, head, saved_head, names, weights.tensors, where)
        bert, settings = _text_settings(root, layout, hf, where, bert, head, weights.tensors, stack)
        settings = settings if own is None else own.settings(task, settings)
        if head == "masked_lm" and (root / model_kinds.RECORD).exists():
            settings = dataclasses.replace(settings, generated=readers.generated.read_generated(root))
        if head == saved_head == "sequence_classification":
            settings = dataclasses.replace(settings, relations=readers.relation_settings.read_relation_settings(root))
        if projection and head == "multi_vector":
            tensor = weights.tensors[f"{EMBEDDING_LAYER.format(number=0)}{projection}"] = weights.tensors[projection]
            bert, settings, _ = readers.multi_vector_encoders.read_stanford(root, bert, tensor.shape)
        if head == GLINER_HEAD:
            bert = bert.replace(gliner=described.config if described else GlinerConfig())
        if described and head == GLINER_HEAD:
            settings = dataclasses.replace(settings, added_tokens=described.config.added_tokens)
        if classes is not None:
            bert = _with_classes(bert, classes, head, head == saved_head)
        if head in ("encoder", "sentence_embedding", "multi_vector", GLINER_HEAD):
            kernel = evidence.tensor_name(names, "pooler/dense/kernel")  # with an ending, if it is quantized
            has_dense = kernel != "" and any(name.startswith(kernel) for name in weights.tensors)
            bert = bert.replace(pooler=has_dense or not bert.heads.pooler_dense)
        yield Opened(Bert(bert, head), saved_head, weights, settings, directory)


def _with_classes(config: BertConfig, classes: int | tuple[str, ...], head: str, trained: bool) -> BertConfig:
    """Return the config with another number of classes, or with other class names."""
    count = classes if isinstance(classes, int) else len(classes)
    if head not in NAMED_CLASSIFIERS:
        raise InputError(f"num_labels: expected head='sequence_classification' or 'token_classification', found {head}")
    if trained and count != config.num_labels:
        raise InputError(
            f"num_labels: expected the {config.num_labels} classes of the trained {head} head, found {count}"
        )
    if isinstance(classes, int):
        return config if trained else config.replace(num_labels=count, id2label=None)
    return config.replace(num_labels=count, id2label=classes)


def _text_settings(
    root: storage.Path,
    layout: "readers.sentence_transformers.ModuleLayout | None",
    hf: dict[str, Any],
    where: storage.Path,
    config: BertConfig,
    head: str,
    tensors: Tensors,
    stack: contextlib.ExitStack,
) -> tuple[BertConfig, TextSettings]:
    """Apply sentence-transformers' files to the config; add the tensors of its modules to `tensors`."""
    settings = layout.settings if layout else TextSettings()
    if layout is not None and head != layout.head:
        settings = settings.of_another_head()
    elif layout is not None and head in ("sentence_embedding", "multi_vector"):
        late = head == "multi_vector"
        read = readers.multi_vector_encoders.read_multi_vector if late else readers.sentence_transformers.read_embedding
        config, settings, folders = read(layout, config)
        for number, folder in folders.items():
            layer = stack.enter_context(open_weights(folder)).tensors
            prefix = EMBEDDING_LAYER.format(number=number)
            tensors.update({f"{prefix}{name}": tensor for name, tensor in layer.items()})
    elif layout is not None and head == "sparse_embedding":
        config, settings, _ = readers.sparse_encoders.read_sparse(layout, config)
    elif layout is not None:
        readers.cross_encoders.check_cross_encoder(layout)
    if layout is None or layout.head != head:
        if head == "sparse_embedding":  # the first of SPLADE's poolings
            config, settings = config.replace(pooling="splade_max"), dataclasses.replace(settings, similarity="dot")
        elif head == "multi_vector":
            settings = dataclasses.replace(settings, similarity="maxsim")
        if head in ("sparse_embedding", "multi_vector"):
            config, settings = readers.bge_m3.read_m3_layer(root, head, config, settings, tensors, stack)
    if head == "sequence_classification" and not settings.activation:
        activation = readers.cross_encoders.cross_encoder_activation(hf, where)
        settings = dataclasses.replace(settings, activation=activation)
    return config, settings


class _Described(NamedTuple):
    """A completed config.json with its weights."""

    hf: dict[str, Any]  # config.json with model_type and all sizes
    where: storage.Path  # path of config.json
    weights: Weights
    directory: storage.Path  # directory of the tokenizer
    adapters: "readers.task_adapters.TaskAdapters | None"
    task: str  # the task whose adapter is merged; "" = none


def _open_plain(
    directory: storage.Path,
    family: str,
    stack: contextlib.ExitStack,
    task: str | None,
    settings: TextSettings = NO_SETTINGS,
    gliner_files: "readers.gliner.GlinerFiles | None" = None,
) -> _Described:
    """Open a directory with config.json and weights, or a GLiNER with its description."""
    where = directory / "config.json" if gliner_files is None else gliner_files.where
    if not where.exists() and (directory / "bert_config.json").exists():
        where = directory / "bert_config.json"
    files = {path.name for path in directory.iterdir()} if directory.is_dir() else set()
    if gliner_files is None and directory.is_dir() and (where.name not in files or not is_weights(directory)):
        readers.foreign_kinds.refuse_foreign_directory(directory)
    if where.name not in files:
        shown = ", ".join(sorted(files)[:10]) or "nothing"
        raise InputError(
            f"{directory}: expected a model directory (config.json, model.safetensors, ...), found {shown}"
        )
    if "adapter_config.json" in files and not model_kinds.is_adapter(directory):
        _log.warning("%s: found the config of an adapter without its weights; nothing is merged", directory)
    hf = storage.read_json(where, unique_keys=True) if gliner_files is None else gliner_files.encoder
    if hf.get("model_type") == model_kinds.ENCODER_DECODER_TYPE:
        expected = "expected an encoder, found an encoder-decoder, which writes texts"
        raise InputError(f"{where}: {expected}: bert_jax.pipeline('text2text-generation', ...), bert-jax text2text")
    found = stack.enter_context(open_weights(directory))
    tensors = found.tensors if gliner_files is None else readers.gliner.encoder_tensors(found.tensors)
    tensors = evidence.without_wrappers(tensors, hf, found.where)
    directory = directory if gliner_files is None else gliner_files.tokenizer
    weights = dataclasses.replace(found, tensors=tensors)
    return _describe(hf, where, weights, directory, files, family, stack, task, settings)


def _open_bare(
    path: storage.Path,
    family: str,
    stack: contextlib.ExitStack,
    task: str | None,
    config: model_kinds.ConfigLike | None,
    tokenizer: storage.PathLike | None,
    head: str | None,
) -> _Described:
    """Open a file of weights, or a directory of them whose config is elsewhere."""
    bare = readers.bare_files.open_bare(path, config, tokenizer, family, head, stack)
    return _describe(bare.hf, bare.where, bare.weights, bare.directory, set(), "", stack, task, NO_SETTINGS)


def _describe(
    hf: dict[str, Any],
    where: storage.Path,
    found: Weights,
    directory: storage.Path,
    files: set[str],
    family: str,
    stack: contextlib.ExitStack,
    task: str | None,
    settings: TextSettings,
) -> _Described:
    """Complete a config with what the weights show, and give the tensors the names of the family.

    Args:
        hf: the content of `config.json`.
        where: its path, for messages.
        found: the weights, without the prefixes of wrappers.
        directory: directory of the tokenizer.
        files: names of the files beside the weights.
        family, task: as for `open_model`.
        stack: closes the files of adapters.
        settings: the settings of sentence-transformers' files.
    """
    tensors = found.tensors
    if family:
        hf = {key: value for key, value in hf.items() if key != "architectures" or family == hf.get("model_type")}
    family = family or evidence.settle_family(hf, tensors, files, where)
    has_adapters, names, own = FAMILIES[family].has_task_adapters, FAMILIES[family].names, None
    is_parametrized = any(".parametrizations." in name for name in tensors)
    if has_adapters or is_parametrized or (settings.task if task is None else task):
        own = readers.task_adapters.find_adapters(hf, where.parent, where, has_adapters)
        task = own.chosen(task, settings)
        tensors = own.merged(tensors, task)
    tensors = canonical_names(tensors, names, found.where)
    if own is not None:
        tensors = own.merged_folder(tensors, task or "", lambda part: canonical_names(part, names, where), stack)
    hf = evidence.complete(hf | {"model_type": family}, family, tensors, where)
    if hf.get("auto_map") and not FAMILIES[family].has_own_code:
        _log.warning("%s: auto_map names Python files; they are not run, and the model is read as %s", where, family)
    return _Described(hf, where, dataclasses.replace(found, tensors=tensors), directory, own, task or "")


def _open_adapter(
    directory: storage.Path,
    family: str,
    base: storage.PathLike | None,
    task: str | None,
    stack: contextlib.ExitStack,
) -> _Described:
    """Open a LoRA adapter and its base model, and merge the two."""
    content = readers.adapters.read_config(directory)
    base_directory = readers.adapters.base_directory(directory, content, base)
    if layout := readers.sentence_transformers.read_layout(base_directory):
        base_directory = layout.transformer
    # The base may be the weights beside the adapter.
    is_beside = is_weights(directory) and base_directory.is_same(directory)
    if model_kinds.is_adapter(base_directory) and not is_beside:
        raise InputError(f"{directory}: expected a base model that is no adapter, found one in {base_directory}")
    hf, where, weights, _, own, task = _open_plain(base_directory, family, stack, task)
    names = FAMILIES[hf["model_type"]].names
    adapter = stack.enter_context(readers.adapters.open_adapter(directory, content))
    replaced, updates = (canonical_names(part, names, adapter.where) for part in (adapter.tensors, adapter.updates))
    tensors = readers.adapters.merged(weights.tensors, replaced, updates, adapter.where)
    if saved := readers.adapters.architecture(content, evidence.class_prefix(hf["model_type"])):
        hf = hf | {"architectures": [saved]}
    head = names.head_of(saved or "")
    shown = evidence.classes_shown(names, head or "", tensors)
    if shown and any(shown.name in part for part in (replaced, updates)):
        hf = evidence.with_classes(hf, shown.value)
    tokenizer = directory if has_tokenizer(directory) else base_directory
    weights = dataclasses.replace(weights, tensors=tensors, where=adapter.where)
    return _Described(hf, where, weights, tokenizer, own, task)


def _config(
    hf: dict[str, Any], head: str, saved_head: str | None, names: Names, tensors: Tensors, where: storage.Path
) -> BertConfig:
    """Return the config of a model with a head, after checking its number of classes against the tensors."""
    is_taken = head == saved_head or saved_head not in CLASSIFIERS
    shown = evidence.classes_shown(names, head, tensors) if is_taken else None
    if shown and not any(hf.get(key) for key in ("id2label", "label2id", "num_labels")):
        hf = hf | {"num_labels": shown.value}
    config = BertConfig.from_hf(hf, where=str(where))
    if shown and config.num_labels != shown.value:
        raise InputError(
            f"{where}: expected {shown.value} classes (id2label or num_labels), as in tensor {shown.name!r} of shape "
            f"{list(shown.shape)}, found {config.num_labels}"
        )
    return config


def _saved_head(
    hf: dict[str, Any], tensors: Tensors, names: Names, where: storage.Path, asked: str | None
) -> str | None:
    """Return the saved head; None when it is not known and the caller asks for a head.

    Raises:
        InputError: the saved head is not known, and the caller asks for none.
    """
    classes = architectures_of(hf, where)
    for name in classes:
        if head := names.head_of(name):
            return head
    if classes and asked is None:
        known = [*names.architectures.values(), *names.other_architectures]
        raise InputError(
            f"{where}: architecture {classes[0]!r} is not known{did_you_mean(classes[0], known)}; to open it with a "
            "head of your choice, name the head (--head)"
        )
    if classes:
        return None
    for head in ("pretraining", "masked_lm", "next_sentence", "replaced_token_detection", "question_answering"):
        own = [entry.theirs for entry in names.heads.get(head, ()) if entry.ours.endswith("/kernel")]
        if own and all(name in tensors for name in own) and not any(name.startswith(_CLASSIFIER) for name in own):
            return head
    has_classifier = any(name.startswith(_CLASSIFIER) for name in tensors)
    if has_classifier and asked is None:
        raise InputError(f"{where}: expected architectures, which name the kind of classifier, found none")
    return asked if has_classifier else "encoder"


def canonical_names(tensors: Tensors, names: Names, where: storage.Path) -> Tensors:
    """Rename tensors of old and encoder-only files to the family's names, and drop buffers."""
    roots = {entry.theirs.removeprefix(names.prefix).split(".")[0] for entry in names.encoder}
    known = {entry.theirs for entry in names.encoder}
    renamed: Tensors = {}
    for name, tensor in names.older(tensors).items():
        new = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))
        if new.split(".")[0] in roots:
            new = names.prefix + new
        if name.endswith(("position_ids", "inv_freq")) and new not in known:  # buffers, not parameters
            continue
        if new in renamed:
            raise InputError(f"{where}: expected tensor {new!r} once, found it under two names")
        renamed[new] = tensor
    for name, original in names.tied:  # some files have only the second name
        if name in renamed and original not in renamed:
            renamed[original] = renamed[name]
    return renamed
