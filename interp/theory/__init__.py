"""What theory predicts for an attention row, a norm and the set-complement model.

NumPy float64 only. A function whose name begins with `predict_` gives a value; one that ends in
`_bound`, `_bounds`, `_limit`, `_rate` or `_threshold` gives a side, an asymptote or a level; one
that ends in `_curve` or `_curves` gives `Curve`s ready to lay over the table.

| file | its laws |
| --- | --- |
| `displacement` | the two-body identity, the structured solution, the least width |
| `error` | from displacements to total variation, illegal mass and KL, and back |
| `rescaling` | closed forms of the scale and the gap for each norm placement |
| `short_scales` | the scale at every length from those at lengths 1 and 2 |
| `dispersion` | weights and entropy from the spread or the deviation of the scores |
| `norms` | norm and variance of the attention output |
| `gap_counting` | how far measured scores are from sharp: accumulation scale, temperature |
| `gaussian_rows` | maximum, spread and sharpening of n Gaussian scores, at finite n |
| `scalable_softmax` | inverse temperatures that grow with n, and a needle's weight under each |
| `needle` | a needle's signal under every remedy, with and without a norm |
| `sparse` | alpha-entmax: threshold, support, needle |
| `sigmoid` | total mass of sigmoid, softmax-plus-one and differential rows |
| `phases` | equiangular tokens: critical inverse temperature, cosine, gradient |
| `speed_schemes` | the norm's place as a speed factor; first and last rates of clustering |
| `cosine_dynamics` | equiangular tokens in time: cosine and radius under each placement |
| `clustering` | tokens as particles that attention draws together, any query, key, value |
| `hardmax_dynamics` | tokens that follow their best key: leaders, norms |
| `label_noise`, `averaging` | noise of sampled labels, and what an average leaves of it |
| `influence`, `sampling` | what one token, and what n sampled tokens, do to an output |
| `limits_of_normalisation` | weights and slopes of any bounded normaliser |
| `length_curves`, `key_curves`, `remedy_curves`, `score_curves`, `limit_curves` | as `Curve`s |
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
