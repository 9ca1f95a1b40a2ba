"""Names in tokenizers' files: the special tokens of each kind by role, and the file of fastBPE's merges."""

WORD_PIECE_SPECIALS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA_SPECIALS = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
ALBERT_SPECIALS = {"pad": "<pad>", "unk": "<unk>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
MPNET_SPECIALS = {**ROBERTA_SPECIALS, "unk": "[UNK]"}
ESM_SPECIALS = {"pad": "<pad>", "unk": "<unk>", "cls": "<cls>", "sep": "<eos>", "mask": "<mask>"}
CODES_FILE = "bpe.codes"  # merges of fastBPE, beside vocab.txt
