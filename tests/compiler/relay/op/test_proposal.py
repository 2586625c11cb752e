"""`vision.proposal` against the algorithm of Faster R-CNN's region proposals, box by box."""

import math

import numpy as np
import pytest

from compiler import relay
from compiler.errors import RelayTypeError


def anchors(scales, ratios, stride):
    for ratio in ratios:
        width = math.floor(math.sqrt(math.floor(stride * stride / ratio)) + 0.5)
        height = math.floor(width * ratio + 0.5)
        for scale in scales:
            half = np.array([width * scale - 1, height * scale - 1]) / 2
            center = (stride - 1) / 2
            yield np.concatenate([center - half, center + half])


def overlap(one, other):
    low, high = np.maximum(one[:2], other[:2]), np.minimum(one[2:], other[2:])
    both = np.prod(np.maximum(high - low + 1, 0))
    areas = [np.prod(box[2:] - box[:2] + 1) for box in (one, other)]
    return both / (sum(areas) - both)


def predicted(anchor, delta, iou_loss):
    if iou_loss:
        return anchor + delta
    size = anchor[2:] - anchor[:2] + 1
    center = delta[:2] * size + anchor[:2] + (size - 1) / 2
    half = (np.exp(delta[2:]) * size - 1) / 2
    return np.concatenate([center - half, center + half])


def proposals(
    scores, deltas, image, scales, ratios, feature_stride, threshold,
    rpn_pre_nms_top_n, rpn_post_nms_top_n, rpn_min_size, iou_loss,
):  # fmt: skip
    """The boxes of one sample."""
    shapes = list(anchors(scales, ratios, feature_stride))
    found = []
    for row, column in np.ndindex(scores.shape[1:]):
        for k, shape in enumerate(shapes):
            place = np.array([column, row, column, row]) * feature_stride
            delta = deltas[4 * k : 4 * k + 4, row, column]
            box = predicted(shape + place, delta, iou_loss)
            box = np.clip(box, 0, [image[1] - 1, image[0] - 1] * 2)
            score = scores[len(shapes) + k, row, column]
            if row >= int(image[0] / feature_stride) or column >= int(image[1] / feature_stride):
                score = -1
            least = image[2] * rpn_min_size
            if (box[2:] - box[:2] + 1 < least).any():
                box, score = box + np.array([-1, -1, 1, 1]) * least / 2, -1
            found.append((score, box))
    order = sorted(range(len(found)), key=lambda index: -found[index][0])
    left = [found[index][1] for index in order]
    left = left[:rpn_pre_nms_top_n] if rpn_pre_nms_top_n > 0 else left
    kept = []
    for box in left:
        if all(overlap(box, other) <= threshold for other in kept):
            kept.append(box)
    return [kept[index % len(kept)] for index in range(rpn_post_nms_top_n)]


@pytest.mark.parametrize("iou_loss", [False, True])
@pytest.mark.parametrize("first, last", [(-1, 40), (12, 5)])
def test_proposals_are_those_of_the_algorithm(iou_loss, first, last):
    batch, height, width = 2, 3, 4
    attrs = {
        "scales": (0.5, 2.0), "ratios": (0.5, 1.0, 2.0), "feature_stride": 16, "threshold": 0.6,
        "rpn_pre_nms_top_n": first, "rpn_post_nms_top_n": last, "rpn_min_size": 12,
        "iou_loss": iou_loss,
    }  # fmt: skip
    rng = np.random.default_rng(0)
    scores = rng.permutation(batch * 12 * height * width).reshape(batch, 12, height, width) / 300
    deltas = rng.normal(0, 3 if iou_loss else 0.4, (batch, 24, height, width))
    values = [
        scores.astype("float32"),
        deltas.astype("float32"),
        np.array([[48, 60, 1], [40, 64, 1.5]], "float32"),  # the second has two rows of cells
    ]
    names = ["cls_prob", "bbox_pred", "im_info"]
    variables = [
        relay.var(name, shape=value.shape, dtype="float32") for name, value in zip(names, values)
    ]
    function = relay.Function(variables, relay.vision.proposal(*variables, **attrs))
    got = relay.create_executor("graph").evaluate(function)(*values).numpy()
    assert got.shape == (batch * last, 5)
    np.testing.assert_array_equal(got[:, 0], np.repeat(np.arange(batch), last))
    wanted = [box for sample in zip(*values) for box in proposals(*sample, **attrs)]
    np.testing.assert_allclose(got[:, 1:], wanted, rtol=1e-4, atol=1e-3)


def test_anchors_and_channels_must_fit():
    shapes = [(1, 4, 3, 3), (1, 4, 3, 3), (1, 3)]
    variables = [relay.var("x", shape=shape) for shape in shapes]
    with pytest.raises(RelayTypeError, match="1 anchors need cls_prob of 2 channels"):
        relay.vision.proposal(*variables, (1.0,), (1.0,), 16, 0.7, -1, 4, 16, False)


@pytest.mark.parametrize("columns", [3, 5])
def test_suppression_of_boxes_without_four_coordinates_is_an_error(columns):
    boxes = relay.var("boxes", shape=(1, 8, columns))
    counts = relay.var("counts", shape=(1,), dtype="int32")
    indices = relay.var("indices", shape=(1, 8), dtype="int32")
    with pytest.raises(RelayTypeError, match="boxes need at least 6 elements"):
        relay.vision.non_max_suppression(boxes, counts, indices)
