"""Models of torchvision, timm and transformers with random weights, and arguments for them.

Weights come from the constructors alone, nothing is downloaded.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

FAMILIES = ("torchvision", "timm", "transformers")


@dataclass(frozen=True)
class Model:
    """A model by its name in its family."""

    name: str
    family: str
    shape: tuple[int, ...]
    """Of its image, film, sound or text (tokens), without the batch."""
    note: str = ""
    """How its configuration differs from the published base one."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of its constructor, of a transformer its configuration's."""
    inputs: str = "image"
    """Key of `_INPUTS`."""

    def build(self) -> torch.nn.Module:
        """The model for inference; its weights are the same in each process."""
        torch.manual_seed(0)
        model = _BUILD[self.family](self).eval()
        _randomize(model)
        return model

    def arguments(self, batch: int = 1) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and named arguments, the same in each process."""
        torch.manual_seed(1)
        return _INPUTS[self.inputs]((batch, *self.shape))


def _randomize(model: torch.nn.Module) -> None:
    """Draw what starts as one constant (scales of 1e-6, zeros), which would hide what it scales."""
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            is_statistic = name.endswith(("running_mean", "running_var"))
            is_weight = isinstance(value, torch.nn.Parameter)
            if not (is_statistic or is_weight) or value.numel() < 2 or value.min() != value.max():
                continue
            if value.flatten()[0] == 0:
                value.normal_(0, 0.1)
            else:
                value.uniform_(0.5, 1.5)


def _torchvision(model: Model) -> torch.nn.Module:
    import torchvision

    given = dict(model.settings)
    if model.name in ("inception_v3", "googlenet"):
        given |= {"init_weights": True, "aux_logits": False}
    return torchvision.models.get_model(model.name, weights=None, **given)


def _timm(model: Model) -> torch.nn.Module:
    import timm

    return timm.create_model(model.name, pretrained=False, **model.settings)


def _transformers(model: Model) -> torch.nn.Module:
    module = importlib.import_module("transformers")
    config = getattr(module, f"{model.name}Config")(**model.settings)
    return getattr(module, f"{model.name}Model")(config)


_BUILD: dict[str, Callable[[Model], torch.nn.Module]] = {
    "torchvision": _torchvision,
    "timm": _timm,
    "transformers": _transformers,
}

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def _image(shape: tuple[int, ...]) -> Arguments:
    return (torch.randn(shape),), {}


def _pair(shape: tuple[int, ...]) -> Arguments:
    return (torch.randn(shape), torch.randn(shape)), {}


def _ids(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randint(3, 1000, shape)


def _text(shape: tuple[int, ...]) -> Arguments:
    """Tokens, and a mask without the last quarter of them, as padded texts have."""
    mask = torch.ones(shape, dtype=torch.int64)
    mask[:, shape[1] - shape[1] // 4 :] = 0
    return (), {"input_ids": _ids(shape), "attention_mask": mask}


def _tokens(shape: tuple[int, ...]) -> Arguments:
    return (), {"input_ids": _ids(shape)}


def _translation(shape: tuple[int, ...]) -> Arguments:
    return (), {"input_ids": _ids(shape), "decoder_input_ids": _ids(shape)}


def _pixels(shape: tuple[int, ...]) -> Arguments:
    return (), {"pixel_values": torch.randn(shape)}


def _captions(shape: tuple[int, ...]) -> Arguments:
    return (), {"input_ids": _ids((shape[0], 16)), "pixel_values": torch.randn(shape)}


def _sound(shape: tuple[int, ...]) -> Arguments:
    return (), {"input_values": torch.randn(shape)}


def _speech(shape: tuple[int, ...]) -> Arguments:
    return (), {"input_features": torch.randn(shape), "decoder_input_ids": _ids((shape[0], 16))}


_INPUTS: dict[str, Callable[[tuple[int, ...]], Arguments]] = {
    "captions": _captions,
    "image": _image,
    "pair": _pair,
    "pixels": _pixels,
    "sound": _sound,
    "speech": _speech,
    "text": _text,
    "tokens": _tokens,
    "translation": _translation,
}


def _vision(names: str, family: str, shape: tuple[int, ...] = (3, 224, 224)) -> list[Model]:
    return [Model(name, family, shape) for name in names.split()]


_NO_CACHE: dict[str, Any] = {"use_cache": False}
_SMALL: dict[str, Any] = {
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": 32000,
    **_NO_CACHE,
}
_SMALL_NOTE = "8 layers of 512"


def _transformer(
    name: str, inputs: str, shape: tuple[int, ...], note: str = "", **settings: Any
) -> Model:
    return Model(name, "transformers", shape, note, settings, inputs)


MODELS: tuple[Model, ...] = (
    *_vision(
        "alexnet vgg11_bn resnet18 resnet50 resnext50_32x4d wide_resnet50_2 squeezenet1_1 "
        "densenet121 googlenet mobilenet_v2 mobilenet_v3_small mobilenet_v3_large "
        "shufflenet_v2_x1_0 mnasnet1_0 efficientnet_b0 efficientnet_v2_s regnet_x_400mf "
        "regnet_y_400mf convnext_tiny vit_b_16 swin_t swin_v2_t maxvit_t",
        "torchvision",
    ),
    Model("inception_v3", "torchvision", (3, 299, 299)),
    *(
        Model(name, "torchvision", (3, 224, 224), settings={"weights_backbone": None})
        for name in ("fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large")
    ),
    *_vision("r3d_18 r2plus1d_18", "torchvision", (3, 8, 112, 112)),
    Model("raft_small", "torchvision", (3, 128, 128), inputs="pair"),
    *_vision(
        "resnet26d seresnet50 ecaresnet26t res2net50_26w_4s resnest14d dpn68 dla34 "
        "hrnet_w18_small cspdarknet53 selecsls42b repvgg_a0 mobileone_s0 gernet_s "
        "nf_regnet_b0 tf_efficientnetv2_b0 mobilenetv4_conv_small "
        "mobilenetv4_hybrid_medium fbnetc_100 ghostnet_100 lcnet_100 tinynet_a rexnet_100 "
        "vit_tiny_patch16_224 deit_tiny_distilled_patch16_224 beit_base_patch16_224 "
        "cait_xxs24_224 convit_tiny pit_ti_224 levit_128s xcit_nano_12_p16_224 "
        "efficientformer_l1 mobilevit_s mobilevitv2_050 edgenext_xx_small poolformer_s12 "
        "mixer_s32_224 resmlp_12_224 gmlp_ti16_224 twins_svt_small pvt_v2_b0 "
        "tiny_vit_5m_224 fastvit_t8 convnextv2_atto convmixer_768_32 focalnet_tiny_srf "
        "davit_tiny efficientvit_b0 efficientvit_m0 starnet_s1 mambaout_femto "
        "inception_next_atto hiera_tiny_224 swinv2_cr_tiny_ns_224",
        "timm",
    ),
    Model("crossvit_tiny_240", "timm", (3, 240, 240)),
    *(
        _transformer(name, "text", (128,))
        for name in ("Bert", "Roberta", "DistilBert", "MPNet", "Electra", "MobileBert")
    ),
    _transformer(
        "Albert", "text", (128,), hidden_size=768, num_attention_heads=12, intermediate_size=3072
    ),
    _transformer(
        "DebertaV2",
        "text",
        (128,),
        "12 layers of 384, of the small model",
        hidden_size=384,
        num_hidden_layers=12,
        num_attention_heads=6,
        intermediate_size=1536,
        relative_attention=True,
        position_buckets=256,
        pos_att_type=["p2c", "c2p"],
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        position_biased_input=False,
        type_vocab_size=0,
    ),
    _transformer("FNet", "tokens", (128,)),
    _transformer(
        "XLNet", "text", (128,), "6 layers of 512", d_model=512, n_layer=6, n_head=8, d_inner=2048
    ),
    _transformer("RoFormer", "text", (128,)),
    _transformer("GPT2", "text", (128,), **_NO_CACHE),
    _transformer(
        "GPTNeo",
        "text",
        (128,),
        "12 layers of 768, of the 125M model",
        hidden_size=768,
        num_layers=12,
        num_heads=12,
        attention_types=[[["global", "local"], 6]],
        **_NO_CACHE,
    ),
    _transformer("OPT", "text", (128,), **_NO_CACHE),
    *(
        _transformer(name, "text", (128,), _SMALL_NOTE, **_SMALL)
        for name in ("Llama", "Mistral", "Qwen2", "Qwen3", "Gemma", "Gemma2")
    ),
    _transformer(
        "Phi", "text", (128,), _SMALL_NOTE, **{k: v for k, v in _SMALL.items() if k != "head_dim"}
    ),
    _transformer(
        "GPTNeoX",
        "text",
        (128,),
        _SMALL_NOTE,
        **{k: v for k, v in _SMALL.items() if k not in ("head_dim", "num_key_value_heads")},
    ),
    _transformer(
        "Mixtral",
        "text",
        (32,),
        "4 layers of 256, 8 experts",
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=32000,
        **_NO_CACHE,
    ),
    _transformer(
        "Mamba",
        "tokens",
        (32,),
        "4 layers of 256",
        hidden_size=256,
        num_hidden_layers=4,
        **_NO_CACHE,
    ),
    _transformer("T5", "translation", (64,), **_NO_CACHE),
    _transformer(
        "Bart",
        "translation",
        (64,),
        "6 layers of 768, of the base model",
        d_model=768,
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=12,
        decoder_attention_heads=12,
        encoder_ffn_dim=3072,
        decoder_ffn_dim=3072,
        **_NO_CACHE,
    ),
    *(
        _transformer(name, "pixels", (3, 224, 224))
        for name in (
            "ViT",
            "DeiT",
            "Beit",
            "Dinov2",
            "Swin",
            "ConvNext",
            "Segformer",
            "MobileViT",
            "PoolFormer",
        )
    ),
    _transformer("CLIP", "captions", (3, 224, 224)),
    _transformer("Wav2Vec2", "sound", (16000,)),
    _transformer("Hubert", "sound", (16000,)),
    _transformer("Whisper", "speech", (80, 3000), **_NO_CACHE),
)
