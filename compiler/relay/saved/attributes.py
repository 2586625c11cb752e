"""Attribute classes of saved modules: fields and their encodings."""

from __future__ import annotations

import functools
from typing import Any

from ...errors import SavedModuleError
from .graph import Graph

# One class per paragraph, `field:kind`. Inline values: i integer, d float, b bool, s string,
# t dtype. Node references: S string, E dimension or scalar, I integer, F float, B boxed number,
# V virtual device, X expression; `*` array, `**` array of arrays, `?` nullable.
_FIELDS = """
AdaptivePool1DAttrs output_size:E* layout:s out_layout:S
AdaptivePool2DAttrs output_size:E* layout:s out_layout:S
AdaptivePool3DAttrs output_size:E* layout:s out_layout:S
AffineGridAttrs target_shape:E*
AllClassNonMaximumSuppressionAttrs output_format:s
ArangeAttrs start:X stop:X step:X dtype:t
ArgReduceAttrs axis:I* keepdims:b select_last_index:b exclude:b
ArgsortAttrs axis:i is_ascend:b dtype:t
AutoSchedulerLayoutTransformAttrs src_layout:s dst_layout:s
AvgPool1DAttrs pool_size:E* strides:E* dilation:E* padding:E* layout:s out_layout:S ceil_mode:b
  count_include_pad:b
AvgPool2DAttrs pool_size:E* strides:E* dilation:E* padding:E* layout:S out_layout:S ceil_mode:b
  count_include_pad:b
AvgPool3DAttrs pool_size:E* strides:E* dilation:E* padding:E* layout:s out_layout:S ceil_mode:b
  count_include_pad:b
BatchMatmulAttrs out_dtype:t transpose_a:b transpose_b:b
BatchNormAttrs axis:i epsilon:d center:b scale:b
BatchToSpaceNDAttrs block_shape:I* crops:E**
BiasAddAttrs axis:i
BinaryConv2DAttrs strides:E* padding:E* kernel_size:E* channels:E activation_bits:i
  weight_bits:i data_layout:s kernel_layout:s pack_dtype:t out_dtype:t unipolar:b
BinaryDenseAttrs units:E data_bits:i weight_bits:i pack_dtype:t out_dtype:t unipolar:b
BitPackAttrs bits:i pack_axis:i bit_axis:i pack_type:t name:s
BroadcastAttrs lhs_axis:i rhs_axis:i
CastAttrs dtype:t
CastHintAttrs dtype:t
ClipAttrs a_min:d a_max:d
CompilerAttrs compiler:s
ConcatenateAttrs axis:i
Conv1DAttrs strides:E* padding:E* dilation:E* groups:i channels:E kernel_size:E* data_layout:S
  kernel_layout:S out_layout:S out_dtype:t
Conv1DTransposeAttrs channels:E kernel_size:E* strides:E* output_padding:E* padding:E*
  dilation:E* groups:i data_layout:s kernel_layout:s out_layout:s out_dtype:t
Conv2DAttrs strides:E* padding:E* dilation:E* groups:i channels:E kernel_size:E* data_layout:S
  kernel_layout:S out_layout:S out_dtype:t
Conv2DTransposeAttrs channels:E kernel_size:E* strides:E* output_padding:E* padding:E*
  dilation:E* groups:i data_layout:s kernel_layout:s out_layout:s out_dtype:t
Conv2DWinogradAttrs tile_size:i strides:E* padding:E* dilation:E* groups:i channels:E
  kernel_size:E* data_layout:S kernel_layout:S out_layout:S out_dtype:t
Conv2DWinogradNNPACKWeightTransformAttrs convolution_algorithm:i out_dtype:t
Conv3DAttrs strides:E* padding:E* dilation:E* groups:i channels:E kernel_size:E* data_layout:S
  kernel_layout:S out_layout:S out_dtype:t
Conv3DTransposeAttrs channels:E kernel_size:E* strides:E* output_padding:E* padding:E*
  dilation:E* groups:i data_layout:S kernel_layout:S out_layout:S out_dtype:t
Conv3DWinogradAttrs tile_size:i strides:E* padding:E* dilation:E* groups:i channels:E
  kernel_size:E* data_layout:s kernel_layout:s out_layout:s out_dtype:t
ConvGemmWeightTransformAttrs tile_N:i tile_K:i
ConvWinogradWeightTransformAttrs tile_size:i
CorrelationAttrs kernel_size:i max_displacement:i stride1:i stride2:i padding:E* is_multiply:b
  layout:S
CropAndResizeAttrs crop_size:E* layout:s method:s extrapolation_value:d out_dtype:t
DFTAttrs inverse:I
DeformableConv2DAttrs strides:E* padding:E* dilation:E* deformable_groups:i groups:i channels:E
  kernel_size:E* data_layout:s kernel_layout:s out_layout:s out_dtype:t
DenseAttrs units:E out_dtype:t
DensePackAttrs units:E out_dtype:t weight_layout:S
DequantizeAttrs out_dtype:t axis:i
DeviceCopyAttrs src_virtual_device:V dst_virtual_device:V
DilateAttrs strides:E* dilation_value:d
Dilation2DAttrs strides:E* padding:E* dilations:E* data_layout:s kernel_layout:s out_dtype:t
DropoutAttrs rate:d
DynExpandDimsAttrs num_newaxis:i
EinsumAttrs equation:S
ExpandDimsAttrs axis:i num_newaxis:i
FIFOBufferAttrs axis:i
FixedPointMultiplyAttrs multiplier:i shift:i
FixedPointMultiplyPerAxisAttrs is_lshift_required:b is_rshift_required:b axes:I*
GatherAttrs axis:I
GatherNDAttrs batch_dims:I index_rank:I?
GetValidCountsAttrs score_threshold:F? id_index:i score_index:i
GlobalPool2DAttrs layout:S out_layout:S
GridSampleAttrs method:S layout:S padding_mode:S align_corners:b
GroupNormAttrs num_groups:i axis:i epsilon:d center:b scale:b
InitOpAttrs shape:I*? dtype:t
InstanceNormAttrs axis:i epsilon:d center:b scale:b
L2NormalizeAttrs eps:d axis:I*
LRNAttrs size:i axis:i bias:d alpha:d beta:d
LayerNormAttrs axis:i epsilon:d center:b scale:b
LayoutTransformAttrs src_layout:s dst_layout:s
LeakyReluAttrs alpha:d
MatmulAttrs units:E out_dtype:t transpose_a:b transpose_b:b
MatrixSetDiagAttrs k1:i k2:i super_diag_right_align:b sub_diag_right_align:b
MaxPool1DAttrs pool_size:E* strides:E* dilation:E* padding:E* layout:s out_layout:S ceil_mode:b
MaxPool2DAttrs pool_size:E* strides:E* dilation:E* padding:E* layout:S out_layout:S ceil_mode:b
MaxPool3DAttrs pool_size:E* strides:E* dilation:E* padding:E* layout:s out_layout:S ceil_mode:b
MeshgridAttrs indexing:s
MetaScheduleLayoutTransformAttrs index_map:map
MirrorPadAttrs mode:s pad_width:E**
MultiBoxPriorAttrs sizes:E* ratios:E* steps:E* offsets:E* clip:b
MultiBoxTransformLocAttrs clip:b threshold:d variances:E* keep_background:b
MultinomialAttrs num_samples:I
NLLLossAttrs reduction:s ignore_index:i
NdarraySizeAttrs dtype:t
NonMaximumSuppressionAttrs force_suppress:b top_k:i coord_start:i score_index:i id_index:i
  return_indices:b invalid_to_bottom:b
NormalAttrs out_shape:I* out_dtype:t
OnDeviceAttrs virtual_device:V constrain_result:b constrain_body:b
OneHotAttrs depth:i axis:i dtype:t
PReluAttrs axis:i
PadAttrs pad_width:I** pad_mode:S
ProposalAttrs scales:E* ratios:E* feature_stride:i threshold:d rpn_pre_nms_top_n:i
  rpn_post_nms_top_n:i rpn_min_size:i iou_loss:b
QuantizeAttrs out_dtype:t axis:i
ROIAlignAttrs pooled_size:E* spatial_scale:d sample_ratio:i layout:s mode:s
ROIPoolAttrs pooled_size:E* spatial_scale:d layout:s
ReduceAttrs axis:I* keepdims:b exclude:b
RegularNonMaximumSuppressionAttrs max_detections_per_class:i max_detections:i num_classes:i
  iou_threshold:d score_threshold:d
RepeatAttrs repeats:I axis:I
RequantizeAttrs axis:i rounding:s compute_dtype:s out_dtype:t
ReshapeAttrs newshape:I* allowzero:b
ReshapeLikeAttrs lhs_begin:i lhs_end:I rhs_begin:i rhs_end:I
Resize1DAttrs size:E* roi:F* layout:s method:s coordinate_transformation_mode:s
  rounding_method:s cubic_alpha:d cubic_exclude:i extrapolation_value:d out_dtype:t
Resize2DAttrs size:E* roi:F* layout:s method:s coordinate_transformation_mode:s
  rounding_method:s cubic_alpha:d cubic_exclude:i extrapolation_value:d out_dtype:t
Resize3DAttrs size:E* roi:F* layout:s method:s coordinate_transformation_mode:s
  rounding_method:s cubic_alpha:d cubic_exclude:i extrapolation_value:d out_dtype:t
ReverseAttrs axis:I
ReverseSequenceAttrs seq_axis:I batch_axis:I
ScanopAttrs axis:I dtype:t exclusive:I
ScatterElementsAttrs axis:I reduction:S
ScatterNDAttrs mode:S
SearchSortedAttrs right:b dtype:t
SequenceMaskAttrs mask_value:d axis:i
ShapeOfAttrs dtype:t
SimulatedQuantizeAttrs axis:i kind:i sign:b rounding:s
SliceLikeAttrs axes:I*
SlidingWindowAttrs axis:i window_shape:I* strides:I*
SoftmaxAttrs axis:i
SpaceToBatchNDAttrs block_shape:I* paddings:E** pad_value:d
SparseConv2DAttrs layout:s kernel_size:E*
SparseDenseAttrs sparse_lhs:b
SparseToDenseAttrs output_shape:I*
SparseTransposeAttrs
SplitAttrs indices_or_sections:B|B* axis:i
SqueezeAttrs axis:I*
StackAttrs axis:I
StftAttrs n_fft:i hop_length:i win_length:i normalized:b onesided:b
StridedSliceAttrs begin:I*? end:I*? strides:I*? slice_mode:S axes:I*?
SubPixelAttrs block_size:i layout:s mode:s
TakeAttrs batch_dims:I axis:I mode:S
ThreefryGenerateAttrs out_shape:I*
TileAttrs reps:I*
TopkAttrs k:I? axis:i ret_type:s is_ascend:b dtype:t
TransposeAttrs axes:I*
TriluAttrs upper:b
UniformAttrs out_shape:I* out_dtype:t
UniqueAttrs sorted:b return_counts:b
UpSampling3DAttrs scale_d:d scale_h:d scale_w:d layout:s method:s
  coordinate_transformation_mode:s
UpSamplingAttrs scale_h:d scale_w:d layout:S method:S align_corners:b
VarianceAttrs axis:I* keepdims:b exclude:b unbiased:b
YoloReorgAttrs stride:I
"""

_PREFIX = "relay.attrs."


@functools.lru_cache(maxsize=1)
def classes() -> dict[str, dict[str, str]]:
    """Map class names, without `relay.attrs.`, to fields and their kinds."""
    found: dict[str, dict[str, str]] = {}
    fields: dict[str, str] = {}
    for line in _FIELDS.strip().splitlines():
        words = line.split()
        if not line.startswith(" "):
            fields = found.setdefault(words.pop(0), {})
        fields.update(word.split(":") for word in words)  # type: ignore[misc]
    return found


def read_attributes(graph: Graph, index: int) -> dict[str, Any]:
    """Decode the attributes of a call to plain Python values; omits null values.

    Raises SavedModuleError: the class is unknown, or a field has the wrong kind.
    """
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
    if form in "sStS?":
        text = graph.text(index, name)
        return text or (None if form == "t" else "")
    return graph.value(graph.node(index, name))
