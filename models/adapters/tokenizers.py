"""The tokenizer that came with a Hugging Face model, as a function from text to token ids."""

from collections.abc import Callable
from pathlib import Path

from ..checkpoint import CheckpointError, check_not_misspelt

_WORDS = "Several words, which every tokenizer tells apart."


def load_tokenizer(source: str) -> Callable[[str], list[int]]:
    """Load the tokenizer of a Hugging Face folder, GGUF file or name; adds no special tokens.

    Args:
        source: What the model was loaded from.

    Raises:
        CheckpointError: If there is none that can be read.
    """
    from transformers import AutoTokenizer

    path = Path(source)
    if not path.exists():
        check_not_misspelt(source)
    place, options = (path.parent, {"gguf_file": path.name}) if path.is_file() else (source, {})
    try:
        tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False, **options)
    except (OSError, ValueError, KeyError, ImportError, TypeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(
            f"{source} has no tokenizer that can be read ({reason}): use a probe of token ids, "
            "such as repeated or needle"
        ) from error

    def encode(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    # Where the files are missing, transformers makes up a tokenizer that knows no word.
    if len(set(encode(_WORDS))) < 2:
        raise CheckpointError(
            f"{source} has no tokenizer, which the text probe needs: put its files (tokenizer.json "
            "or the like) beside the model, or use a probe of token ids, such as repeated or needle"
        )
    return encode
