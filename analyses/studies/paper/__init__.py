"""The claims of arXiv 2510.08341, one by one: what was run for each, and whether it holds."""
