"""Workloads that come with vstate, and the tokens of any workload."""
