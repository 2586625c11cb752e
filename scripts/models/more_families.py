"""More networks of public families with small configurations, random weights and open axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import timm
import torch
import torchvision
import transformers
from torch import nn

from scripts.models.open_families import (
    ANY,
    BATCHES,
    BY_32,
    SMALL,
    SOUNDS,
    TEXTS,
    Call,
    Network,
    cached_network,
    timm_network,
    torchvision_network,
)

IDS = {"input_ids": ("batch", "length")}
MASKED = {**IDS, "attention_mask": ("batch", "length")}
PAIRS = {**IDS, "decoder_input_ids": ("batch", "target")}
PAIR_SIZES = ((2, 9, 4), (1, 1, 1), (1, 12, 5), (3, 5, 9), (2, 16, 2))
PIXELS = {"pixel_values": ("batch", 3, "height", "width")}
WAVES = {"input_values": ("batch", "samples")}
WIDE = {key: value for key, value in SMALL.items() if key != "vocab_size"}
CODER = {
    "vocab_size": 99,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 37,
    "max_position_embeddings": 64,
    "use_cache": False,
}
SPEECH = {
    **SMALL,
    "conv_dim": (16, 16, 16),
    "conv_kernel": (10, 3, 2),
    "conv_stride": (5, 2, 2),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
}
MIXTURE = {**SMALL, "num_key_value_heads": 2}
LIMITS = {"input_ids": 99, "decoder_input_ids": 99, "attention_mask": 2, "token_type_ids": 2}


def _hugging_face(
    name: str,
    config: str,
    kind: str,
    settings: Mapping[str, Any],
    inputs: Mapping[str, tuple[Any, ...]] = IDS,
    sizes: tuple[tuple[int, ...], ...] = TEXTS,
    key: str = "last_hidden_state",
    call: Callable[..., Any] | None = None,
    **facts: Any,
) -> Network:
    """A network of transformers, whose inputs have the names of its arguments."""

    def build() -> nn.Module:
        made = getattr(transformers, config)(**settings)
        made._attn_implementation = "eager"
        module = getattr(transformers, kind)(made)
        return Call(module, call or (lambda m, *given: m(**dict(zip(inputs, given)))[key]))

    limits = {each: LIMITS[each] for each in inputs if each in LIMITS}
    return Network(name, build, inputs, sizes, limits, **facts)


def _texts() -> list[Network]:
    h = _hugging_face
    renamed = {"vocab_size": 99, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}
    no_cache = {"use_cache": False}
    return [
        h("longformer", "LongformerConfig", "LongformerModel", {**SMALL, "attention_window": 4}),
        h(
            "led",
            "LEDConfig",
            "LEDModel",
            {
                **{k: v for k, v in CODER.items() if k != "max_position_embeddings"},
                "attention_window": 4,
                "max_encoder_position_embeddings": 64,
                "max_decoder_position_embeddings": 64,
            },
            PAIRS,
            PAIR_SIZES,
        ),
        h(
            "xlnet",
            "XLNetConfig",
            "XLNetModel",
            {"vocab_size": 99, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 37},
        ),
        h(
            "funnel",
            "FunnelConfig",
            "FunnelModel",
            {
                "vocab_size": 99,
                "block_sizes": [1, 1, 1],
                "num_decoder_layers": 1,
                "d_model": 32,
                "n_head": 4,
                "d_head": 8,
                "d_inner": 37,
            },
        ),
        h("roformer", "RoFormerConfig", "RoFormerModel", SMALL, MASKED),
        h(
            "mobilebert",
            "MobileBertConfig",
            "MobileBertModel",
            {**SMALL, "embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16},
            MASKED,
        ),
        h("convbert", "ConvBertConfig", "ConvBertModel", {**SMALL, "embedding_size": 16}, MASKED),
        h(
            "bigbird",
            "BigBirdConfig",
            "BigBirdModel",
            {**SMALL, "attention_type": "original_full"},
            MASKED,
        ),
        h(
            "nystromformer",
            "NystromformerConfig",
            "NystromformerModel",
            {**SMALL, "segment_means_seq_len": 64, "num_landmarks": 64},
            MASKED,
        ),
        h("ernie", "ErnieConfig", "ErnieModel", SMALL, MASKED),
        h(
            "esm",
            "EsmConfig",
            "EsmModel",
            {**SMALL, "position_embedding_type": "rotary", "pad_token_id": 1},
            MASKED,
        ),
        h(
            "rembert",
            "RemBertConfig",
            "RemBertModel",
            {**SMALL, "input_embedding_size": 16},
            MASKED,
        ),
        h("ibert", "IBertConfig", "IBertModel", SMALL, MASKED),
        h(
            "modernbert",
            "ModernBertConfig",
            "ModernBertModel",
            {
                **SMALL,
                "pad_token_id": 0,
                "bos_token_id": 1,
                "eos_token_id": 2,
                "cls_token_id": 1,
                "sep_token_id": 2,
                "local_attention": 4,
            },
            MASKED,
        ),
        h(
            "flaubert",
            "FlaubertConfig",
            "FlaubertModel",
            {
                "vocab_size": 99,
                "emb_dim": 32,
                "n_layers": 2,
                "n_heads": 4,
                "n_words": 99,
                "max_position_embeddings": 64,
            },
        ),
        h(
            "perceiver",
            "PerceiverConfig",
            "PerceiverForMaskedLM",
            {
                "vocab_size": 99,
                "d_model": 32,
                "d_latents": 32,
                "num_latents": 6,
                "num_self_attends_per_block": 2,
                "num_blocks": 1,
                "num_self_attention_heads": 4,
                "num_cross_attention_heads": 4,
                "max_position_embeddings": 16,
            },
            sizes=((2, 16), (1, 16), (3, 16), (4, 16), (5, 16)),
            key="logits",
        ),
        h(
            "prophetnet",
            "ProphetNetConfig",
            "ProphetNetModel",
            {
                "vocab_size": 99,
                "hidden_size": 32,
                "num_encoder_layers": 2,
                "num_decoder_layers": 2,
                "num_encoder_attention_heads": 4,
                "num_decoder_attention_heads": 4,
                "encoder_ffn_dim": 37,
                "decoder_ffn_dim": 37,
                "max_position_embeddings": 64,
                "use_cache": False,
            },
            PAIRS,
            PAIR_SIZES,
        ),
        h("blenderbot", "BlenderbotConfig", "BlenderbotModel", CODER, PAIRS, PAIR_SIZES),
        h("pegasus", "PegasusConfig", "PegasusModel", CODER, PAIRS, PAIR_SIZES),
        h("marian", "MarianConfig", "MarianModel", {**CODER, "pad_token_id": 0}, PAIRS, PAIR_SIZES),
        h("m2m100", "M2M100Config", "M2M100Model", CODER, PAIRS, PAIR_SIZES),
        h(
            "longt5",
            "LongT5Config",
            "LongT5Model",
            {
                "vocab_size": 99,
                "d_model": 32,
                "d_kv": 8,
                "d_ff": 37,
                "num_layers": 2,
                "num_heads": 4,
                "local_radius": 3,
                "use_cache": False,
            },
            PAIRS,
            PAIR_SIZES,
        ),
        h(
            "umt5",
            "UMT5Config",
            "UMT5Model",
            {
                "vocab_size": 99,
                "d_model": 32,
                "d_kv": 8,
                "d_ff": 37,
                "num_layers": 2,
                "num_heads": 4,
                "use_cache": False,
            },
            PAIRS,
            PAIR_SIZES,
        ),
        h("gpt_bigcode", "GPTBigCodeConfig", "GPTBigCodeModel", {**renamed, **no_cache}, MASKED),
        h(
            "mpt",
            "MptConfig",
            "MptModel",
            {
                "vocab_size": 99,
                "d_model": 32,
                "n_layers": 2,
                "n_heads": 4,
                "max_seq_len": 64,
                **no_cache,
            },
        ),
        h("biogpt", "BioGptConfig", "BioGptModel", {**SMALL, **no_cache}),
        h(
            "mamba",
            "MambaConfig",
            "MambaModel",
            {
                "vocab_size": 99,
                "hidden_size": 32,
                "state_size": 4,
                "num_hidden_layers": 2,
                "use_mambapy": False,
                **no_cache,
            },
            dynamo=True,
        ),
        h(
            "rwkv",
            "RwkvConfig",
            "RwkvModel",
            {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, **no_cache},
        ),
        *(
            cached_network(name, getattr(transformers, config)(**settings), kind, 2, heads, 8)
            for name, config, kind, heads, settings in (
                (
                    "gemma2_cached",
                    "Gemma2Config",
                    "Gemma2ForCausalLM",
                    2,
                    {**MIXTURE, "head_dim": 8, "sliding_window": 64},
                ),
                ("phi_cached", "PhiConfig", "PhiForCausalLM", 4, SMALL),
                ("olmo2_cached", "Olmo2Config", "Olmo2ForCausalLM", 2, MIXTURE),
                ("qwen3_cached", "Qwen3Config", "Qwen3ForCausalLM", 2, {**MIXTURE, "head_dim": 8}),
                ("stablelm_cached", "StableLmConfig", "StableLmForCausalLM", 2, MIXTURE),
                ("granite_cached", "GraniteConfig", "GraniteForCausalLM", 2, MIXTURE),
            )
        ),
    ]


def _sounds() -> list[Network]:
    h = _hugging_face
    frames = {"input_features": ("batch", "frames", 20)}
    lengths = ((2, 40), (1, 24), (1, 64), (3, 31), (2, 57))
    return [
        h(
            "sew",
            "SEWConfig",
            "SEWModel",
            {**SPEECH, "squeeze_factor": 2, "layerdrop": 0.0},
            WAVES,
            SOUNDS,
        ),
        h(
            "wavlm",
            "WavLMConfig",
            "WavLMModel",
            {**SPEECH, "num_buckets": 16, "max_bucket_distance": 20},
            WAVES,
            SOUNDS,
        ),
        h("unispeech", "UniSpeechConfig", "UniSpeechModel", SPEECH, WAVES, SOUNDS),
        h(
            "data2vec_audio",
            "Data2VecAudioConfig",
            "Data2VecAudioModel",
            {**SPEECH, "conv_pos_kernel_size": 3, "num_conv_pos_embeddings": 2},
            WAVES,
            SOUNDS,
        ),
        h(
            "wav2vec2_conformer",
            "Wav2Vec2ConformerConfig",
            "Wav2Vec2ConformerModel",
            {**SPEECH, "position_embeddings_type": "relative", "conv_depthwise_kernel_size": 7},
            WAVES,
            SOUNDS,
        ),
        h(
            "wav2vec2_bert",
            "Wav2Vec2BertConfig",
            "Wav2Vec2BertModel",
            {
                **WIDE,
                "feature_projection_input_dim": 20,
                "conv_depthwise_kernel_size": 7,
                "left_max_position_embeddings": 8,
                "right_max_position_embeddings": 4,
            },
            frames,
            lengths,
        ),
        h(
            "speech2text",
            "Speech2TextConfig",
            "Speech2TextModel",
            {
                **{k: v for k, v in CODER.items() if k != "max_position_embeddings"},
                "input_feat_per_channel": 20,
                "conv_channels": 24,
                "max_source_positions": 60,
                "max_target_positions": 60,
            },
            {**frames, "decoder_input_ids": ("batch", "target")},
            ((2, 40, 4), (1, 24, 1), (1, 64, 5), (3, 31, 9), (2, 57, 2)),
        ),
        h(
            "ast",
            "ASTConfig",
            "ASTModel",
            {
                **WIDE,
                "num_mel_bins": 32,
                "max_length": 64,
                "patch_size": 16,
                "frequency_stride": 10,
                "time_stride": 10,
            },
            {"input_values": ("batch", 64, 32)},
            BATCHES,
        ),
        h(
            "fastspeech2",
            "FastSpeech2ConformerConfig",
            "FastSpeech2ConformerModel",
            {
                "vocab_size": 99,
                "hidden_size": 32,
                "num_mel_bins": 20,
                "encoder_layers": 1,
                "decoder_layers": 1,
                "encoder_num_attention_heads": 2,
                "decoder_num_attention_heads": 2,
                "encoder_linear_units": 37,
                "decoder_linear_units": 37,
                "speech_decoder_postnet_units": 16,
                "duration_predictor_channels": 16,
                "energy_predictor_channels": 16,
                "pitch_predictor_channels": 16,
                "convolution_bias": True,
            },
            sizes=((1, 9), (1, 4), (1, 12), (1, 5), (1, 16)),
            key="spectrogram",
        ),
        h(
            "speecht5_hifigan",
            "SpeechT5HifiGanConfig",
            "SpeechT5HifiGan",
            {
                "model_in_dim": 20,
                "upsample_initial_channel": 16,
                "upsample_rates": [4, 2],
                "upsample_kernel_sizes": [8, 4],
                "resblock_kernel_sizes": [3],
                "resblock_dilation_sizes": [[1, 3]],
            },
            {"spectrogram": ("batch", "frames", 20)},
            lengths,
            call=lambda m, x: m(x),
        ),
        h(
            "dac",
            "DacConfig",
            "DacModel",
            {
                "encoder_hidden_size": 8,
                "downsampling_ratios": [4, 2],
                "decoder_hidden_size": 16,
                "n_codebooks": 2,
                "codebook_size": 16,
                "codebook_dim": 4,
            },
            {"input_values": ("batch", 1, "samples")},
            SOUNDS,
            key="audio_values",
        ),
        h(
            "musicgen_decoder",
            "MusicgenDecoderConfig",
            "MusicgenForCausalLM",
            {
                "vocab_size": 99,
                "hidden_size": 32,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "ffn_dim": 37,
                "num_codebooks": 2,
                "max_position_embeddings": 64,
                "use_cache": False,
            },
            {"input_ids": (4, "length")},
            ((9,), (1,), (12,), (5,), (16,)),
            key="logits",
        ),
        h(
            "seamless_speech",
            "Wav2Vec2BertConfig",
            "Wav2Vec2BertForCTC",
            {
                **WIDE,
                "vocab_size": 9,
                "feature_projection_input_dim": 20,
                "add_adapter": True,
                "conv_depthwise_kernel_size": 7,
                "position_embeddings_type": "relative",
            },
            frames,
            lengths,
            key="logits",
        ),
        h(
            "clap_audio",
            "ClapAudioConfig",
            "ClapAudioModel",
            {
                "window_size": 4,
                "num_mel_bins": 16,
                "spec_size": 64,
                "patch_size": 4,
                "patch_stride": [4, 4],
                "hidden_size": 64,
                "patch_embeds_hidden_size": 8,
                "depths": [1, 1],
                "num_attention_heads": [2, 2],
                "projection_dim": 16,
            },
            {"input_features": ("batch", 1, "frames", 16)},
            ((2, 100), (1, 60), (1, 256), (3, 31), (2, 57)),
        ),
    ]


def _images() -> list[Network]:
    h = _hugging_face
    vit = {**WIDE, "image_size": 64, "patch_size": 16}
    query = {
        "num_queries": 5,
        "d_model": 32,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 37,
        "decoder_ffn_dim": 37,
    }
    resnet = {"use_timm_backbone": True, "use_pretrained_backbone": False, "backbone": "resnet18"}
    swin = {
        "embed_dim": 12,
        "depths": [1, 1, 1, 1],
        "num_heads": [1, 2, 2, 4],
        "window_size": 4,
        "image_size": 64,
    }
    fixed = {"pixel_values": ("batch", 3, 64, 64)}
    video = {"pixel_values": ("batch", 4, 3, 32, 32)}
    return [
        h(
            "levit",
            "LevitConfig",
            "LevitModel",
            {
                "image_size": 64,
                "hidden_sizes": [16, 24, 32],
                "num_attention_heads": [2, 3, 4],
                "depths": [1, 1, 1],
                "key_dim": [8, 8, 8],
            },
            fixed,
            BATCHES,
        ),
        h("swinv2", "Swinv2Config", "Swinv2Model", swin, PIXELS, BY_32),
        h(
            "convnextv2",
            "ConvNextV2Config",
            "ConvNextV2Model",
            {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]},
            PIXELS,
            BY_32,
        ),
        h(
            "focalnet",
            "FocalNetConfig",
            "FocalNetModel",
            {"embed_dim": 12, "depths": [1, 1, 1, 1], "image_size": 64},
            PIXELS,
            BY_32,
        ),
        h(
            "swiftformer",
            "SwiftFormerConfig",
            "SwiftFormerModel",
            {"depths": [1, 1, 1, 1], "embed_dims": [8, 16, 24, 32]},
            PIXELS,
            BY_32,
        ),
        h(
            "hiera",
            "HieraConfig",
            "HieraModel",
            {
                "image_size": [64, 64],
                "embed_dim": 16,
                "depths": [1, 1],
                "num_heads": [1, 2],
                "embed_dim_multiplier": 2.0,
                "num_query_pool": 1,
                "masked_unit_size": [4, 4],
            },
            fixed,
            BATCHES,
        ),
        h(
            "regnet",
            "RegNetConfig",
            "RegNetModel",
            {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [1, 1], "groups_width": 8},
            PIXELS,
            ANY,
        ),
        h("textnet", "TextNetConfig", "TextNetModel", {}, PIXELS, BY_32),
        h(
            "vitmae",
            "ViTMAEConfig",
            "ViTMAEModel",
            {**vit, "mask_ratio": 0.0},
            {**fixed, "noise": ("batch", 16)},
            BATCHES,
        ),
        h(
            "videomae",
            "VideoMAEConfig",
            "VideoMAEModel",
            {**WIDE, "image_size": 32, "patch_size": 8, "num_frames": 4},
            video,
            BATCHES,
        ),
        h(
            "timesformer",
            "TimesformerConfig",
            "TimesformerModel",
            {**WIDE, "image_size": 32, "patch_size": 8, "num_frames": 4},
            video,
            BATCHES,
        ),
        h(
            "vivit",
            "VivitConfig",
            "VivitModel",
            {**WIDE, "image_size": 32, "tubelet_size": [2, 8, 8], "num_frames": 4},
            video,
            BATCHES,
        ),
        h("dinov3", "DINOv3ViTConfig", "DINOv3ViTModel", vit, PIXELS, BY_32, dynamo=True),
        h(
            "siglip",
            "SiglipVisionConfig",
            "SiglipVisionModel",
            {**vit},
            PIXELS,
            BY_32,
            key="last_hidden_state",
            call=lambda m, x: m(x, interpolate_pos_encoding=True).last_hidden_state,
        ),
        h(
            "clipseg",
            "CLIPSegConfig",
            "CLIPSegForImageSegmentation",
            {
                "text_config": {**SMALL, "eos_token_id": 98, "bos_token_id": 1, "pad_token_id": 0},
                "vision_config": vit,
                "projection_dim": 16,
                "reduce_dim": 16,
                "extract_layers": [0, 1],
                "decoder_num_attention_heads": 2,
                "decoder_intermediate_size": 16,
            },
            {**IDS, **fixed},
            TEXTS,
            key="logits",
        ),
        h(
            "layoutlm",
            "LayoutLMConfig",
            "LayoutLMModel",
            {**SMALL, "max_2d_position_embeddings": 128},
            {**IDS},
            TEXTS,
        ),
        h(
            "blip_vision",
            "BlipVisionConfig",
            "BlipVisionModel",
            vit,
            PIXELS,
            BY_32,
            call=lambda m, x: m(x, interpolate_pos_encoding=True)[0],
        ),
        h(
            "conditional_detr",
            "ConditionalDetrConfig",
            "ConditionalDetrForObjectDetection",
            {**query, **resnet},
            PIXELS,
            BY_32,
            key="logits",
        ),
        h(
            "table_transformer",
            "TableTransformerConfig",
            "TableTransformerForObjectDetection",
            {**query, **resnet},
            PIXELS,
            BY_32,
            key="pred_boxes",
        ),
        h(
            "rtdetr",
            "RTDetrConfig",
            "RTDetrForObjectDetection",
            {
                "backbone_config": transformers.RTDetrResNetConfig(
                    embedding_size=8,
                    hidden_sizes=[8, 16, 24, 32],
                    depths=[1, 1, 1, 1],
                    layer_type="basic",
                    out_features=["stage2", "stage3", "stage4"],
                ),
                "encoder_hidden_dim": 32,
                "encoder_in_channels": [16, 24, 32],
                "d_model": 32,
                "decoder_in_channels": [32, 32, 32],
                "encoder_ffn_dim": 37,
                "decoder_ffn_dim": 37,
                "encoder_attention_heads": 4,
                "decoder_attention_heads": 4,
                "num_queries": 8,
                "decoder_layers": 2,
                "hidden_expansion": 0.5,
                "num_labels": 3,
            },
            PIXELS,
            BY_32,
            key="pred_boxes",
        ),
        h(
            "depth_anything",
            "DepthAnythingConfig",
            "DepthAnythingForDepthEstimation",
            {
                "backbone_config": transformers.Dinov2Config(
                    **{**vit, "num_hidden_layers": 4, "patch_size": 14, "image_size": 56},
                    out_features=["stage1", "stage2", "stage3", "stage4"],
                    reshape_hidden_states=False,
                ),
                "reassemble_hidden_size": 32,
                "neck_hidden_sizes": [8, 16, 24, 32],
                "fusion_hidden_size": 16,
                "patch_size": 14,
                "head_hidden_size": 8,
            },
            PIXELS,
            ((2, 56, 70), (1, 28, 28), (1, 70, 42), (3, 56, 28), (1, 84, 56)),
            key="predicted_depth",
        ),
        h(
            "vitpose",
            "VitPoseConfig",
            "VitPoseForPoseEstimation",
            {
                "backbone_config": transformers.VitPoseBackboneConfig(
                    **{**WIDE, "image_size": [64, 48], "patch_size": [16, 16]},
                    num_channels=3,
                    out_indices=[2],
                ),
                "num_labels": 4,
                "use_simple_decoder": True,
            },
            {"pixel_values": ("batch", 3, 64, 48)},
            BATCHES,
            key="heatmaps",
        ),
        h(
            "seggpt",
            "SegGptConfig",
            "SegGptModel",
            {
                **{k: v for k, v in vit.items() if k != "intermediate_size"},
                "image_size": [64, 32],
                "mlp_dim": 37,
                "intermediate_hidden_state_indices": [0, 1],
                "decoder_hidden_size": 16,
                "merge_index": 0,
                "num_hidden_layers": 2,
            },
            {
                "pixel_values": ("batch", 3, 32, 32),
                "prompt_pixel_values": ("batch", 3, 32, 32),
                "prompt_masks": ("batch", 3, 32, 32),
            },
            BATCHES,
        ),
        h(
            "imagegpt",
            "ImageGPTConfig",
            "ImageGPTModel",
            {
                "vocab_size": 99,
                "n_positions": 64,
                "n_embd": 32,
                "n_layer": 2,
                "n_head": 4,
                "use_cache": False,
            },
        ),
        h(
            "vit_dynamo",
            "ViTConfig",
            "ViTModel",
            vit,
            PIXELS,
            BY_32,
            dynamo=True,
            call=lambda m, x: m(x, interpolate_pos_encoding=True)[0],
        ),
        h(
            "beit",
            "BeitConfig",
            "BeitModel",
            {**vit, "use_relative_position_bias": True},
            PIXELS,
            BY_32,
            call=lambda m, x: m(x, interpolate_pos_encoding=True)[0],
        ),
        h(
            "data2vec_vision",
            "Data2VecVisionConfig",
            "Data2VecVisionModel",
            {**vit, "use_relative_position_bias": True},
            fixed,
            BATCHES,
        ),
        h(
            "resnet_dynamo",
            "ResNetConfig",
            "ResNetModel",
            {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [1, 1]},
            PIXELS,
            ANY,
            dynamo=True,
        ),
        h(
            "mgp_str",
            "MgpstrConfig",
            "MgpstrForSceneTextRecognition",
            {
                "image_size": [32, 64],
                "patch_size": 8,
                "hidden_size": 32,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "max_token_length": 7,
                "num_character_labels": 12,
                "num_bpe_labels": 20,
                "num_wordpiece_labels": 20,
            },
            {"pixel_values": ("batch", 3, 32, 64)},
            BATCHES,
            call=lambda m, x: m(x).logits[0],
        ),
    ]


def _series() -> list[Network]:
    h = _hugging_face
    return [
        h(
            "decision_transformer",
            "DecisionTransformerConfig",
            "DecisionTransformerModel",
            {
                "state_dim": 7,
                "act_dim": 3,
                "hidden_size": 32,
                "n_layer": 1,
                "n_head": 4,
                "max_ep_len": 64,
            },
            {
                "states": ("batch", "length", 7),
                "actions": ("batch", "length", 3),
                "rewards": ("batch", "length", 1),
                "returns_to_go": ("batch", "length", 1),
            },
            TEXTS,
            call=lambda m, s, a, r, g: (
                m(
                    states=s,
                    actions=a,
                    rewards=r,
                    returns_to_go=g,
                    timesteps=torch.arange(s.shape[1])[None].expand(s.shape[0], -1),
                ).action_preds
            ),
        )
    ]


def _vision() -> list[Network]:
    models = torchvision.models

    def video(name: str) -> Network:
        build = lambda: getattr(models.video, name)(weights=None, num_classes=10)  # noqa: E731
        shapes = ((2, 8, 32, 32), (1, 8, 32, 64), (1, 16, 32, 32), (3, 8, 32, 32), (1, 9, 64, 32))
        return Network(name, build, {"x": ("batch", 3, "frames", "height", "width")}, shapes)

    def old(name: str, sizes: Any = ANY, **facts: Any) -> Network:
        return timm_network(name, sizes, **facts)

    def fixed(name: str, size: int = 64, **settings: Any) -> Network:
        build = lambda: timm.create_model(name, pretrained=False, num_classes=10, **settings)  # noqa: E731
        return Network(name, build, {"x": ("batch", 3, size, size)}, BATCHES)

    return [
        torchvision_network("deeplabv3_resnet50", BY_32, key="out"),
        torchvision_network("mnasnet0_5"),
        torchvision_network("efficientnet_v2_s"),
        torchvision_network("resnext50_32x4d"),
        torchvision_network("wide_resnet50_2"),
        torchvision_network("swin_v2_t", BY_32),
        video("mc3_18"),
        video("r2plus1d_18"),
        old("dla34", BY_32),
        old("dpn48b"),
        old("ese_vovnet19b_dw"),
        old("cspdarknet53"),
        old("nf_regnet_b0"),
        old("tinynet_e"),
        old("mobilenetv4_conv_small"),
        old("mobileone_s0"),
        old("fasternet_t0"),
        old("starnet_s1"),
        old("repvit_m0_9", BY_32),
        old("inception_next_atto"),
        old("xception41"),
        old("selecsls42"),
        old("resnest14d"),
        old("gernet_s"),
        old("legacy_seresnet18"),
        old("lambda_resnet26t", BY_32),
        old(
            "eca_botnext26ts_256",
            ((2, 256, 256), (1, 256, 256), (3, 256, 256), (4, 256, 256), (5, 256, 256)),
        ),
        old("efficientvit_b0", BY_32),
        fixed("efficientvit_m0", 224),
        old("mambaout_femto", BY_32),
        old("caformer_s18", BY_32),
        old("nextvit_small", BY_32),
        old("davit_tiny", BY_32),
        old("hgnetv2_b0"),
        old(
            "visformer_tiny",
            ((2, 224, 224), (1, 224, 224), (3, 224, 224), (4, 224, 224), (5, 224, 224)),
        ),
        fixed("convit_tiny", 224, depth=2),
        fixed("crossvit_9_240", 240),
        fixed("tnt_s_patch16_224", 224, depth=2),
        fixed("gmlp_s16_224", 224),
        fixed("resmlp_12_224", 224),
        fixed("mvitv2_tiny", 224),
        fixed("nest_tiny", 224),
        fixed("pit_ti_224", 224),
        fixed("tiny_vit_5m_224", 224),
        fixed("coatnet_nano_rw_224", 224),
        fixed("vitamin_small_224", 224),
    ]


def more_networks() -> list[Network]:
    """All networks of this module."""
    return [*_texts(), *_sounds(), *_images(), *_series(), *_vision()]
