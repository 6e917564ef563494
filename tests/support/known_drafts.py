"""Drafters for vLLM's `custom_class` method: drafts that are often right, and now and then wrong.

With random weights no draft head is ever right, and a draft that is never accepted moves no state.
"""

KNOWN = []
"""Token ids of whole sequences, prompt and output: what `KnownDrafts` continues a request with."""
WRONG_EVERY = 5


class KnownDrafts:
    """Continues a request as a known sequence does; one position in five gets another token.

    It drafts nothing or a whole draft: vLLM 0.32's convolution on a CPU fails on a draft that is shorter than what
    the step before accepted (`_spec_forward` in `gdn_attention.py`).
    """

    drafted = 0

    def __init__(self, vllm_config):
        self.tokens = vllm_config.speculative_config.num_speculative_tokens
        self.vocabulary = vllm_config.model_config.get_vocab_size()

    def continuation(self, context):
        found = next((sequence for sequence in KNOWN if sequence[: len(context)] == context), context)
        return [*found[len(context) :], *[0] * self.tokens] if KNOWN else []

    def propose(self, sampled_token_ids, num_tokens_no_spec, token_ids_cpu, **_):
        drafts = []
        for row, sampled in enumerate(sampled_token_ids):
            length = int(num_tokens_no_spec[row])
            right = self.continuation(token_ids_cpu[row, :length].tolist()) if sampled else []
            drafts.append(
                [
                    (token + (place % WRONG_EVERY == 0)) % self.vocabulary
                    for place, token in enumerate(right[: self.tokens], length)
                ]
            )
        KnownDrafts.drafted += sum(map(len, drafts))
        return drafts

    def load_model(self, *_, **__):
        """There is none."""


class RepeatedDrafts(KnownDrafts):
    """Guesses that the last token comes again: with vLLM's small random weights it does."""

    def continuation(self, context):
        return context[-1:] * self.tokens
