"""What `vstate doctor` finds out: whether vLLM fits, whether its books are recorded, what a start would hold."""
