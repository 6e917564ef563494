"""A short convolution replayed by every minor, whatever the CPU.

On a CPU with AVX-512 BF16, some minors pack the weights of each convolution for a kernel that short
convolutions do not use, and do not start (width 3) or fail in the first step (width 4).
"""

import pytest

from support.runs import make_run

pytestmark = pytest.mark.engine

WITHOUT_PACKING = "import torch\ntorch.cpu._is_avx512_bf16_supported = lambda: False\n"


def test_a_short_convolution_is_replayed_where_weights_are_not_packed(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_PACKING)
    run = make_run(tmp_path / "run", "--model", "tiny/lfm2-moe", PYTHONPATH=str(tmp_path))
    assert run.summary["verdict"] == "clean"
    assert run.summary["dropped"] == 0
    assert run.summary["steps"] > 50
    classes = {component.state_class.value for group in run.process.groups for component in group.components}
    assert "conv" in classes
    assert all(estimate["undercount_requests"] == 0 for estimate in run.estimates("vstate", "life"))
