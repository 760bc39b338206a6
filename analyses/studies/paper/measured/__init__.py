"""Set-complement models, trained, dissected and intervened on: what the claims read."""
