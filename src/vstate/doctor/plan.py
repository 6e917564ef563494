"""`vstate doctor --config`: what a start with these arguments would hold, before any start.

Figures of the pools and groups are vLLM's own (its configuration, specs and scheduler, without weights);
what a request takes is `inventory/estimator`.
"""

from __future__ import annotations

from itertools import groupby

from pydantic import BaseModel

from vstate.doctor.child import ChildFailure, ask_child
from vstate.inventory.estimator import bound_blocks
from vstate.schemas.component import StateComponent
from vstate.schemas.errors import VstateError
from vstate.schemas.manifests import GroupManifest, ProcessManifest
from vstate.schemas.vocabulary import StateClass

PLAN_MODULE = "vstate.doctor.plan_run"
PLAN_SECONDS = 600.0
"""Time after which a plan is given up; it takes 15 to 40 seconds, depending on the model."""
PREFIX_WORDS = ("vllm", "serve")


class PlanRequest(BaseModel):
    """What the plan's process is asked.

    Attributes:
        arguments: Arguments of `vllm serve`.
        model: How the model was named.
        kv_cache_bytes: Memory of the pool where the arguments do not say; None to take vLLM's own rules.
    """

    arguments: list[str]
    model: str = ""
    kv_cache_bytes: int | None = None


class PlanAnswer(BaseModel):
    """What the plan's process found.

    Attributes:
        manifest: Pools, groups and settings as a run would write them.
        model: How the model was named.
        capacity_tokens: Tokens that vLLM says its cache holds.
        full_length_requests: Requests of `max_model_len` that vLLM says it holds at once.
        memory_bytes: Memory that the pool was sized from; 0 where its blocks were given.
        memory_source: Where that figure comes from.
        refusal: vLLM's own line with which it would refuse to start; empty where it would not.
        wrong_input: Why there is nothing to plan; empty where there is.
        replaced: Classes of vLLM in whose place another one is used.
    """

    manifest: ProcessManifest | None = None
    model: str = ""
    capacity_tokens: int | None = None
    full_length_requests: float | None = None
    memory_bytes: int = 0
    memory_source: str = ""
    refusal: str = ""
    wrong_input: str = ""
    replaced: tuple[str, ...] = ()


class PoolPlan(BaseModel):
    """A pool; one block of it is the null block and is nobody's."""

    pool: int
    num_blocks: int
    usable_blocks: int
    block_bytes: int
    total_bytes: int


class GroupPlan(BaseModel):
    """A group, and what a request takes of it at least and at most.

    Attributes:
        group: Index of the group.
        pool: Index of its pool.
        state_classes: What state it keeps, padding left out.
        layers: Number of its layers.
        block_tokens: Tokens of one of its blocks.
        one_token_blocks: Blocks of a request of one token.
        full_length_blocks: Most blocks of a request of `max_model_len`.
    """

    group: int
    pool: int
    state_classes: tuple[str, ...]
    layers: int
    block_tokens: int
    one_token_blocks: int
    full_length_blocks: int


class RequestPlan(BaseModel):
    """What a request takes of all pools together."""

    tokens: int
    blocks: int
    bytes: int


class Plan(BaseModel):
    """A start that was not made; of several data-parallel ranks, any one.

    Attributes:
        model: How the model was named.
        assumed: What the figures rest on that was not given.
        pools: Block pools.
        groups: KV-cache groups.
        capacity_tokens: Tokens that vLLM says its cache holds; None where it says nothing.
        full_length_requests: Requests of `max_model_len` that vLLM says it holds at once.
        minimum_request: A request of one token.
        full_length_request: A request of `max_model_len`, at most.
        max_num_seqs: Requests that the arguments let run at once.
        max_sequences: Requests whose state fits at once, of one token each.
        refusal: vLLM's own line with which it would refuse to start; empty where it would not.
        verdict: One line.
        fits: Whether vLLM starts and `max_num_seqs` requests fit.
    """

    model: str
    assumed: tuple[str, ...]
    pools: tuple[PoolPlan, ...] = ()
    groups: tuple[GroupPlan, ...] = ()
    capacity_tokens: int | None = None
    full_length_requests: float | None = None
    minimum_request: RequestPlan | None = None
    full_length_request: RequestPlan | None = None
    max_num_seqs: int = 0
    max_sequences: int = 0
    refusal: str = ""
    verdict: str
    fits: bool


def make_plan(arguments: list[str], kv_cache_bytes: int | None) -> Plan:
    """Plan a start with the arguments of `vllm serve`.

    Raises:
        VstateError: An argument is wrong, the model is unknown, or vLLM crashed.
    """
    for word in PREFIX_WORDS:
        arguments = arguments[1:] if arguments[:1] == [word] else arguments
    if not arguments:
        raise VstateError("give the arguments of vllm serve after --, as in: vstate doctor --config -- MODEL")
    model = next((argument for argument in arguments if not argument.startswith("-")), "")
    request = PlanRequest(arguments=arguments, model=model, kv_cache_bytes=kv_cache_bytes)
    try:
        answer = ask_child(PLAN_MODULE, request, PlanAnswer, {}, PLAN_SECONDS)
    except ChildFailure as failure:
        raise VstateError(f"vLLM could not be asked: {failure}") from failure
    if answer.wrong_input:
        raise VstateError(answer.wrong_input)
    return planned(answer)


def planned(answer: PlanAnswer) -> Plan:
    """Work out what a request takes, and whether `max_num_seqs` of them fit."""
    size = f"{answer.memory_bytes:,} bytes, " if answer.memory_bytes else ""
    assumed = (f"size of the pool: {size}{answer.memory_source}",) if answer.memory_source else ()
    if answer.manifest is None:
        verdict = f"vLLM refuses to start: {answer.refusal}"
        return Plan(model=answer.model, assumed=assumed, refusal=answer.refusal, verdict=verdict, fits=False)
    manifest = answer.manifest
    groups = tuple(_group_plan(group, manifest) for group in manifest.groups)
    pools = tuple(
        PoolPlan(
            pool=pool.pool,
            num_blocks=pool.num_blocks,
            usable_blocks=pool.num_blocks - 1,
            block_bytes=pool.block_bytes,
            total_bytes=pool.total_bytes,
        )
        for pool in manifest.pools
    )
    most = min((_most_sequences(pool, groups) for pool in pools), default=0)
    wanted, length = manifest.settings.max_num_seqs, manifest.settings.max_model_len_tokens
    verdict = f"max_num_seqs {wanted} fits: at most {most} sequences"
    if most < wanted:
        verdict = _too_many(wanted, most, pools, groups)
    if answer.refusal:
        verdict += f"; vLLM refuses to start after it has loaded the weights: {answer.refusal}"
    return Plan(
        model=answer.model,
        assumed=assumed,
        pools=pools,
        groups=groups,
        capacity_tokens=answer.capacity_tokens,
        full_length_requests=answer.full_length_requests,
        minimum_request=_request_plan(1, [group.one_token_blocks for group in groups], groups, pools),
        full_length_request=_request_plan(length, [group.full_length_blocks for group in groups], groups, pools),
        max_num_seqs=wanted,
        max_sequences=most,
        refusal=answer.refusal,
        verdict=verdict,
        fits=most >= wanted and not answer.refusal,
    )


def _group_plan(group: GroupManifest, manifest: ProcessManifest) -> GroupPlan:
    settings = manifest.settings
    return GroupPlan(
        group=group.group,
        pool=group.pool,
        state_classes=_classes(group.components),
        layers=len(group.layers),
        block_tokens=group.block_tokens,
        one_token_blocks=bound_blocks(group, settings, 1, 1),
        # The longest prompt that still has a decode step.
        full_length_blocks=bound_blocks(group, settings, max(1, settings.max_model_len_tokens - 2), 2),
    )


def _classes(components: tuple[StateComponent, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(c.state_class.value for c in components if c.state_class is not StateClass.PADDING))


def _request_plan(
    tokens: int, blocks: list[int], groups: tuple[GroupPlan, ...], pools: tuple[PoolPlan, ...]
) -> RequestPlan:
    block_bytes = {pool.pool: pool.block_bytes for pool in pools}
    charged = sum(count * block_bytes[group.pool] for count, group in zip(blocks, groups, strict=True))
    return RequestPlan(tokens=tokens, blocks=sum(blocks), bytes=charged)


def _most_sequences(pool: PoolPlan, groups: tuple[GroupPlan, ...]) -> int:
    each = sum(group.one_token_blocks for group in groups if group.pool == pool.pool)
    return pool.usable_blocks // each if each else 0


def _too_many(wanted: int, most: int, pools: tuple[PoolPlan, ...], groups: tuple[GroupPlan, ...]) -> str:
    """Say how many blocks so many sequences need in each group of the pool that has too few."""
    short = next(pool for pool in pools if _most_sequences(pool, groups) == most)
    members = [group for group in groups if group.pool == short.pool]
    needs = []
    for (classes, each), alike in groupby(members, key=lambda group: (group.state_classes, group.one_token_blocks)):
        numbers = [group.group for group in alike]
        where = f"group {numbers[0]}" if len(numbers) == 1 else f"groups {numbers[0]} to {numbers[-1]}"
        needs.append(f"{wanted * each * len(numbers)} blocks in {where} ({', '.join(classes)})")
    return (
        f"max_num_seqs {wanted} needs {' and '.join(needs)}, the pool has {short.usable_blocks}: "
        f"at most {most} sequences"
    )
