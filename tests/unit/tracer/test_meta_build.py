"""How vLLM's functions are replaced and put back, shown on classes and modules of our own."""

import types

import pytest

from vstate.schemas.errors import VstateError
from vstate.tracer.models import meta_build


class Platform:
    @classmethod
    def backend(cls, asked):
        return f"{cls.__name__} {asked}"

    def plain(self):
        return "plain"


class Child(Platform):
    pass


def louder(original):
    return lambda *arguments: original(*arguments).upper()


def test_a_class_method_is_one_while_it_is_replaced_and_after():
    before = dict(vars(Platform))
    with meta_build._replaced(Platform, "backend", louder):
        assert Platform.backend("x") == "PLATFORM X"
        assert Child.backend("x") == "CHILD X"
    assert dict(vars(Platform)) == before


@pytest.mark.parametrize("owner", [Platform, types.SimpleNamespace(plain=lambda _: "plain")])
def test_a_failure_inside_puts_the_function_back(owner):
    before = owner.plain
    with pytest.raises(RuntimeError), meta_build._replaced(owner, "plain", louder):
        assert owner.plain is not before
        raise RuntimeError
    assert owner.plain is before


@pytest.mark.parametrize("owner", [Child, types.ModuleType("vllm.somewhere")])
def test_what_is_absent_or_inherited_is_told(owner):
    with pytest.raises(VstateError, match=f"{owner.__name__}.backend.*install vLLM 0.32") as error:
        with meta_build._replaced(owner, "backend", louder):
            pass
    assert "\n" not in str(error.value)


class Experts:
    def __init__(self, gate, error):
        self.is_act_and_mul = gate
        self.error = error

    def __post_init__(self):
        raise self.error


REFUSAL = NotImplementedError("is_act_and_mul=False is supported only for CUDA")


def test_experts_without_a_gate_are_accepted():
    meta_build._without_gate(Experts.__post_init__)(Experts(False, REFUSAL))


@pytest.mark.parametrize(
    ("gate", "error"), [(True, REFUSAL), (False, NotImplementedError("tiles")), (False, ValueError("is_act_and_mul"))]
)
def test_another_refusal_stands(gate, error):
    with pytest.raises(type(error), match=str(error)):
        meta_build._without_gate(Experts.__post_init__)(Experts(gate, error))


def engine_config(**text):
    return types.SimpleNamespace(
        model_config=types.SimpleNamespace(hf_text_config=types.SimpleNamespace(**text)),
        cache_config=types.SimpleNamespace(block_size=16, enable_prefix_caching=False),
        scheduler_config=types.SimpleNamespace(enable_chunked_prefill=False, max_num_batched_tokens=163840),
    )


ARGUMENTS = {"enable_prefix_caching": True, "max_num_batched_tokens": 8192}


def test_sparse_latent_attention_gets_its_settings_back():
    config = engine_config(index_topk=2048)
    meta_build.restore_latent_settings(config, ARGUMENTS)
    assert vars(config.cache_config) == {"block_size": 64, "enable_prefix_caching": True}
    assert vars(config.scheduler_config) == {"enable_chunked_prefill": True, "max_num_batched_tokens": 8192}
    meta_build.restore_latent_settings(config, ARGUMENTS | {"block_size": 128, "enable_prefix_caching": False})
    assert vars(config.cache_config) == {"block_size": 128, "enable_prefix_caching": False}


def test_what_is_not_given_is_the_engine_s_default():
    config = engine_config(index_topk=2048)
    meta_build.restore_latent_settings(config, {})
    assert config.cache_config.enable_prefix_caching is True
    assert config.scheduler_config.max_num_batched_tokens == 163840


def test_other_models_keep_what_the_platform_chose():
    config, untouched = engine_config(), engine_config()
    meta_build.restore_latent_settings(config, ARGUMENTS)
    assert config == untouched
