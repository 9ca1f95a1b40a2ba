"""Tokenizer files as Gemma, mmBERT, Qwen and T5 have them, over small vocabularies, and helpers that write files."""

import io
import json

import pytest
import sentencepiece
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

transformers = pytest.importorskip("transformers", reason="compares with transformers, which is not installed")


def byte_level(texts, specials, vocab_size=900):
    """A byte-level BPE learnt from texts, without rows."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=specials, initial_alphabet=alphabet, show_progress=False))  # fmt: skip
    return backend


def unigrams(texts, vocab_size=3000, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, vocab_size=vocab_size, hard_vocab_limit=False,
        minloglevel=2, **options)  # fmt: skip
    return model.getvalue()


def write_json(path, content):
    path.write_text(json.dumps(content), encoding="utf-8")


GEMMA = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]


def gemma_bpe(texts, row):
    """Gemma's BPE over words with spaces before them, with a token for each byte; and the rows `row`."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.normalizer = tokenizers.normalizers.Replace(" ", "\u2581")
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    backend.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=900, special_tokens=GEMMA, show_progress=False))
    model = json.loads(backend.to_str())["model"]
    known = [symbol for symbol in model["vocab"] if symbol.isascii() or len(symbol) > 1 or symbol == "\u2581"]
    merges = [tuple(merge) for merge in model["merges"] if all(part in known for part in (*merge, "".join(merge)))]
    vocabulary = [*GEMMA, *(f"<0x{byte:02X}>" for byte in range(256)), *(s for s in known if s not in GEMMA)]
    ids = {piece: i for i, piece in enumerate(vocabulary)}
    backend.model = models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    backend.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    backend.post_processor = processors.TemplateProcessing(
        single=f"<bos> $A {row}", pair=f"<bos> $A {row} <bos>:1 $B:1 {row}:1",
        special_tokens=[(name, ids[name]) for name in ("<bos>", row)])  # fmt: skip
    return backend


def gemma_folder(directory, texts):
    """The files of EmbeddingGemma."""
    (directory / "tokenizer.json").write_text(gemma_bpe(texts, "<eos>").to_str())
    write_json(directory / "tokenizer_config.json", {
        "tokenizer_class": "GemmaTokenizer", "add_bos_token": True, "add_eos_token": True, "bos_token": "<bos>",
        "eos_token": "<eos>", "mask_token": "<mask>", "pad_token": "<pad>", "unk_token": "<unk>",
        "padding_side": "right", "model_max_length": 2048, "clean_up_tokenization_spaces": False})  # fmt: skip
    write_json(directory / "config.json", {"model_type": "gemma3_text"})
    return transformers.AutoTokenizer.from_pretrained(directory)


def mmbert_folder(directory, texts):
    """The files of mmBERT, a ModernBERT with Gemma's vocabulary."""
    backend = gemma_bpe(texts, "<eos>")
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", unk_token="<unk>", cls_token="<bos>", sep_token="<eos>",
        bos_token="<bos>", eos_token="<eos>", mask_token="<mask>", model_max_length=8192,
        model_input_names=["input_ids", "attention_mask"], clean_up_tokenization_spaces=False,
    ).save_pretrained(directory)  # fmt: skip
    write_json(directory / "config.json", {"model_type": "modernbert"})
    return transformers.AutoTokenizer.from_pretrained(directory)


def qwen_folder(with_row):
    """The files of Qwen3-Embedding, whose rows end with a token, or of Qwen3, whose rows have no special tokens."""

    def write(directory, texts):
        names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        backend = byte_level(texts, names)
        ids = backend.get_vocab()
        words = (
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
            r"\s+(?!\S)|\s+"
        )
        backend.normalizer = tokenizers.normalizers.NFC()
        backend.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(tokenizers.Regex(words), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])  # fmt: skip
        row = processors.TemplateProcessing(
            single="$A <|endoftext|>", pair="$A $B:1 <|endoftext|>:1", special_tokens=[(names[0], ids[names[0]])]
        )
        rows = [processors.ByteLevel(trim_offsets=False), *([row] if with_row else [])]
        backend.post_processor = processors.Sequence(rows)
        (directory / "tokenizer.json").write_text(backend.to_str())
        write_json(directory / "tokenizer_config.json", {
            "tokenizer_class": "Qwen2Tokenizer", "bos_token": None, "eos_token": "<|im_end|>", "unk_token": None,
            "pad_token": "<|endoftext|>", "padding_side": "left", "add_prefix_space": False, "errors": "replace",
            "model_max_length": 131072, "clean_up_tokenization_spaces": False, "split_special_tokens": False,
        })  # fmt: skip
        write_json(directory / "config.json", {"model_type": "qwen3"})
        return transformers.AutoTokenizer.from_pretrained(directory, padding_side="right")

    return write


def t5_folder(directory, texts):
    """T5's unigrams, with the tokens for masked spans at the end; rows end with `</s>`."""
    model = sentencepiece.SentencePieceProcessor(model_proto=unigrams(texts, pad_id=0, eos_id=1, unk_id=2, bos_id=-1))
    pieces = [(model.id_to_piece(i), model.get_score(i)) for i in range(len(model))]
    pieces += [(f"<extra_id_{i}>", 0.0) for i in reversed(range(100))]
    transformers.T5Tokenizer(vocab=pieces, model_max_length=512).save_pretrained(directory)
    write_json(directory / "config.json", {"model_type": "t5"})
    return transformers.AutoTokenizer.from_pretrained(directory)
