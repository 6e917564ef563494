"""Configuration classes that vLLM loads from a model's folder with ``trust_remote_code``."""
