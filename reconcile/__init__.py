"""Jobs over recorded runs: load the streams, replay the pool, judge estimates, apply the rules.

Nothing in here imports vLLM or torch. The entry point is `vstate.reconcile.job.reconcile_run`.
"""

if __name__ != "vstate.reconcile":
    raise ImportError("import vstate.reconcile: the folder reconcile/ is not a package of its own")
