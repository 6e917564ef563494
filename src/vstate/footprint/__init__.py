"""What a model would hold in an engine that was never started, and what one request takes of it."""
