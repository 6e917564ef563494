"""One file per family of models that take media: the weights of its encoder, and what its items become."""
