"""Encoders worked out from a configuration."""

from importlib import import_module

from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.adapters.registry import Context, model_dtype
from vstate.inventory.profiles import find_profile
from vstate.inventory.serving import ServingSettings

MODULES = ("qwen", "lfm", "gemma", "step", "nemotron", "mimo")


def encoder_of(model, config, settings):
    """Return the encoder of a model whose name says the family."""
    family = next(name for name in MODULES if name in model)
    module = import_module(f"vstate.inventory.adapters.media.{family}")
    if not isinstance(settings, ServingSettings):
        settings = ServingSettings.model_validate(settings)
    context = Context(settings, find_profile("cpu"), model_dtype(config, settings))
    return module.encoder(ConfigReader(config, config["architectures"][0]), context)


def weight_parts_of(encoder):
    """Return the bytes of an encoder's parts by name."""
    return {weights.part: weights.bytes for weights in encoder.weights}
