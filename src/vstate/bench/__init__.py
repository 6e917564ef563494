"""Benchmarks of vstate itself."""
