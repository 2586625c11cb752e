"""Operators of com.microsoft that are not supported, and why."""

from __future__ import annotations

_FAMILIES = {
    "it generates tokens by a loop of its own": """
        BeamSearch GreedySearch Sampling WhisperBeamSearch""",
    "the shape of its result depends on values": """
        BifurcationDetector DynamicTimeWarping RemovePadding Tokenizer""",
    "it is an engine of another runtime": "EPContext Snpe",
    "it quantizes inside of a recurrence; the model before quantization can be imported": """
        DynamicQuantizeLSTM""",
    "its weights are stored for one kind of GPU or in floats of less than 16 bits": """
        DequantizeBFP DequantizeWithOrder GemmFloat8 MatMulBlockQuantizedFp4Weight
        MatMulBlockQuantizedFp8Weight MatMulFpQ4 QOrderedAttention QOrderedGelu
        QOrderedLayerNormalization QOrderedLongformerAttention QOrderedMatMul QuantizeBFP
        QuantizeWithOrder""",
    "a sparse tensor can't be an operand": "SparseToDenseMatMul",
    "sequences of one batch lie one behind the other, or in pages": """
        GatherPacked MatMulPacked MoEPacked PackedAttention PackedMultiHeadAttention
        PackedSparseAttentionIndexer PackedSparseAttentionIndexerMerge PagedAttention
        RestorePadding SparsePagedAttention VarlenCausalConvWithState VarlenNGramHashMapping""",
    "there is no converter for attention of this kind": """
        DecoderAttention DecoderMaskedSelfAttention DynamicSparseAttention
        GatedRelativePositionBias LongformerAttention MRotaryEmbedding RelativePositionBias
        RMSNormRotary SparseAttention SparseAttentionIndexer""",
    "there is no converter for a mixture of experts": """
        MoE MoEGroupRouter QMoE RouterGateUpProj""",
    "there is no converter for a recurrence of this kind": """
        AttnLSTM CausalConvWithState ConvStateReplay GatedDeltaNet GatedDeltaNetStateReplay
        LinearAttention LinearAttentionGate Mamba2Verify SpeculativePrefixCommit""",
    "there is no converter for products that are fused for a GPU": """
        MatMulNBitsMlp MatMulNBitsQLoRA MatMulNBitsQkv""",
    "there is no converter for it": """
        BranchwiseRMSNorm CropAndResize EngramGate HyperConnectionLowRankMix
        HyperConnectionPostMix HyperConnectionPreMix MaxpoolWithMask MurmurHash3
        NGramHashMapping WordConvEmbedding""",
}

REASONS = {name: reason for reason, names in _FAMILIES.items() for name in names.split()}
