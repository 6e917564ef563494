"""Variations of each family that vLLM can build: what Hypothesis draws, one module per family."""
