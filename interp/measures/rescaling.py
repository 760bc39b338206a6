"""How much a norm multiplies what reaches it, against the same token standing alone."""

from jaxtyping import Float
from torch import Tensor

from .norms import one_a_row


def rescale_gain(
    scale_alone: Float[Tensor, "*row 1"], scale: Float[Tensor, "*row 1"]
) -> Float[Tensor, "*row"]:
    """``scale alone / scale here``, a ratio in ``(0, inf)``.

    ``scale`` is what a norm divides by at this length, ``scale_alone`` what it divides by when the
    same query token is the whole input (after the beginning-of-sequence token, if the task has
    one). Above 1 the norm gives back signal that dispersion took away: this project's measure of
    resharpening (theory section 1.1, "Norm resharpens"). NaN or inf where ``scale`` is zero.

    Raises:
        ValueError: If a last axis is not of size 1.
    """
    return one_a_row(scale_alone, "scale_alone") / one_a_row(scale, "scale")
