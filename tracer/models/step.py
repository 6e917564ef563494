"""Makes the input of Step-3.7's projector contiguous, which vLLM 0.32's linear kernel for CPUs needs.

vLLM imports this module in the process that holds the model, because the model's settings name
the class below as `worker_extension_cls`; importing it is what changes the projector's method.
The configuration does the rest: a softmax router (a sigmoid has no CPU kernel) and a
configuration class of its own (`remote/configuration_step.py`).
"""

from __future__ import annotations

from typing import Any

from vllm.model_executor.models.step3p7 import Step3p7ForConditionalGeneration


class ContiguousProjectorInput:
    """Adds nothing to the worker."""


_project = Step3p7ForConditionalGeneration._process_image_features


def _project_contiguous(self: Any, image_features: Any) -> Any:
    return _project(self, image_features.contiguous())


Step3p7ForConditionalGeneration._process_image_features = _project_contiguous
