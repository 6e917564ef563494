"""What a real model answered, for the engine without one: with the same tokens and drafts it must do the same.

Both functions are called by a `sitecustomize` in the engine's process. Requests are known by their external ids: vLLM
gives internal ones a random end.
"""

import json
import os
from collections import defaultdict, deque
from pathlib import Path

FILE = "ANSWERS"
"""Name of the environment variable with the file's path."""
SUFFIX = 9
"""Characters that vLLM appends to an external id (`InputProcessor.assign_request_id`)."""


def record():
    """Keep what the worker of a real forward answers, and write it when the engine ends."""
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    tokens, drafts = defaultdict(list), []

    def keep(output):
        for request_id, sampled in zip(output.req_ids, output.sampled_token_ids, strict=True) if output else ():
            if sampled:
                tokens[request_id[:-SUFFIX]].append([int(token) for token in sampled])

    def keeping(name):
        made = getattr(UniProcExecutor, name)

        def kept(self, *arguments, **options):
            answer = made(self, *arguments, **options)
            keep(answer.result() if hasattr(answer, "result") else answer)
            return answer

        setattr(UniProcExecutor, name, kept)

    keeping("execute_model")
    keeping("sample_tokens")
    take, shutdown = UniProcExecutor.take_draft_token_ids, UniProcExecutor.shutdown

    def taken(self):
        found = take(self)
        by_id = zip(found.req_ids, found.draft_token_ids, strict=True) if found else ()
        drafts.append({name[:-SUFFIX]: [int(token) for token in draft] for name, draft in by_id})
        return found

    def written(self):
        Path(os.environ[FILE]).write_text(json.dumps({"tokens": tokens, "drafts": drafts}))
        shutdown(self)

    UniProcExecutor.take_draft_token_ids, UniProcExecutor.shutdown = taken, written


def replay():
    """Let the worker without a model answer what was recorded."""
    from vllm.v1.outputs import DraftTokenIds

    from vstate.tracer.engines.scheduler_worker import SchedulerWorker

    answers = json.loads(Path(os.environ[FILE]).read_text())
    tokens = {name: deque(found) for name, found in answers["tokens"].items()}
    drafts = deque(answers["drafts"])
    sample = SchedulerWorker._sample

    def replayed(self, step, request_ids, *arguments):
        made = sample(self, step, request_ids, *arguments)
        return [tokens[name].popleft() if own else [] for name, own in zip(request_ids, made, strict=True)]

    def taken(self):
        found = drafts.popleft()
        return DraftTokenIds(list(found), list(found.values()))

    SchedulerWorker._sample, SchedulerWorker.take_draft_token_ids = replayed, taken
