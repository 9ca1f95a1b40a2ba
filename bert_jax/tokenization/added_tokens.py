"""Add tokens to a tokenizer of the `tokenizers` library as transformers does."""

from collections.abc import Callable, Mapping

import tokenizers

from bert_jax.errors import logger, printable
from bert_jax.tokenization.settings import TokenizerFiles, token_of

_log = logger(__name__)


def plain_special(role: str, token: str) -> tokenizers.AddedToken:
    """Return a special token as in BERT's tokenizers, which does not absorb spaces around it."""
    return tokenizers.AddedToken(token, normalized=False, special=True)


def special_token(role: str, token: str) -> tokenizers.AddedToken:
    """Return a special token as in RoBERTa, XLM-R and MPNet, where the mask absorbs the space before it."""
    return tokenizers.AddedToken(token, lstrip=role == "mask", normalized=False)


def add_tokens_of_files(
    backend: tokenizers.Tokenizer,
    special: Mapping[str, str],
    files: TokenizerFiles,
    special_token: Callable[[str, str], tokenizers.AddedToken] = plain_special,
) -> dict[str, str]:
    """Add the tokens that a tokenizer's files name, and mark the special tokens as special.

    As in transformers, added tokens get ids after the vocabulary in the order in which they are added: first tokens
    with ids in the files, then special tokens with a role, then other special tokens. A token for which the model has
    no embedding row is not added, and a warning says so.

    Args:
        backend: a tokenizer of the `tokenizers` library, changed in place.
        special: names of the special tokens by role.
        files: the contents of the tokenizer's files.
        special_token: function of (role, name) that makes a special token if the files have only its name.

    Returns:
        The special tokens by role that the vocabulary now has.
    """
    known = {repr(token): token.content for token in backend.get_added_tokens_decoder().values()}
    with_ids = [files.added[i] for i in sorted(files.added)]
    _add(backend, [token for token in with_ids if repr(token) not in known], files.rows)
    _warn_of_other_ids(backend, files)
    present = {*known.values(), *(token.content for token in with_ids)}
    further = [token for token in files.further if token.content not in present | set(special.values())]
    missing = {role for role, token in special.items() if backend.token_to_id(token) is None}
    new = len(missing) + sum(backend.token_to_id(token.content) is None for token in further)
    # transformers adds special tokens that the vocabulary lacks, even if the model has no embedding row for them.
    if missing and (not further if files.rows is None else files.rows < backend.get_vocab_size() + new):
        special = {role: token for role, token in special.items() if role not in missing}
    for role, token in special.items():
        if token not in present:
            setting = files.settings.get(f"{role}_token")
            token_of_files = token_of(setting, f"{role}_token", special=True) if isinstance(setting, dict) else None
            backend.add_special_tokens([token_of_files or special_token(role, token)])
    _add(backend, further, files.rows)
    return dict(special)


def _add(backend: tokenizers.Tokenizer, tokens: list[tokenizers.AddedToken], rows: int | None) -> None:
    kept: list[tokenizers.AddedToken] = []
    dropped: list[tokenizers.AddedToken] = []
    size = backend.get_vocab_size()
    for token in tokens:
        is_new = backend.token_to_id(token.content) is None
        size += is_new
        (dropped if is_new and rows is not None and size > rows else kept).append(token)
    backend.add_tokens(kept)
    if dropped:
        names = ", ".join(token.content for token in dropped)
        why = f"as the word embedding has no row for them (vocab_size {rows})"
        _log.warn_once(f"added tokens are skipped, {why}: {names}")


def _warn_of_other_ids(backend: tokenizers.Tokenizer, files: TokenizerFiles) -> None:
    for i, token in sorted(files.added.items()):
        new = backend.token_to_id(token.content)
        if new is not None and new != i:
            name = repr(printable(token.content, 60))
            _log.warn_once(
                f"added token {name}: the files say id {i}, but it gets id {new}, as in transformers' fast tokenizers"
            )
            return
