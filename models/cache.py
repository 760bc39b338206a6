"""ActivationCache for every norm placement: each decomposition is right here, or refused.

TransformerLens's helpers assume pre-norm. With a norm on a sub-layer's output, a head's result is
rescaled before it reaches the stream; with a norm on the stream itself there is no sum to speak of.
"""

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens import ActivationCache
from transformer_lens.utilities.slice import Slice

from .facts import brief, facts_table
from .placements import PLACEMENTS

if TYPE_CHECKING:
    from .transformer import Transformer


class TransformerCache(ActivationCache):
    """The activations of one run of a :class:`~resharpen.models.Transformer`.

    What holds, by placement (``x_L`` is the last stream, before any final norm):

    ==================================  ==================  ==================  ==============
    method                              none, pre,          res_post, peri,     post, mix,
                                        ln_scaling          attn_out, sandwich  deepnorm, ngpt
    ==================================  ==================  ==================  ==============
    ``accumulated_resid``               streams             streams             streams
    ``decompose_resid``                 sums to ``x_L``     sums to ``x_L``     refused
    ``stack_head_results``              sums with ``b_O``   each head's result  refused
                                        to ``attn_out``     through the output
                                                            norm's scale
    ``apply_ln_to_stack``               the target's input norm, or nothing where it has none
    ``logit_attrs``                     sums to the logits less constant biases
    ``stack_neuron_results``,           as TransformerLens  refused             refused
    ``get_neuron_results``,
    ``get_full_resid_decomposition``
    ==================================  ==================  ==================  ==============
    """

    model: "Transformer"

    def _repr_html_(self) -> str:
        """Every activation with its shape, as a table for a notebook."""
        return facts_table("activations", [(name, brief(self[name])) for name in self])

    def decompose_resid(self, layer: int | None = None, *args: Any, **kwargs: Any) -> Any:
        """Contributions whose sum is the stream at ``layer``; refused for post-norm.

        See ``ActivationCache.decompose_resid``.

        Raises:
            NotImplementedError: For placement ``post`` past the embedding: every block normalises
                the sum, so later streams are not a sum of earlier contributions.
        """
        if layer != 0:
            self._refuse_stream_norm("decompose_resid")
        return super().decompose_resid(layer, *args, **kwargs)

    def stack_head_results(
        self,
        layer: int = -1,
        return_labels: bool = False,
        incl_remainder: bool = False,
        pos_slice: Any = None,
        apply_ln: bool = False,
    ) -> Any:
        """What each head adds to the stream, ``[head of every layer, batch, pos, d_model]``.

        Where a norm stands on the attention output, each head's result is centred (LayerNorm),
        divided by the norm's scale and multiplied by its gain, so that the heads of a layer plus
        the norm's bias (and the rescaled ``b_O``) sum to ``hook_attn_out``.

        Raises:
            NotImplementedError: For placement ``post``.
        """
        self._refuse_stream_norm("stack_head_results")
        if not PLACEMENTS[self.model.cfg.norm_placement].after:
            return super().stack_head_results(
                layer, return_labels, incl_remainder, pos_slice, apply_ln
            )
        n_layers, n_heads = self.model.cfg.n_layers, self.model.cfg.n_heads
        layer = n_layers if layer in (None, -1) else layer
        cut = _as_slice(pos_slice)
        results, labels = super().stack_head_results(
            layer, return_labels=True, incl_remainder=False, pos_slice=cut, apply_ln=False
        )
        for index in range(layer):
            heads = slice(index * n_heads, (index + 1) * n_heads)
            norm = self.model.blocks[index].ln1_post
            assert norm is not None
            scale = cut.apply(self[f"blocks.{index}.ln1_post.hook_scale"], dim=-2)
            rows = results[heads]
            if norm.centred:
                rows = rows - rows.mean(-1, keepdim=True)
            gain = 1.0 if norm.w is None else norm.w
            results[heads] = rows / scale * gain
        if incl_remainder:
            stream = cut.apply(self[("resid_post", layer - 1)], dim=-2)
            results = torch.cat([results, (stream - results.sum(0))[None]])
            labels = [*labels, "remainder"]
        if apply_ln:
            results = self.apply_ln_to_stack(results, layer, pos_slice=cut)
        return (results, labels) if return_labels else results

    def apply_ln_to_stack(
        self,
        residual_stack: Float[Tensor, "component *batch_and_pos d_model"],
        layer: int | None = None,
        mlp_input: bool = False,
        pos_slice: Any = None,
        batch_slice: Any = None,
        has_batch_dim: bool = True,
        recompute_ln: bool = False,
    ) -> Float[Tensor, "component *batch_and_pos d_model"]:
        """Scale components as the norm on the input of ``layer`` does, gain not included.

        ``layer = n_layers`` (or ``None``, ``-1``) means the unembedding. Where nothing normalises
        that input (no ``ln1``/``ln2``, no final norm), the stack comes back as it was, since that
        is what the layer reads.
        """
        n_layers = self.model.cfg.n_layers
        layer = n_layers if layer in (None, -1) else layer
        factor = 1.0
        if layer == n_layers:
            has_norm = self.model.cfg.final_norm
        else:
            places = self.model.blocks[layer].places
            has_norm, factor = places.before, places.input_factor
        if has_norm:
            return factor * super().apply_ln_to_stack(
                residual_stack,
                layer,
                mlp_input=mlp_input,
                pos_slice=pos_slice,
                batch_slice=batch_slice,
                has_batch_dim=has_batch_dim,
                recompute_ln=recompute_ln,
            )
        if not has_batch_dim:
            return residual_stack
        return _as_slice(batch_slice).apply(residual_stack, dim=1)

    def get_neuron_results(self, layer: int, *args: Any, **kwargs: Any) -> Any:
        """As TransformerLens; refused where a norm stands between the MLP and the stream.

        Raises:
            NotImplementedError: For placements ``post``, ``res_post`` and ``peri``.
        """
        self._refuse_output_norm("get_neuron_results")
        return super().get_neuron_results(layer, *args, **kwargs)

    def stack_neuron_results(self, layer: int, *args: Any, **kwargs: Any) -> Any:
        """As TransformerLens; refused where a norm stands between the MLP and the stream.

        Raises:
            NotImplementedError: For placements ``post``, ``res_post`` and ``peri``.
        """
        self._refuse_output_norm("stack_neuron_results")
        return super().stack_neuron_results(layer, *args, **kwargs)

    def get_full_resid_decomposition(self, *args: Any, **kwargs: Any) -> Any:
        """As TransformerLens; refused where a norm stands between a sub-layer and the stream.

        Raises:
            NotImplementedError: For placements ``post``, ``res_post`` and ``peri``; use
                ``decompose_resid`` and ``stack_head_results`` for the latter two.
        """
        self._refuse_output_norm("get_full_resid_decomposition")
        return super().get_full_resid_decomposition(*args, **kwargs)

    def _refuse_stream_norm(self, method: str) -> None:
        if PLACEMENTS[self.model.cfg.norm_placement].stream:
            raise NotImplementedError(
                f"{method} is not defined for norm_placement={self.model.cfg.norm_placement!r}: a "
                "norm acts on the sum of stream and contribution, so the stream is not a sum of "
                "contributions; read hook_attn_out and ln1_resid.hook_scale, or use "
                "accumulated_resid"
            )

    def _refuse_output_norm(self, method: str) -> None:
        self._refuse_stream_norm(method)
        if PLACEMENTS[self.model.cfg.norm_placement].after:
            raise NotImplementedError(
                f"{method} is not defined for norm_placement={self.model.cfg.norm_placement!r}: a "
                "norm rescales each sub-layer's output before it is added; use decompose_resid and "
                "stack_head_results, which account for it"
            )


def _as_slice(value: Any) -> Slice:
    return value if isinstance(value, Slice) else Slice(value)
