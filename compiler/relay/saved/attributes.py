"""Attribute classes of saved modules: fields and their encodings."""

from __future__ import annotations

import functools
import re
from typing import Any

from ...errors import SavedModuleError
from .graph import Graph

# Classes (without `Attrs`) | `field:kind`. Inline values: i integer, d float, b bool, t dtype,
# s string or reference to a String node. Fields without a kind refer to a node.
_FIELDS = """
AdaptivePool1D AdaptivePool2D AdaptivePool3D | output_size layout:s out_layout:s
AffineGrid | target_shape
AllClassNonMaximumSuppression | output_format:s
Arange | start stop step dtype:t
ArgReduce | axis keepdims:b select_last_index:b exclude:b
Argsort | axis:i is_ascend:b dtype:t
AutoSchedulerLayoutTransform LayoutTransform | src_layout:s dst_layout:s
AvgPool1D AvgPool2D AvgPool3D | pool_size strides dilation padding layout:s out_layout:s ceil_mode:b
  count_include_pad:b
BatchMatmul | out_dtype:t transpose_a:b transpose_b:b
BatchNorm InstanceNorm LayerNorm | axis:i epsilon:d center:b scale:b
BatchToSpaceND | block_shape crops
BiasAdd Concatenate FIFOBuffer PRelu Softmax | axis:i
BinaryConv2D | strides padding kernel_size channels activation_bits:i weight_bits:i data_layout:s
  kernel_layout:s pack_dtype:t out_dtype:t unipolar:b
BinaryDense | units data_bits:i weight_bits:i pack_dtype:t out_dtype:t unipolar:b
BitPack | bits:i pack_axis:i bit_axis:i pack_type:t name:s
Broadcast | lhs_axis:i rhs_axis:i
Cast CastHint NdarraySize ShapeOf | dtype:t
Clip | a_min:d a_max:d
Compiler | compiler:s
Conv1D Conv2D Conv3D | strides padding dilation groups:i channels kernel_size data_layout:s
  kernel_layout:s out_layout:s out_dtype:t
Conv1DTranspose Conv2DTranspose Conv3DTranspose | channels kernel_size strides output_padding
  padding dilation groups:i data_layout:s kernel_layout:s out_layout:s out_dtype:t
Conv2DWinograd Conv3DWinograd | tile_size:i strides padding dilation groups:i channels kernel_size
  data_layout:s kernel_layout:s out_layout:s out_dtype:t
Conv2DWinogradNNPACKWeightTransform | convolution_algorithm:i out_dtype:t
ConvGemmWeightTransform | tile_N:i tile_K:i
ConvWinogradWeightTransform | tile_size:i
Correlation | kernel_size:i max_displacement:i stride1:i stride2:i padding is_multiply:b layout:s
CropAndResize | crop_size layout:s method:s extrapolation_value:d out_dtype:t
DFT | inverse
DeformableConv2D | strides padding dilation deformable_groups:i groups:i channels kernel_size
  data_layout:s kernel_layout:s out_layout:s out_dtype:t
Dense | units out_dtype:t
DensePack | units out_dtype:t weight_layout:s
Dequantize Quantize | out_dtype:t axis:i
DeviceCopy | src_virtual_device dst_virtual_device
Dilate | strides dilation_value:d
Dilation2D | strides padding dilations data_layout:s kernel_layout:s out_dtype:t
Dropout | rate:d
DynExpandDims | num_newaxis:i
Einsum | equation:s
ExpandDims | axis:i num_newaxis:i
FixedPointMultiply | multiplier:i shift:i
FixedPointMultiplyPerAxis | is_lshift_required:b is_rshift_required:b axes
Gather Reverse Squeeze Stack | axis
GatherND | batch_dims index_rank
GetValidCounts | score_threshold id_index:i score_index:i
GlobalPool2D | layout:s out_layout:s
GridSample | method:s layout:s padding_mode:s align_corners:b
GroupNorm | num_groups:i axis:i epsilon:d center:b scale:b
InitOp | shape dtype:t
L2Normalize | eps:d axis
LRN | size:i axis:i bias:d alpha:d beta:d
LeakyRelu | alpha:d
Matmul | units out_dtype:t transpose_a:b transpose_b:b
MatrixSetDiag | k1:i k2:i super_diag_right_align:b sub_diag_right_align:b
MaxPool1D MaxPool2D MaxPool3D | pool_size strides dilation padding layout:s out_layout:s ceil_mode:b
Meshgrid | indexing:s
MetaScheduleLayoutTransform | index_map
MirrorPad | mode:s pad_width
MultiBoxPrior | sizes ratios steps offsets clip:b
MultiBoxTransformLoc | clip:b threshold:d variances keep_background:b
Multinomial | num_samples
NLLLoss | reduction:s ignore_index:i
NonMaximumSuppression | force_suppress:b top_k:i coord_start:i score_index:i id_index:i
  return_indices:b invalid_to_bottom:b
Normal Uniform | out_shape out_dtype:t
OnDevice | virtual_device constrain_result:b constrain_body:b
OneHot | depth:i axis:i dtype:t
Pad | pad_width pad_mode:s
Proposal | scales ratios feature_stride:i threshold:d rpn_pre_nms_top_n:i rpn_post_nms_top_n:i
  rpn_min_size:i iou_loss:b
ROIAlign | pooled_size spatial_scale:d sample_ratio:i layout:s mode:s
ROIPool | pooled_size spatial_scale:d layout:s
Reduce | axis keepdims:b exclude:b
RegularNonMaximumSuppression | max_detections_per_class:i max_detections:i num_classes:i
  iou_threshold:d score_threshold:d
Repeat | repeats axis
Requantize | axis:i rounding:s compute_dtype:s out_dtype:t
Reshape | newshape allowzero:b
ReshapeLike | lhs_begin:i lhs_end rhs_begin:i rhs_end
Resize1D Resize2D Resize3D | size roi layout:s method:s coordinate_transformation_mode:s
  rounding_method:s cubic_alpha:d cubic_exclude:i extrapolation_value:d out_dtype:t
ReverseSequence | seq_axis batch_axis
Scanop | axis dtype:t exclusive
ScatterElements | axis reduction:s
ScatterND | mode:s
SearchSorted | right:b dtype:t
SequenceMask | mask_value:d axis:i
SimulatedQuantize | axis:i kind:i sign:b rounding:s
SliceLike Transpose | axes
SlidingWindow | axis:i window_shape strides
SpaceToBatchND | block_shape paddings pad_value:d
SparseConv2D | layout:s kernel_size
SparseDense | sparse_lhs:b
SparseToDense | output_shape
SparseTranspose |
Split | indices_or_sections axis:i
Stft | n_fft:i hop_length:i win_length:i normalized:b onesided:b
StridedSlice | begin end strides slice_mode:s axes
SubPixel | block_size:i layout:s mode:s
Take | batch_dims axis mode:s
ThreefryGenerate | out_shape
Tile | reps
Topk | k axis:i ret_type:s is_ascend:b dtype:t
Trilu | upper:b
Unique | sorted:b return_counts:b
UpSampling3D | scale_d:d scale_h:d scale_w:d layout:s method:s coordinate_transformation_mode:s
UpSampling | scale_h:d scale_w:d layout:s method:s align_corners:b
Variance | axis keepdims:b exclude:b unbiased:b
YoloReorg | stride
"""

_PREFIX = "relay.attrs."


@functools.lru_cache(maxsize=1)
def classes() -> dict[str, dict[str, str]]:
    """Map class names, without `relay.attrs.`, to fields and their kinds."""
    found: dict[str, dict[str, str]] = {}
    for paragraph in re.split(r"\n(?! )", _FIELDS.strip()):
        names, _, held = paragraph.partition("|")
        fields = {name: kind for name, _, kind in (each.partition(":") for each in held.split())}
        found.update((f"{name}Attrs", fields) for name in names.split())
    return found


def read_attributes(graph: Graph, index: int) -> dict[str, Any]:
    """Decode a call's attributes, omitting nulls; SavedModuleError for unknown classes or kinds."""
    kind = graph.kind(index)
    if kind == "":
        return {}
    if kind == "DictAttrs":
        held = graph.value(index)
        if not isinstance(held, dict):
            raise graph.error(index, "its `__dict__` is not a Map")
        return held
    fields = classes().get(kind.removeprefix(_PREFIX))
    if fields is None or not kind.startswith(_PREFIX):
        raise SavedModuleError(
            f"{graph.source}: node {index}: attributes of the class {kind} are not known"
        )
    found = {}
    for name, form in fields.items():
        if graph.has(index, name):
            value = _read_field(graph, index, name, form)
            if value is not None:
                found[name] = value
    return found


def _read_field(graph: Graph, index: int, name: str, form: str) -> Any:
    if form == "i":
        return graph.integer(index, name)
    if form == "b":
        return bool(graph.integer(index, name))
    if form == "d":
        return graph.real(index, name)
    if form in ("s", "t"):
        text = graph.text(index, name)
        return text or (None if form == "t" else "")
    return graph.value(graph.node(index, name))
