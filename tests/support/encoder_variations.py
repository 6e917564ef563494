"""Cases of live_shapes in which encoders are drawn: layers, heads, widths, parts that may be left out, ranks."""

from hypothesis import strategies as st


def few(*values):
    return st.sampled_from(values)


RANKS = few(1, 2)
MODE = few("weights", "data")
FLAG = st.booleans()


def drawn_case(model, fields, settings=None):
    """Return a strategy of cases of a model whose fields are drawn; a field of None is taken out."""
    shared = {"tensor_parallel_size": RANKS, "mm_encoder_tp_mode": MODE, "dtype": few("bfloat16", "float32")}
    return st.fixed_dictionaries(
        {
            "model": st.just(model),
            "settings": st.fixed_dictionaries(shared | (settings or {})),
            "config": st.fixed_dictionaries(fields),
        }
    )


SIGLIP = {
    "vision_config.num_hidden_layers": st.integers(1, 3),
    "vision_config.hidden_size": few(64, 96, 192),
    "vision_config.num_attention_heads": few(2, 4),
    "vision_config.intermediate_size": few(128, 200),
}

ENCODERS = {
    "qwen": drawn_case(
        "tiny/qwen3.5-vl",
        {
            "vision_config.depth": st.integers(1, 3),
            "vision_config.hidden_size": few(64, 96, 144),
            "vision_config.num_heads": few(2, 4),
            "vision_config.intermediate_size": few(128, 200),
            "vision_config.num_position_embeddings": few(64, 256),
            "vision_config.out_hidden_size": few(128, 96),
            "vision_config.deepstack_visual_indexes": few([], [0], None),
        },
    ),
    "gemma": drawn_case(
        "tiny/gemma3-mm", SIGLIP | {"vision_config.image_size": few(224, 448), "vision_config.patch_size": few(14, 16)}
    ),
    "lfm": drawn_case(
        "tiny/lfm2-vl",
        SIGLIP
        | {
            "vision_config.num_patches": few(256, 64, None),
            "projector_bias": FLAG,
            "projector_use_layernorm": FLAG,
            "projector_hidden_size": few(128, 200),
        },
    ),
    "step": drawn_case(
        "tiny/step-3.7",
        {
            "vision_config.layers": st.integers(1, 3),
            "vision_config.width": few(64, 96),
            "vision_config.heads": few(2, 4),
            "vision_config.mlp_ratio": few(2.0, 5.75, 3),
            "vision_config.use_ln_pre": FLAG,
            "vision_config.use_ln_post": FLAG,
            "vision_config.use_cls_token": FLAG,
            "vision_config.use_abs_posemb": FLAG,
            "vision_config.image_size": few(728, 364),
            "projector_bias": FLAG,
        },
    ),
    "nemotron": drawn_case(
        "tiny/nemotron-omni",
        {
            "vision_config.args.model": few("vit_small_patch16_224", "vit_base_patch16_224"),
            "vision_config.args.cpe_max_size": few(512, 500, None),
            "vision_config.args.cls_token_per_teacher": few(True, False, None),
            "vision_config.args.register_multiple": few(8, 10, None),
            "vision_config.args.teachers": few(
                [{"name": "a", "use_summary": True}],
                [{"name": "a"}, {"name": "b", "use_summary": False}, {"name": "a"}],
                None,
            ),
            "vision_config.video_temporal_patch_size": few(1, 2, 3),
            "vit_hidden_size": few(384, 768),
            "projector_hidden_size": few(128, 192),
            "sound_config.num_hidden_layers": st.integers(1, 3),
            "sound_config.hidden_size": few(64, 96),
            "sound_config.num_attention_heads": few(2, 4),
            "sound_config.intermediate_size": few(128, 200),
            "sound_config.num_mel_bins": few(80, 128),
            "sound_config.convolution_bias": few(True, False, None),
            "sound_config.projection_bias": FLAG,
            "sound_config.conv_kernel_size": few(9, 5),
            "sound_config.subsampling_factor": few(4, 8),
            "sound_config.subsampling_conv_channels": few(16, 24),
        },
    ),
    "mimo": drawn_case(
        "tiny/mimo-omni",
        {
            "vision_config.depth": st.integers(1, 3),
            "vision_config.hidden_size": few(64, 128),
            "vision_config.num_heads": few(2, 4),
            "vision_config.num_key_value_heads": few(2),
            "vision_config.qk_channels": few(64, 32, None),
            "vision_config.kv_channels": few(64, 32, None),
            "vision_config.use_sink": FLAG,
            "vision_config.fullatt_block_indexes": few([0], [0, 2], []),
            "vision_config.vit_window_attn_types": few(None),
            "vision_config.out_hidden_size": few(128, 96),
            "audio_config": few(
                None,
                {"input_local_layers": 1, "input_local_dim": 64, "input_local_attn_heads": 4, "out_hidden_size": 128},
                {
                    "input_local_layers": 2,
                    "input_local_dim": 96,
                    "input_local_attn_heads": 2,
                    "input_local_intermediate_size": 100,
                    "audio_channels": 3,
                    "speech_vocab_size": "50",
                    "speech_zeroemb_idx": "49",
                    "group_size": 2,
                    "projection_layers": 2,
                    "add_post_norm": True,
                    "partial_rotary_factor": 0.334,
                    "out_hidden_size": 64,
                },
            ),
        },
        {"limit_mm_per_prompt": few({}, {"audio": 0}, {"image": 0, "video": 0})},
    ),
}
"""Strategies by family."""
