"""Clustering: where the norm stands as the speed at which tokens draw together, in models."""
