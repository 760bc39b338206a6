"""Random hyper-parameter search over a declared space: draw, run, compare, rerun the best.

One idea a module: `distributions` and `known_fields` say what a space can hold, `space` reads it,
`drawing` draws trial i from (seed, i) alone, `planning` makes trials of the draws, `running` runs
them so that none is run twice, `tabulating` puts them into one table, `effects` compares, `study`
does all of it in order.
"""
