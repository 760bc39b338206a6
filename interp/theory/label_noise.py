"""Noise that sampling the label puts on the logits' gradient, for a number of legal tokens.

The cross entropy of a softmax has the gradient ``p - e_y`` at the logits. With ``y`` drawn from the
exact distribution ``t`` in place of ``t`` itself it has the mean ``p - t`` and the variance

    E |e_y - t|^2 = Σ_i t_i |e_i - t|^2 = 1 - Σ_i t_i^2

whatever the model says: ``1 - 1/L`` for ``L`` equally likely tokens. It saturates: from 8 legal
tokens to 64 it grows by an eighth. Derived here (theory 1 for the task).
"""

from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import check_real, check_whole
from .curve import Curve, Place


def predict_label_noise(legal: ArrayLike) -> NDArray[np.float64]:
    """``1 - 1/L``: variance of the logits' gradient from the label, for ``L`` legal tokens.

    Args:
        legal: ``L``, the number of equally likely next tokens, or ``1 / Σ t^2`` of any target;
            1 or more.

    Returns:
        1 (logit-gradient units squared), in ``[0, 1)``, the shape of ``legal``.

    Raises:
        TypeError: If ``legal`` is not made of real numbers.
        ValueError: If it is less than 1 or not finite.

    Source: derived here.
    """
    return 1 - 1 / check_real("legal", legal, 1.0)


def label_noise_curve(lengths: ArrayLike, vocabulary: int, **place: Unpack[Place]) -> Curve:
    """`predict_label_noise` over the length of set complement, whose legal tokens are ``v - s``.

    Args:
        lengths: ``s``, whole numbers in ``1..v-1``, increasing.
        vocabulary: ``v``.
        **place: Which rows of the table it speaks about.

    Raises:
        TypeError, ValueError: If a length is not a whole number from 1 to ``v - 1``.
    """
    x = check_whole("lengths", lengths)
    if (x >= vocabulary).any():
        raise ValueError(f"lengths must be less than the vocabulary, {vocabulary}; got {x.max():g}")
    return Curve(
        name="1 - 1/(v - s)",
        quantity="logit_label_noise",
        unit="1",
        x=x,
        values=predict_label_noise(vocabulary - x),
        kind="exact",
        hypotheses=("the label is drawn uniformly from the v - s tokens that were not seen",),
        source="derived here (1 - sum t^2; theory 1 for the task)",
        domain=(1.0, vocabulary - 1.0),
        **place,
    )
