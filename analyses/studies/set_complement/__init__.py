"""Set complement: dispersion and resharpening, with the theorem's curves over the measured ones."""
