"""Plans several starts in one process, and tries some of them: as many one-token requests as may run at once.

usage: python planned.py CASES, a JSON object of {name: {"arguments": [...], "kv_cache_bytes": null, "tried": false}}.
Prints {name: {"answer": PlanAnswer, "running": how many of them vLLM's own scheduler ran}}.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from vstate.doctor.plan import PlanRequest
from vstate.doctor.plan_run import engine_config, engine_core, plan


def most_running(request: PlanRequest) -> int:
    """Requests of one token that the scheduler has running after its first steps."""
    from vllm import SamplingParams
    from vllm.v1.request import Request

    with tempfile.TemporaryDirectory() as scratch:
        config = engine_config(request, Path(scratch))
        core = engine_core(config)
        for number in range(config.scheduler_config.max_num_seqs):
            core.scheduler.add_request(
                Request(
                    request_id=f"r{number}",
                    prompt_token_ids=[number % 100],
                    sampling_params=SamplingParams(max_tokens=4, ignore_eos=True),
                    pooling_params=None,
                    block_hasher=core.request_block_hasher,
                )
            )
        core.scheduler.schedule()
        return len(core.scheduler.running)


def main() -> None:
    cases = json.loads(sys.argv[1])
    os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_ENABLE_V1_MULTIPROCESSING="0")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    found = {}
    for name, case in cases.items():
        request = PlanRequest(arguments=case["arguments"], kv_cache_bytes=case.get("kv_cache_bytes"))
        found[name] = {"answer": plan(request).model_dump(mode="json")}
        if case.get("tried"):
            found[name]["running"] = most_running(request)
    answers.write(json.dumps(found))
    answers.close()
    os._exit(0)


if __name__ == "__main__":
    main()
