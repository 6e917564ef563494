"""The published files themselves, where VSTATE_PUBLIC_TRACES names a folder of them; they are not in the repository."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from vstate.schemas.workload import iter_workload, scan_workload
from vstate.tracer.workloads.importers import FORMATS
from vstate.tracer.workloads.importers.rows import ImportOptions, Tally
from vstate.tracer.workloads.summary import summarize
from vstate.tracer.workloads.writing import write_workload

FOLDER = os.environ.get("VSTATE_PUBLIC_TRACES")
pytestmark = pytest.mark.skipif(FOLDER is None, reason="VSTATE_PUBLIC_TRACES names no folder of published traces")


def imported(tmp_path, name, file, **options):
    path = tmp_path / "workload.jsonl"
    tally = Tally()
    write_workload(path, [], FORMATS[name].read(Path(FOLDER) / file, ImportOptions(**options), tally))
    return summarize(path, 128), tally


def counted_dispersion(file):
    """Variance over mean of the arrivals in whole windows of 10 s, of the column itself."""
    with gzip.open(Path(FOLDER) / file, "rt") as lines:
        moments = np.loadtxt(lines, delimiter=",", skiprows=1, usecols=0)
    edges = np.arange(moments.min(), moments.max(), 10.0)
    counts = np.histogram(moments[moments < edges[-1]], edges)[0]
    return counts.var() / counts.mean()


def test_azure_conversations(tmp_path):
    found, _ = imported(tmp_path, "azure", "azure2023_conv.csv.gz")
    assert found.requests == 19_366
    assert (found.input_tokens.p50, found.input_tokens.max, round(found.input_tokens.mean)) == (1020, 14_050, 1155)
    assert found.span_s == pytest.approx(3501.7, abs=0.1)
    assert found.mean_rate == pytest.approx(5.53, abs=0.005)
    assert found.dispersion == pytest.approx(counted_dispersion("azure2023_conv.csv.gz"))
    assert found.reusable_share == 0


def test_azure_code(tmp_path):
    found, _ = imported(tmp_path, "azure", "azure2023_code.csv.gz")
    assert (found.requests, found.output_tokens.max) == (8_819, 1_899)
    assert found.dispersion == pytest.approx(counted_dispersion("azure2023_code.csv.gz"))


def test_mooncake_conversations(tmp_path):
    found, _ = imported(tmp_path, "mooncake", "mooncake_conversation.jsonl.gz")
    assert found.requests == 12_031
    assert found.reusable_share == pytest.approx(0.374, abs=0.0005)
    assert found.dispersion == pytest.approx(2.1, abs=0.05)
    tokens = found.input_tokens
    assert [tokens.p50, tokens.p95, tokens.p99, tokens.max] == pytest.approx([6909, 39_550, 85_400, 126_195], rel=1e-4)
    assert (found.output_tokens.p50, found.closed_loop_share) == (350, 0)
    assert scan_workload(tmp_path / "workload.jsonl").in_order_of_time


def test_claude_code_sessions(tmp_path):
    found, tally = imported(tmp_path, "claude-code", "claude_code_sessions_le128k.jsonl.gz", users=16)
    assert found.requests == 9_681
    assert tally.without_output == 7
    assert found.reusable_share == pytest.approx(0.957, abs=0.0005)
    assert found.closed_loop_share == (9_681 - 16) / 9_681
    assert len({line.id.rpartition("/")[0] for line in iter_workload(tmp_path / "workload.jsonl")}) == 250


def test_lengths_of_papers(tmp_path):
    found, _ = imported(tmp_path, "lengths", "arxiv_summarization_lengths.csv.gz", rate=2.0)
    assert (found.requests, found.input_tokens.p50, found.output_tokens.max) == (20_000, 2720, 4056)
    assert found.mean_rate == pytest.approx(2.0, rel=0.05)
    assert found.dispersion == pytest.approx(1.0, abs=0.2)
