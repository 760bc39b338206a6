"""Which remedy cures which kind of dispersion: remedies x placements x tasks, one map."""
