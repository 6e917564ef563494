"""One file per family of models: which state its layers keep, its weights, how its media expand."""
