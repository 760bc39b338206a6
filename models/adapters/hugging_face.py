"""Models of Hugging Face transformers, captured through its own attention interface.

Any architecture that calls the interface works unchanged, in any dtype and under ``device_map``.
One that does not (BLOOM, MPT) is seen through the weights that its attention modules return, one
layer at a time; one that shows neither is refused.
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from ..observed import AttentionSeen, Observer
from .adapter import Adapter, Feed, Handle
from .description import Description
from .digest import check_finite, digest_weights
from .interface import Session, implementation_in_place, interface_in_place
from .probe import probe_tokens
from .returned_patterns import PatternModule, find_pattern_modules, watch_patterns
from .undo import Undo
from .wrappers import check_weights_present


class HuggingFaceAdapter(Adapter):
    """A loaded ``PreTrainedModel``.

    Attributes:
        attention: The modules that call the attention interface (or return their weights).
        returned: For architectures outside the interface, where their weights are returned.
    """

    describes_itself = True

    def __init__(self, model: PreTrainedModel) -> None:
        """Find out how the model can be captured, by running it on a few tokens.

        Raises:
            CheckpointError: If a weight is not a finite number.
            ValueError: If the weights are not there, or the architecture cannot be captured; the
                message says why.
        """
        name = type(model).__name__
        check_weights_present(model)
        check_finite(model, name)
        digest = digest_weights(model)
        notes: list[str] = []
        if getattr(model.config, "is_encoder_decoder", False) and hasattr(model, "get_encoder"):
            encoder = model.get_encoder()
            if encoder is not model:
                notes.append(f"Only the encoder of {name} is seen.")
                model = encoder
        super().__init__(model, _first_description(model, name, digest))
        self.model = model
        self.returned: tuple[PatternModule, ...] = ()
        self._implementation: str | None = None
        self._parameters = _parameter_names(model)
        self._position_table = _position_table(model)
        tokens = probe_tokens(self.description)
        seen, attention = self._first_look(tokens)
        if not attention:
            self._find_returned(tokens)
            attention = [pattern.module for pattern in self.returned]
            notes.append(
                f"{name} does not use transformers' attention interface: its finished weights are "
                "seen, not queries and keys."
            )
        self.attention = tuple(attention)
        self.blocks = _blocks(model, attention)
        self.find_norms(tokens)
        self._complete_description(seen, notes)
        self._blocks_seen.stack = self._stack

    @property
    def _stack(self) -> str:
        return "encoder" if self.description.causal is False else "decoder"

    def watch(self, observer: Observer) -> Iterator[Handle]:
        """Put our attention function in place, or hook the modules that return their weights."""
        if self.returned:
            if self._implementation is not None:
                stack = ExitStack()
                stack.enter_context(implementation_in_place(self.model, self._implementation))
                yield Undo(stack)
            yield from watch_patterns(self.returned, observer, lambda: self.layer, self._stack)
            return
        session = Session(
            show=lambda module, seen: observer.attention(seen),
            layer=lambda: self.layer,
            stack=self._stack,
        )
        stack = ExitStack()
        stack.enter_context(interface_in_place(self.model, session))
        yield Undo(stack)

    def forward(self, feed: Feed) -> Float[Tensor, "batch pos d_vocab_out"]:
        """Run the model without a cache; positions count tokens, not padding."""
        device = next(self.model.get_input_embeddings().parameters()).device
        # Weights that wait elsewhere come to the tokens (accelerate's offloading).
        device = feed.tokens.device if device.type == "meta" else device
        given: dict[str, Any] = {"input_ids": feed.tokens.to(device)}
        if feed.attention_mask is not None:
            mask = feed.attention_mask.to(device)
            padding = self.description.pad_token or 0
            given["input_ids"] = given["input_ids"].masked_fill(~mask, padding)
            given["attention_mask"] = mask.long()
        counts_itself = self._position_table is not None and self._position_table.padded
        positions = feed.positions
        if positions is not None and "position_ids" in self._parameters and not counts_itself:
            given["position_ids"] = positions.to(device)
        if "use_cache" in self._parameters:
            given["use_cache"] = False
        if feed.last_only and "logits_to_keep" in self._parameters:
            given["logits_to_keep"] = 1
        output = self.model(**given, return_dict=True)
        found = getattr(output, "logits", None)
        if found is None:
            found = output.last_hidden_state
        return found[:, -1:] if feed.last_only and found.ndim == 3 else found

    def _first_look(self, tokens: Tensor) -> tuple[list[AttentionSeen], list[nn.Module]]:
        seen: list[AttentionSeen] = []
        modules: list[nn.Module] = []

        def show(module: nn.Module, record: AttentionSeen) -> None:
            seen.append(record)
            modules.append(module)

        session = Session(show=show, layer=lambda: len(seen))
        with interface_in_place(self.model, session):
            try:
                self.run_plain(tokens)
            except (RuntimeError, TypeError, ValueError, AssertionError):
                # An architecture outside the interface may choke on our mask.
                if session.calls:
                    raise
        return seen, list(dict.fromkeys(modules))

    def _find_returned(self, tokens: Tensor) -> None:
        """Find the modules that return their weights, on the eager path if need be."""
        tries: list[str | None] = [None, "eager"]
        for implementation in tries:
            with ExitStack() as stack:
                if implementation is not None:
                    stack.enter_context(implementation_in_place(self.model, implementation))
                self.returned = find_pattern_modules(
                    self.model, lambda: self.run_plain(tokens), tokens.shape
                )
            if self.returned:
                self._implementation = implementation
                return
        raise ValueError(
            f"{self.description.architecture} neither calls transformers' attention interface nor "
            "returns attention weights, so its attention cannot be captured exactly"
        )

    def _complete_description(self, seen: Sequence[AttentionSeen], notes: list[str]) -> None:
        facts = self.description
        n_layers = self.layout.n_calls or len(self.blocks)
        n_seen = len(seen) or len(self.returned)
        if n_seen < n_layers:
            notes.append(
                f"{n_seen} of {n_layers} blocks have softmax attention; the others are not seen."
            )
        if n_seen > n_layers:
            raise ValueError(
                f"{facts.architecture} calls attention {n_seen} times in {n_layers} blocks, so a "
                "layer would not be one attention: it cannot be captured"
            )
        kinds = {record.causal or _is_causal_mask(record) for record in seen}
        kinds |= {pattern.causal for pattern in self.returned}
        heads = [pattern.n_heads for pattern in self.returned]
        self.description = replace(
            facts,
            n_layers=n_layers,
            n_heads=max(heads or [record.query.shape[1] for record in seen]),
            n_kv_heads=max(heads or [record.key.shape[1] for record in seen]),
            causal=kinds.pop() if len(kinds) == 1 else None,
            capture="pattern" if self.returned else "attention",
            notes=(*facts.notes, *notes),
        )


class _PositionTable:
    """A learned table of positions: how many there are, and whether it counts tokens itself."""

    def __init__(self, table: nn.Embedding, reserved: int, padded: bool) -> None:
        self.usable, self.padded = table.num_embeddings - reserved, padded


def _position_table(model: PreTrainedModel) -> _PositionTable | None:
    limit = _configured_positions(model)
    if limit is None:
        return None
    words = model.get_input_embeddings()
    for module in model.modules():
        if not isinstance(module, nn.Embedding) or module is words:
            continue
        if limit <= module.num_embeddings <= limit + 8:
            if module.padding_idx is not None:
                # RoBERTa counts positions from the padding token's id onwards.
                return _PositionTable(module, module.padding_idx + 1, padded=True)
            return _PositionTable(module, int(getattr(module, "offset", 0)), padded=False)
    return None


def _configured_positions(model: PreTrainedModel) -> int | None:
    config = model.config.get_text_config()
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"):
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return None


def _first_description(model: PreTrainedModel, name: str, digest: str | None) -> Description:
    config = model.config.get_text_config()
    table = _position_table(model)
    # T5's field of this name is the length of its training data, not a limit.
    relative = hasattr(config, "relative_attention_num_buckets")
    limit = None if relative else _configured_positions(model)
    embeddings = model.get_input_embeddings()
    vocabulary = getattr(embeddings, "num_embeddings", None) or getattr(config, "vocab_size", None)
    if vocabulary is None:
        raise ValueError(f"{name} takes no tokens, so there is nothing to observe it on")
    return Description(
        architecture=name,
        n_layers=0,
        n_heads=0,
        n_kv_heads=0,
        d_model=getattr(config, "hidden_size", None),
        d_vocab=int(vocabulary),
        max_positions=table.usable if table is not None else limit,
        # MPT builds its ALiBi for this length and no other.
        positions_fixed=table is not None or getattr(config, "model_type", "") == "mpt",
        dtype=str(model.dtype).removeprefix("torch."),
        n_parameters=sum(parameter.numel() for parameter in model.parameters()),
        digest=digest,
        bos_token=_token(config, "bos_token_id"),
        pad_token=_token(config, "pad_token_id"),
    )


def _token(config: Any, name: str) -> int | None:
    value = getattr(config, name, None)
    return value if isinstance(value, int) and value >= 0 else None


def _parameter_names(model: PreTrainedModel) -> set[str]:
    return set(inspect.signature(type(model).forward).parameters)


def _blocks(model: nn.Module, attention: Sequence[nn.Module]) -> list[nn.Module]:
    """The outermost module list that holds every attention module.

    Raises:
        ValueError: If there is none, or more than one.
    """
    names = {module: name for name, module in model.named_modules()}
    lists = {name for name, module in model.named_modules() if isinstance(module, nn.ModuleList)}
    holders = set()
    for module in attention:
        parts = names[module].split(".")
        prefixes = (".".join(parts[:end]) for end in range(1, len(parts)))
        holders.add(next((prefix for prefix in prefixes if prefix in lists), None))
    if len(holders) != 1 or None in holders:
        raise ValueError(
            f"the attention layers of {type(model).__name__} are not the blocks of one stack "
            f"(found {sorted(map(str, holders))}), so layers cannot be numbered"
        )
    return list(model.get_submodule(holders.pop()))  # type: ignore[arg-type]


def _is_causal_mask(record: AttentionSeen) -> bool:
    """Whether a record that says so by its mask alone lets no query see a later key."""
    if record.mask is None or record.mask.shape[-2] == 1:
        return False
    return not bool(record.mask.triu(1).any())
