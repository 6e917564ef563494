"""vstate: telemetry and trace reconciliation for the request state that vLLM keeps.

Importing this package imports none of its parts and no engine; take what you need from
`vstate.schemas`, `vstate.inventory`, `vstate.tracer`, `vstate.admission`, `vstate.reconcile` or
`vstate.dashboards`.
"""

__version__ = "0.1.0"
