from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from compiler.cli.app import app
from compiler.cli.kernel_times import RUNTIME, KernelTime, Profile
from compiler.cli.profile import picture

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(autouse=True)
def _threads(monkeypatch):
    monkeypatch.setenv("TVM_NUM_THREADS", "1")  # the command sets it; this puts it back


def kernel(name, milliseconds, **fields):
    given = {"operators": ["relu"], "implementation": "Injective", "source": "topi:fallback"}
    given |= {"shapes": ["1x4"], "calls": 1, "share": 0.5, "gflops": 0.0, "gbytes": 0.0}
    return KernelTime(name=name, milliseconds=milliseconds, **{**given, **fields})


@pytest.mark.parametrize("of", ["model", "library"])
def test_json_has_time_share_rates_and_source_of_each_kernel(cli, request, of):
    path = request.getfixturevalue(of)
    result = cli.invoke(app, ["profile", str(path), "--repeat", "3", "--json"])
    assert result.exit_code == 0, result.stderr
    profile = json.loads(result.stdout)
    assert profile["repeats"] == 3
    assert profile["milliseconds"] > 0
    assert sum(each["share"] for each in profile["kernels"]) == pytest.approx(1)
    times = [each["milliseconds"] for each in profile["kernels"]]
    assert times == sorted(times, reverse=True)
    (conv,) = [k for k in profile["kernels"] if "conv2d" in " ".join(k["operators"])]
    assert conv["source"] == "topi:fallback"
    assert conv["calls"] == 1
    # 4 output channels of 8 x 8, 27 multiply-adds each but for taps in rows of padding, a rectifier
    flops = conv["gflops"] * conv["milliseconds"] * 1e6
    assert flops >= 4 * (64 * 27 - 2 * 8 * 9) * 2
    assert conv["gbytes"] > 0
    assert len(conv["shapes"]) >= 3
    assert RUNTIME in [each["name"] for each in profile["kernels"]]


def test_the_table_and_the_picture_show_the_kernels(cli, library, tmp_path):
    path = tmp_path / "profile.svg"
    result = cli.invoke(app, ["profile", str(library), "--repeat", "2", "--svg", str(path)])
    assert result.exit_code == 0, result.stderr
    assert "GFLOP/s" in result.stdout
    assert "conv2d" in result.stdout
    texts = [element.text for element in ElementTree.parse(path).iter(SVG + "text")]
    assert any("conv2d" in text for text in texts)


def test_bars_are_as_long_as_the_times_and_text_is_escaped():
    profile = Profile(
        "a<b&c.onnx", "llvm", 3.0, 5, [kernel("long<", 2.0), kernel("short", 1.0, gflops=7.0)]
    )
    drawing = ElementTree.fromstring(picture(profile))
    bars = [float(bar.get("width")) for bar in drawing.iter(SVG + "rect")][1:]
    assert bars[0] == 2 * bars[1]
    texts = [element.text for element in drawing.iter(SVG + "text")]
    assert texts[0].startswith("a<b&c.onnx: 3.000 ms")
    assert "long<" in texts
    assert any("7 GFLOP/s" in text for text in texts)


def test_a_picture_of_nothing_is_still_a_picture():
    assert ElementTree.fromstring(picture(Profile("m", "llvm", 0.0, 1, []))).tag == SVG + "svg"


def test_a_picture_that_cannot_be_written_is_one_line_of_error(cli, library, tmp_path):
    path = tmp_path / "missing" / "profile.svg"
    result = cli.invoke(app, ["profile", str(library), "--repeat", "1", "--svg", str(path)])
    assert result.exit_code == 1
    assert str(path) in result.stderr
