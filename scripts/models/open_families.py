"""Networks of public families with small configurations, random weights and open axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import diffusers
import timm
import torch
import torchvision
import transformers
from torch import nn

from scripts.models import small_networks as hand


@dataclass(frozen=True)
class Network:
    """A network, its inputs, its open axes and the sizes at which it is compared."""

    name: str
    build: Callable[[], nn.Module]
    inputs: Mapping[str, tuple[Any, ...]]
    """Shape of each input: numbers and the names of open axes."""
    sizes: tuple[tuple[int, ...], ...]
    """Extents of the open axes in order of appearance; the first are those of the export."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Integer inputs, and the number that their values stay below."""
    dynamo: bool = False
    """Whether `torch.export` reads the network, otherwise a trace."""
    opset: int = 18

    @property
    def symbols(self) -> list[str]:
        """Names of the open axes in order of appearance."""
        extents = [each for shape in self.inputs.values() for each in shape]
        return list(dict.fromkeys(each for each in extents if isinstance(each, str)))

    def example(self) -> tuple[torch.Tensor, ...]:
        """Inputs of the first size."""
        extents = dict(zip(self.symbols, self.sizes[0]))
        made = []
        for name, shape in self.inputs.items():
            shape = tuple(extents.get(each, each) for each in shape)
            if name in self.limits:
                made.append(torch.randint(0, self.limits[name], shape))
            else:
                made.append(torch.randn(shape))
        return tuple(made)


ANY = ((2, 64, 64), (1, 64, 96), (1, 71, 65), (3, 80, 64), (1, 97, 113))
"""Batches, heights and widths for convolutional networks."""
BY_32 = ((2, 64, 96), (1, 64, 64), (1, 96, 64), (3, 32, 64), (1, 128, 96))
"""Batches, heights and widths for networks that require multiples of 32."""
BATCHES = ((2,), (1,), (3,), (5,), (4,))
TEXTS = ((2, 9), (1, 1), (1, 12), (3, 5), (2, 16))
"""Batches and lengths."""
CACHES = ((2, 3, 5), (1, 1, 7), (1, 1, 1), (2, 4, 2), (3, 2, 6))
"""Batches, new tokens and cached tokens."""
SOUNDS = ((2, 1600), (1, 1000), (1, 2001), (3, 1200), (1, 3203))


class Call(nn.Module):
    """A module that is called through a function of itself and the inputs."""

    def __init__(self, module: nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.module, self.call = module, call

    def forward(self, *inputs: torch.Tensor) -> Any:
        """The function's result."""
        return self.call(self.module, *inputs)


def picture_network(
    name: str, build: Callable[[], nn.Module], sizes: Any = ANY, channels: int = 3, **facts: Any
) -> Network:
    shape = ("batch", channels, "height", "width")
    return Network(name, build, {"x": shape}, sizes, **facts)


def torchvision_network(name: str, sizes: Any = ANY, key: str = "", **facts: Any) -> Network:
    """A network of torchvision; `key` names the tensor of a dictionary."""

    def build() -> nn.Module:
        settings = {"weights": None, "num_classes": 10, **facts.get("settings", {})}
        if key:
            settings["weights_backbone"] = None
        model = torchvision.models.get_model(name, **settings)
        return Call(model, lambda module, x: module(x)[key]) if key else model

    rest = {each: value for each, value in facts.items() if each != "settings"}
    return picture_network(name, build, sizes, **rest)


def timm_network(name: str, sizes: Any = ANY, **facts: Any) -> Network:
    settings = facts.pop("settings", {})
    return picture_network(
        name,
        lambda: timm.create_model(name, pretrained=False, num_classes=10, **settings),
        sizes,
        **facts,
    )


def transformer(config: Any, kind: str, key: str | None, *names: str) -> Callable[[], nn.Module]:
    """A transformer of a configuration; its inputs' names and the key of its output."""

    def build() -> nn.Module:
        config._attn_implementation = "eager"
        model = getattr(transformers, kind)(config)

        def call(module: nn.Module, *inputs: torch.Tensor) -> Any:
            made = module(**dict(zip(names, inputs)))
            return made if key is None else made[key]

        return Call(model, call)

    return build


SMALL = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 64,
}


def text_network(
    name: str,
    config: Any,
    kind: str,
    key: str = "last_hidden_state",
    mask: bool = True,
    **facts: Any,
) -> Network:
    inputs = {"input_ids": ("batch", "length")}
    limits = {"input_ids": 99}
    if mask:
        inputs["attention_mask"] = ("batch", "length")
        limits["attention_mask"] = 2
    return Network(name, transformer(config, kind, key, *inputs), inputs, TEXTS, limits, **facts)


def cached_network(
    name: str, config: Any, kind: str, layers: int, heads: int, width: int, **facts: Any
) -> Network:
    """A decoder with a cache of keys and values as inputs and outputs."""
    states = [f"{each}_{layer}" for layer in range(layers) for each in ("key", "value")]
    inputs: dict[str, tuple[Any, ...]] = {"input_ids": ("batch", "length")}
    inputs |= dict.fromkeys(states, ("batch", heads, "cached", width))

    def build() -> nn.Module:
        config._attn_implementation = "eager"

        def call(module: nn.Module, ids: torch.Tensor, *given: torch.Tensor) -> Any:
            cache = transformers.DynamicCache()
            for layer in range(layers):
                cache.update(given[2 * layer], given[2 * layer + 1], layer)
            length, cached = ids.shape[1], given[0].shape[2]
            positions = torch.arange(length, device=ids.device) + cached
            mask = torch.arange(length + cached)[None, :] > positions[:, None]
            mask = (mask * -10000.0)[None, None].expand(ids.shape[0], 1, -1, -1)
            made = module(
                input_ids=ids,
                position_ids=positions[None].expand(ids.shape[0], -1),
                attention_mask=mask,
                past_key_values=cache,
                use_cache=True,
            )
            states = [each for layer in cache.layers for each in (layer.keys, layer.values)]
            return made.logits, *states

        return Call(getattr(transformers, kind)(config), call)

    return Network(name, build, inputs, CACHES, {"input_ids": 99}, **facts)


def _hand_written() -> list[Network]:
    frames = ((2, 40), (1, 23), (1, 64), (3, 31), (2, 57))
    graphs = ((6, 14), (5, 1), (5, 3), (9, 20), (12, 7))
    graph = {"x": ("nodes", 7), "edges": (2, "count")}
    return [
        Network(
            "crnn",
            hand.CRNN,
            {"x": ("batch", 1, 32, "width")},
            ((2, 64), (1, 32), (1, 71), (3, 40), (2, 97)),
        ),
        picture_network("dbnet", hand.DBNet),
        picture_network("unet", hand.UNet),
        picture_network("unet_dynamo", hand.UNet, dynamo=True),
        picture_network("espcn", hand.ESPCN, channels=1),
        picture_network("edsr", hand.EDSR),
        picture_network("rdn", hand.RDN),
        picture_network(
            "swinir",
            hand.WindowSR,
            ((2, 24, 32), (1, 16, 16), (1, 21, 19), (3, 12, 18), (1, 33, 27)),
        ),
        Network(
            "dlrm",
            hand.DLRM,
            {"dense": ("batch", 13), "sparse": ("batch", 5)},
            BATCHES,
            {"sparse": 50},
        ),
        Network("deepfm", hand.DeepFM, {"fields": ("batch", 7)}, BATCHES, {"fields": 14}),
        Network(
            "din",
            hand.DIN,
            {"history": ("batch", "length"), "candidate": ("batch",)},
            TEXTS,
            {"history": 60, "candidate": 60},
        ),
        Network("gcn", hand.GCN, graph, graphs, {"edges": 5}),
        Network("gat", hand.GAT, graph, graphs, {"edges": 5}, dynamo=True),
        Network("graphsage", hand.GraphSAGE, graph, graphs, {"edges": 5}),
        Network("tcn", hand.TCN, {"x": ("batch", 4, "length")}, frames),
        Network(
            "wavenet",
            hand.WaveNet,
            {"x": ("batch", 1, "length")},
            ((2, 64), (1, 40), (1, 33), (3, 51), (1, 99)),
        ),
        Network("hifigan", hand.HiFiGAN, {"x": ("batch", 20, "length")}, frames),
        Network("stft_conv", lambda: hand.Spectrogram(False), {"x": ("batch", "samples")}, SOUNDS),
        Network(
            "stft_native",
            lambda: hand.Spectrogram(True),
            {"x": ("batch", "samples")},
            SOUNDS,
            dynamo=True,
        ),
        Network("conformer", hand.Conformer, {"x": ("batch", "length", 20)}, frames),
        picture_network("cyclegan", hand.Generator),
        picture_network(
            "dcgan", hand.DCGAN, ((2, 1, 1), (1, 4, 4), (3, 2, 5), (1, 3, 1), (2, 1, 7)), 16
        ),
        picture_network("yolo", hand.YOLO),
    ]


def _torchvision() -> list[Network]:
    return [
        torchvision_network("resnet18"),
        torchvision_network("vgg11", dynamo=True),
        torchvision_network("densenet121"),
        torchvision_network("mobilenet_v2"),
        torchvision_network("mobilenet_v3_small", dynamo=True),
        torchvision_network("efficientnet_b0"),
        torchvision_network("regnet_y_400mf"),
        torchvision_network("squeezenet1_1"),
        torchvision_network("shufflenet_v2_x0_5"),
        torchvision_network("googlenet", settings={"aux_logits": False, "init_weights": False}),
        torchvision_network("convnext_tiny"),
        torchvision_network("swin_t", BY_32),
        torchvision_network("lraspp_mobilenet_v3_large", key="out"),
        torchvision_network("deeplabv3_mobilenet_v3_large", key="out"),
        torchvision_network("fcn_resnet50", key="out"),
    ]


def _transformers() -> list[Network]:
    t = transformers
    gpt2 = {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    llama = {**SMALL, "num_key_value_heads": 2}
    return [
        text_network("bert", t.BertConfig(**SMALL), "BertModel"),
        text_network("roberta", t.RobertaConfig(**SMALL), "RobertaForMaskedLM", "logits"),
        text_network(
            "distilbert",
            t.DistilBertConfig(
                vocab_size=99,
                dim=32,
                n_layers=2,
                n_heads=4,
                hidden_dim=37,
                max_position_embeddings=64,
            ),
            "DistilBertModel",
        ),
        cached_network("gpt2_cached", t.GPT2Config(**gpt2), "GPT2LMHeadModel", 2, 4, 8),
        cached_network("llama_cached", t.LlamaConfig(**llama), "LlamaForCausalLM", 2, 2, 8),
    ]


def detector(name: str, **settings: Any) -> Network:
    """A detector of torchvision on one image of any size; the number of boxes depends on it."""

    def build() -> nn.Module:
        model = torchvision.models.get_model(name, weights=None, weights_backbone=None, **settings)

        def call(module: nn.Module, x: torch.Tensor) -> Any:
            made = module([x])[0]
            return made["boxes"], made["scores"], made["labels"]

        return Call(model, call)

    sizes = ((64, 96), (64, 64), (71, 65), (96, 64), (128, 80))
    return Network(name, build, {"x": (3, "height", "width")}, sizes)


def _more_vision() -> list[Network]:
    models = torchvision.models

    def vit() -> nn.Module:
        return models.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=10)

    def raft() -> nn.Module:
        model = models.optical_flow.raft_small(weights=None)
        return Call(model, lambda module, a, b: module(a, b, num_flow_updates=2)[-1])

    def video() -> nn.Module:
        return models.video.r3d_18(weights=None, num_classes=10)

    pair = ("batch", 3, "height", "width")
    videos = ((2, 4, 32, 32), (1, 3, 32, 40), (1, 5, 33, 32), (3, 1, 16, 16), (1, 8, 24, 20))
    small = {"min_size": 64, "max_size": 128}
    return [
        Network("torchvision_vit", vit, {"x": ("batch", 3, 32, 32)}, BATCHES, dynamo=True),
        Network(
            "raft_small",
            raft,
            {"left": pair, "right": pair},
            ((1, 128, 136), (1, 136, 128), (2, 128, 128), (1, 144, 160), (1, 160, 128)),
        ),
        Network("r3d_18", video, {"x": ("batch", 3, "frames", "height", "width")}, videos),
        Network(
            "maxvit_t",
            lambda: models.MaxVit((64, 64), 8, 4, [16, 32], [1, 1], 8, 0.0, num_classes=10),
            {"x": ("batch", 3, 64, 64)},
            BATCHES,
        ),
        torchvision_network(
            "inception_v3",
            ((2, 96, 96), (1, 80, 96), (1, 101, 97), (3, 96, 80), (1, 128, 113)),
            settings={"aux_logits": False, "init_weights": False},
        ),
        detector("ssdlite320_mobilenet_v3_large", num_classes=3),
        detector("fasterrcnn_mobilenet_v3_large_320_fpn", num_classes=3, **small),
        detector("retinanet_resnet50_fpn", num_classes=3, **small),
        detector("fcos_resnet50_fpn", num_classes=3, **small),
        detector("keypointrcnn_resnet50_fpn", num_classes=2, **small),
    ]


def _timm_networks() -> list[Network]:
    def fixed(name: str, size: int = 224, **settings: Any) -> Network:
        """A network of one image size."""
        build = lambda: timm.create_model(name, pretrained=False, num_classes=10, **settings)  # noqa: E731
        return Network(name, build, {"x": ("batch", 3, size, size)}, BATCHES)

    def any_size(name: str, sizes: Any = BY_32, **settings: Any) -> Network:
        return timm_network(
            name, sizes, dynamo=True, settings={**settings, "dynamic_img_size": True}
        )

    tiny = {"embed_dim": 32, "depth": 2, "num_heads": 4}
    return [
        any_size("vit_tiny_patch16_224", **tiny),
        any_size("deit_tiny_distilled_patch16_224", **tiny),
        any_size(
            "eva02_tiny_patch14_224",
            ((2, 56, 70), (1, 28, 28), (1, 70, 42), (3, 14, 28), (1, 84, 56)),
            **tiny,
        ),
        fixed("beit_base_patch16_224", 64, img_size=64, **tiny),
        fixed("cait_xxs24_224", 64, img_size=64, embed_dim=32, depth=2, num_heads=4),
        fixed("mixer_s16_224", 64, img_size=64),
        fixed("levit_128s", 224),
        fixed("xcit_nano_12_p16_224", 64, img_size=64, depth=2),
        fixed("coat_tiny", 64, img_size=64),
        fixed("gcvit_xxtiny", 224),
        fixed("efficientformer_l1", 224),
        timm_network("pvt_v2_b0", BY_32),
        timm_network("edgenext_xx_small", BY_32),
        timm_network("poolformerv2_s12"),
        timm_network("mobilevit_xxs", BY_32),
        timm_network("mobilevitv2_050", BY_32),
        timm_network("ghostnet_050"),
        timm_network("res2net50_26w_4s"),
        timm_network("hrnet_w18_small"),
        timm_network("repvgg_a0"),
        timm_network("fastvit_t8", BY_32),
        timm_network("convnextv2_atto"),
        timm_network("lcnet_050", dynamo=True),
        timm_network("xcit_nano_12_p8_224", BY_32, settings={"depth": 2}),
        timm_network("twins_svt_small", BY_32),
        timm_network("focalnet_tiny_srf", BY_32),
        timm_network("rexnet_100"),
        timm_network("sequencer2d_s", BY_32),
        timm_network("skresnet18"),
    ]


def picture_transformer(
    name: str, config: Any, kind: str, key: str, sizes: Any = BY_32, **facts: Any
) -> Network:
    return picture_network(name, transformer(config, kind, key, "pixel_values"), sizes, **facts)


def _more_transformers() -> list[Network]:
    t = transformers
    wide = {k: v for k, v in SMALL.items() if k != "vocab_size"}
    speech = {
        **SMALL,
        "conv_dim": (16, 16, 16),
        "conv_kernel": (10, 3, 2),
        "conv_stride": (5, 2, 2),
        "num_feat_extract_layers": 3,
        "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 2,
    }
    both = {"input_ids": ("batch", "length"), "decoder_input_ids": ("batch", "target")}
    pairs = ((2, 9, 4), (1, 1, 1), (1, 12, 5), (3, 5, 9), (2, 16, 2))
    limits = {"input_ids": 99, "decoder_input_ids": 99}
    bart = {
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
    whisper = {
        **{k: v for k, v in bart.items() if k != "max_position_embeddings"},
        "num_mel_bins": 20,
        "max_source_positions": 30,
        "max_target_positions": 40,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
    }
    heard = {"input_features": ("batch", 20, 60), "decoder_input_ids": ("batch", "length")}
    sound = {"x": ("batch", "samples")}
    t5 = {
        "vocab_size": 99,
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 37,
        "num_layers": 2,
        "num_heads": 4,
        "use_cache": False,
    }
    clip = {
        "text_config": {**SMALL, "eos_token_id": 98},
        "vision_config": {**wide, "image_size": 32, "patch_size": 8},
    }
    seen = {"input_ids": ("batch", "length"), "pixel_values": ("images", 3, 32, 32)}
    llama = {**SMALL, "num_key_value_heads": 2}
    vit = {**wide, "image_size": 64, "patch_size": 16}
    return [
        text_network("albert", t.AlbertConfig(**SMALL, embedding_size=16), "AlbertModel"),
        text_network("electra", t.ElectraConfig(**SMALL, embedding_size=16), "ElectraModel"),
        text_network(
            "deberta_v2",
            t.DebertaV2Config(**SMALL, relative_attention=True, pos_att_type=["p2c", "c2p"]),
            "DebertaV2Model",
        ),
        text_network("mpnet", t.MPNetConfig(**SMALL), "MPNetModel"),
        text_network(
            "fnet",
            t.FNetConfig(**{k: v for k, v in SMALL.items() if k != "num_attention_heads"}),
            "FNetModel",
            mask=False,
            dynamo=True,
        ),
        text_network(
            "opt",
            t.OPTConfig(
                vocab_size=99,
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                ffn_dim=37,
                word_embed_proj_dim=32,
                max_position_embeddings=64,
                use_cache=False,
            ),
            "OPTModel",
        ),
        text_network(
            "bloom",
            t.BloomConfig(vocab_size=99, hidden_size=32, n_layer=2, n_head=4, use_cache=False),
            "BloomModel",
        ),
        cached_network(
            "mistral_cached",
            t.MistralConfig(**llama, sliding_window=None),
            "MistralForCausalLM",
            2,
            2,
            8,
            dynamo=True,
        ),
        cached_network("qwen2_cached", t.Qwen2Config(**llama), "Qwen2ForCausalLM", 2, 2, 8),
        cached_network("gpt_neox_cached", t.GPTNeoXConfig(**SMALL), "GPTNeoXForCausalLM", 2, 4, 8),
        Network(
            "t5",
            transformer(t.T5Config(**t5), "T5ForConditionalGeneration", "logits", *both),
            both,
            pairs,
            limits,
        ),
        Network(
            "bart",
            transformer(t.BartConfig(**bart), "BartModel", "last_hidden_state", *both),
            both,
            pairs,
            limits,
        ),
        Network(
            "whisper",
            transformer(
                t.WhisperConfig(**whisper), "WhisperForConditionalGeneration", "logits", *heard
            ),
            heard,
            TEXTS,
            {"decoder_input_ids": 99},
            dynamo=True,
        ),
        Network(
            "wav2vec2",
            transformer(t.Wav2Vec2Config(**speech), "Wav2Vec2ForCTC", "logits", "input_values"),
            sound,
            SOUNDS,
        ),
        Network(
            "hubert",
            transformer(
                t.HubertConfig(**speech, feat_extract_norm="layer", do_stable_layer_norm=True),
                "HubertModel",
                "last_hidden_state",
                "input_values",
            ),
            sound,
            SOUNDS,
            dynamo=True,
        ),
        Network(
            "clip",
            transformer(t.CLIPConfig(**clip), "CLIPModel", "logits_per_image", *seen),
            seen,
            ((2, 5, 3), (1, 1, 1), (3, 7, 2), (1, 9, 4), (2, 12, 1)),
            {"input_ids": 99},
        ),
        picture_network(
            "vit_interpolated",
            lambda: Call(
                t.ViTModel(t.ViTConfig(**vit)), lambda m, x: m(x, interpolate_pos_encoding=True)[0]
            ),
            BY_32,
        ),
        picture_network(
            "dinov2",
            lambda: Call(
                t.Dinov2Model(
                    t.Dinov2Config(
                        **{k: v for k, v in vit.items() if k != "patch_size"}, patch_size=16
                    )
                ),
                lambda m, x: m(x)[0],
            ),
            BY_32,
        ),
        picture_transformer(
            "segformer",
            t.SegformerConfig(
                depths=[1, 1, 1, 1],
                hidden_sizes=[8, 16, 24, 32],
                decoder_hidden_size=16,
                num_attention_heads=[1, 2, 2, 4],
            ),
            "SegformerForSemanticSegmentation",
            "logits",
        ),
        picture_transformer(
            "mobilevit",
            t.MobileViTConfig(
                hidden_sizes=[24, 32, 40], neck_hidden_sizes=[8, 12, 16, 24, 32, 40, 48]
            ),
            "MobileViTModel",
            "last_hidden_state",
        ),
        picture_transformer(
            "swin2sr",
            t.Swin2SRConfig(
                image_size=16,
                embed_dim=12,
                depths=[1, 1],
                num_heads=[2, 2],
                window_size=4,
                upscale=2,
            ),
            "Swin2SRForImageSuperResolution",
            "reconstruction",
            ((2, 24, 32), (1, 16, 16), (1, 21, 19), (3, 12, 18), (1, 33, 27)),
        ),
        picture_transformer(
            "glpn",
            t.GLPNConfig(
                depths=[1, 1, 1, 1],
                hidden_sizes=[8, 16, 24, 32],
                num_attention_heads=[1, 2, 2, 4],
                decoder_hidden_size=16,
            ),
            "GLPNForDepthEstimation",
            "predicted_depth",
        ),
        picture_transformer(
            "detr",
            t.DetrConfig(
                use_timm_backbone=True,
                use_pretrained_backbone=False,
                backbone="resnet18",
                num_queries=5,
                d_model=32,
                encoder_layers=1,
                decoder_layers=1,
                encoder_attention_heads=4,
                decoder_attention_heads=4,
                encoder_ffn_dim=37,
                decoder_ffn_dim=37,
            ),
            "DetrForObjectDetection",
            "logits",
        ),
        Network(
            "yolos",
            transformer(
                t.YolosConfig(**{**vit, "image_size": [64, 96]}, num_detection_tokens=5),
                "YolosModel",
                "last_hidden_state",
                "pixel_values",
            ),
            {"x": ("batch", 3, "height", "width")},
            BY_32,
        ),
        Network(
            "dpt",
            transformer(
                t.DPTConfig(
                    **{**vit, "num_hidden_layers": 4},
                    backbone_out_indices=[0, 1, 2, 3],
                    neck_hidden_sizes=[8, 16, 24, 32],
                    fusion_hidden_size=16,
                ),
                "DPTForDepthEstimation",
                "predicted_depth",
                "pixel_values",
            ),
            {"x": ("batch", 3, 64, 64)},
            BATCHES,
        ),
        Network("encodec", _encodec, {"x": ("batch", 1, "samples")}, SOUNDS),
        Network(
            "vits",
            _vits,
            {"ids": ("batch", "length")},
            ((1, 9), (1, 4), (1, 12), (1, 5), (1, 16)),
            {"ids": 38},
        ),
        Network(
            "sam_encoder",
            lambda: Call(
                t.SamVisionModel(
                    t.SamVisionConfig(
                        hidden_size=32,
                        output_channels=16,
                        num_hidden_layers=2,
                        num_attention_heads=4,
                        image_size=64,
                        window_size=3,
                        global_attn_indexes=[1],
                        mlp_dim=37,
                    )
                ),
                lambda m, x: m(x)[0],
            ),
            {"x": ("batch", 3, 64, 64)},
            BATCHES,
        ),
    ]


def _encodec() -> nn.Module:
    config = transformers.EncodecConfig(
        num_filters=4,
        hidden_size=16,
        codebook_size=32,
        codebook_dim=16,
        upsampling_ratios=[4, 2],
        num_lstm_layers=1,
    )
    model = transformers.EncodecModel(config)
    return Call(model, lambda module, x: module.decoder(module.encoder(x)))


def _vits() -> nn.Module:
    config = transformers.VitsConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        ffn_dim=24,
        flow_size=8,
        spectrogram_bins=17,
        upsample_initial_channel=16,
        upsample_rates=[4, 2],
        upsample_kernel_sizes=[8, 4],
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1, 3]],
        noise_scale=0.0,
        noise_scale_duration=0.0,
        use_stochastic_duration_prediction=False,
        prior_encoder_num_flows=2,
        prior_encoder_num_wavenet_layers=2,
        posterior_encoder_num_wavenet_layers=2,
    )
    return Call(transformers.VitsModel(config), lambda module, ids: module(ids).waveform)


def _diffusers() -> list[Network]:
    def unet() -> nn.Module:
        model = diffusers.UNet2DConditionModel(
            block_out_channels=(8, 16),
            layers_per_block=1,
            sample_size=16,
            in_channels=4,
            out_channels=4,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            cross_attention_dim=12,
            attention_head_dim=4,
            norm_num_groups=4,
        )
        return Call(model, lambda module, x, t, c: module(x, t, c, return_dict=False)[0])

    def vae(part: str) -> nn.Module:
        model = diffusers.AutoencoderKL(
            block_out_channels=(8, 16),
            layers_per_block=1,
            norm_num_groups=4,
            latent_channels=4,
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
        )
        if part == "encode":
            return Call(model, lambda module, x: module.encode(x, return_dict=False)[0].mode())
        return Call(model, lambda module, x: module.decode(x, return_dict=False)[0])

    latent = ("batch", 4, "height", "width")
    sizes = ((2, 16, 24, 5), (1, 8, 8, 1), (1, 12, 16, 7), (3, 4, 6, 9), (2, 10, 14, 3))
    pictures = tuple(size[:3] for size in sizes)
    return [
        Network(
            "diffusers_unet",
            unet,
            {"x": latent, "step": (1,), "context": ("batch", "length", 12)},
            sizes,
            {"step": 900},
        ),
        Network("vae_decoder", lambda: vae("decode"), {"x": latent}, pictures),
        picture_network("vae_encoder", lambda: vae("encode"), pictures),
    ]


def networks() -> list[Network]:
    """All networks."""
    return [
        *_hand_written(),
        *_torchvision(),
        *_more_vision(),
        *_timm_networks(),
        *_transformers(),
        *_more_transformers(),
        *_diffusers(),
    ]
