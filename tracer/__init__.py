"""Instrumentation inside vLLM, and the engines, models and workloads of `vstate trace run`."""

if __name__ != "vstate.tracer":
    raise ImportError("import vstate.tracer: the folder tracer/ is not a package of its own")
