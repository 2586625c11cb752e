"""The page of a library's report: what is in it, that nothing of a model is code, a browser."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import onnx
import pytest
import tvm

from compiler.cli.app import app
from compiler.cli.compile import BuildOptions, compile_model
from compiler.cli.kernel_times import KernelTime, Profile
from compiler.cli.report_page import Machine, Page
from compiler.cli.vm_program import Call, Program, Tensor, read_program
from compiler.errors import LoadError
from compiler.lowering.report import Kernel, Report
from compiler.runtime import foreign
from compiler.runtime.metadata import Metadata

from ..browser import BROWSER, probe
from .test_replay import DENSE, NOPACK, record

EVIL = "</title></script><script>document.title='run'</script><img src=x onerror=alert(1)>\"'"


class Reader(HTMLParser):
    """Tags, texts of titles, and classes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.nodes: list[dict[str, str | None]] = []
        self.titles: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        found = dict(attrs)
        if tag == "g" and "node" in (found.get("class") or "").split():
            self.nodes.append(found)
        if tag == "title":
            self.titles.append("")

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.tags and self.tags[-1] == "title":
            self.titles[-1] += data


@pytest.fixture(autouse=True)
def _threads(monkeypatch):
    monkeypatch.setenv("TVM_NUM_THREADS", "1")  # the command sets it; this puts it back


def synthetic(count: int) -> Page:
    """A network of pairs of branches, measured."""
    kernels, calls, tensors, times = [], [], [], []
    for index in range(count):
        after = {index - 1} if index % 3 else {index - 1, index - 2}
        calls.append(
            Call(f"k{index}", frozenset({0} if index == 0 else ()), frozenset(after - {-1, -2}))
        )
        flops = 10**6 * (index + 1)
        kernels.append(
            Kernel(
                f"k{index}",
                ["nn.dense"],
                "dense_packed.x86",
                "topi:a.log:7",
                "llvm",
                flops=flops,
                bytes=10**5,
            )
        )
        tensors.append(Tensor(0, 4000 * (index % 2), 4000, index, min(index + 1, count - 1)))
        times.append(
            KernelTime(
                f"k{index}",
                ["nn.dense"],
                "",
                "",
                ["4x4"],
                1,
                0.1 * (index + 1),
                1 / count,
                90.0,
                3.0,
            )
        )
    program = Program(calls, tensors, [frozenset({count - 1})], [8000])
    report = Report("llvm", True, 3, kernels, {"lower": 1.0})
    profile = Profile("m", "llvm", 3.0, 5, times)
    machine = Machine(200.0, 20.0)
    return Page("m", report, program, ["x"], ["y"], profile, machine, {"topi:a.log:7": "a record"})


def test_the_program_of_a_library_is_what_runs(model, library):
    from compiler.runtime import load_module

    built = compile_model(model, BuildOptions()).library
    for each in (built, load_module(library)):
        program = read_program(each)
        kernels = {
            kernel.name if hasattr(kernel, "name") else kernel["name"]
            for kernel in built.report.kernels
        }
        assert {call.kernel for call in program.calls} == kernels
        assert program.calls[0].inputs == {0}
        assert program.results == [{len(program.calls) - 1}]
        for index, call in enumerate(program.calls[1:], 1):
            assert call.after == {index - 1}  # the network is a chain
        assert sum(program.storages) == built.report.activations_bytes
        for tensor in program.tensors:
            assert tensor.first < tensor.last or tensor.last == len(program.calls) - 1
            assert tensor.offset + tensor.nbytes <= program.storages[tensor.storage]


def test_parts_of_a_concatenation_are_read_by_what_reads_the_whole(tmp_path):
    """Kernels write the parts through views."""
    helper, real = onnx.helper, onnx.TensorProto.FLOAT
    import numpy as np

    rng = np.random.default_rng(0)
    weights = {
        name: rng.standard_normal(shape).astype("float32")
        for name, shape in (("a", (32, 16, 1, 1)), ("b", (32, 16, 3, 3)), ("c", (16, 64, 1, 1)))
    }
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["p"]),
        helper.make_node("Conv", ["x", "b"], ["q"], pads=[1, 1, 1, 1]),
        helper.make_node("Concat", ["p", "q"], ["w"], axis=1),
        helper.make_node("Conv", ["w", "c"], ["y"]),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", real, (1, 16, 8, 8))],
        [info("y", real, (1, 16, 8, 8))],
        [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    path = tmp_path / "concat.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    program = read_program(compile_model(path, BuildOptions()).library)
    names = [call.kernel for call in program.calls]
    assert not any("concat" in name for name in names)  # else this tests nothing
    convolutions = [index for index, name in enumerate(names) if "conv2d" in name]
    first, second, third = convolutions
    assert {first, second} <= program.calls[third].after


@pytest.mark.parametrize("required", ["BulkSize=2", "StaticAllocation"])
def test_functions_that_main_calls_are_part_of_the_program(model, required):
    from compiler import relay

    mod, params = relay.frontend.from_onnx(str(model))
    plain = relay.build(mod, "llvm", params=params)
    with tvm.transform.PassContext(opt_level=3, required_pass=[required]):
        library = relay.build(mod, "llvm", params=params)
    assert [call.after for call in read_program(library).calls] == [
        call.after for call in read_program(plain).calls
    ]


def test_extents_that_only_running_tells_leave_sizes_open(tmp_path):
    helper, real = onnx.helper, onnx.TensorProto.FLOAT
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Softmax", ["x"], ["s"], axis=0),
        helper.make_node("NonZero", ["s"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [info("x", real, ["n", 4])], [info("y", onnx.TensorProto.INT64, [2, "k"])]
    )
    source, path = tmp_path / "open.onnx", tmp_path / "report.html"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), source)
    library = compile_model(source, BuildOptions(), html=path).library
    program = read_program(library)
    assert None in program.storages
    assert {tensor.nbytes for tensor in program.tensors} == {None, 8}  # 8: how many there are
    assert program.calls[0].inputs == {0}
    assert program.results == [{len(program.calls) - 1}]
    assert "only running tells" in path.read_text(encoding="utf-8")


def test_subgraphs_that_another_runtime_runs_are_drawn(model, tmp_path):
    path = tmp_path / "report.html"
    options = BuildOptions(backends=("onnxruntime",))
    library = compile_model(model, options, html=path).library
    assert [call.kernel for call in read_program(library).calls] == [foreign.RUN]
    page = Reader(path.read_text(encoding="utf-8"))
    assert "baton.foreign.run: onnxruntime" in page.titles


@pytest.mark.parametrize(
    ("code", "stats"),
    [
        ("ib = ", "Constant pool (# 0): []\n  Globals"),
        ("ib = rx.Builder()", "Constant pool (# 0): []\n  Globals"),
        ("ib = rx.Builder()", "Constant pool (# 2): [float32]\n  Globals"),
        ("ib = rx.Builder()", "nothing"),
        (
            'with ib.function("main", num_inputs=1):\n  ib.emit_ret(1)',
            "Constant pool (# 0): []\n  Globals",
        ),
        (
            'with ib.function("main", num_inputs=0):\n  ib.emit_call("main", args=[])',
            "Constant pool (# 0): []\n  Globals",
        ),
    ],
)
def test_a_program_that_is_none_is_an_error(code, stats):
    class Library:
        metadata = Metadata("default", (), ())

        def get_lib(self):
            return {"as_python": lambda: code, "stats": lambda: stats}

    with pytest.raises(LoadError, match="program"):
        read_program(Library())


def test_compile_draws_the_network_and_its_back_ends(cli, model, plugin, tmp_path):
    path = tmp_path / "report.html"
    words = ["compile", str(model), "--html", str(path), "--plugin", str(plugin)]
    words += ["--backend", "mine", "--option", "ops=nn.dense"]
    result = cli.invoke(app, words)
    assert result.exit_code == 0, result.stderr
    page = Reader(path.read_text(encoding="utf-8"))
    assert page.titles[0] == "tiny.onnx"
    colors = {
        re.search(r"--backend: ([^;]*)", box)[1]
        for box in re.findall(r'rect[^>]*style="([^"]*)"', path.read_text())
    }
    assert len(colors) == 2  # this build's, and the plugin's
    assert "mine" in page.text
    assert "roofline" not in dict(page.attributes).values()
    assert {"input data", "output scores"} <= set(page.titles)


def test_profile_shows_the_roofline_and_the_config_of_each_schedule(cli, model, tmp_path):
    path = tmp_path / "report.html"
    result = cli.invoke(app, ["profile", str(model), "--repeat", "1", "--html", str(path)])
    assert result.exit_code == 0, result.stderr
    text = path.read_text(encoding="utf-8")
    page = Reader(text)
    assert page.tags.count("circle") >= 2
    assert text.count('class="roof"') == 2
    assert "of it outside of kernels" in page.text
    assert "oc_block" in page.text and "tile_m" in page.text  # knobs of both anchors
    json_text = cli.invoke(app, ["profile", str(model), "--repeat", "1", "--json"]).stdout
    for kernel in json.loads(json_text)["kernels"]:
        if kernel["implementation"]:
            assert kernel["name"] in page.text


def test_the_line_of_the_log_that_a_schedule_comes_from_is_shown(cli, model, tmp_path):
    log, path = tmp_path / "tuned.log", tmp_path / "report.html"
    log.write_text("\n" + record("dense_nopack.x86", DENSE, NOPACK, cost=1.25e-7) + "\n")
    words = ["compile", str(model), "--log", str(log), "--html", str(path)]
    result = cli.invoke(app, words)
    assert result.exit_code == 0, result.stderr
    text = Reader(path.read_text(encoding="utf-8")).text
    assert "topi:tuned.log:2" in text
    assert '["tile_y", "sp", [-1, 1]]' in text and "1.25e-07" in text


def test_names_of_a_model_are_text(tmp_path):
    """Inputs, outputs and the file are named by whoever made the model."""
    helper, real = onnx.helper, onnx.TensorProto.FLOAT
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("Exp", [EVIL], [EVIL + "2"], name=EVIL)]
    graph = helper.make_graph(
        nodes, "g", [info(EVIL, real, (2, 3))], [info(EVIL + "2", real, (2, 3))]
    )
    source = tmp_path / "evil.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), source)
    path = tmp_path / "report.html"
    compile_model(source, BuildOptions(), html=path)
    page = Reader(path.read_text(encoding="utf-8"))
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert not any(name.startswith("on") for name, _ in page.attributes)
    assert len(page.nodes) == 3


def test_hostile_reports_are_text_and_nothing_is_loaded():
    page = synthetic(3)
    kernel = page.report.kernels[1]
    kernel.operators = [EVIL]
    kernel.source = kernel.config = kernel.implementation = kernel.remark = kernel.backend = EVIL
    page.report.notes.append(EVIL)
    page.report.seconds[EVIL] = 1.0
    text = Page(EVIL, page.report, page.program, [EVIL], [EVIL], page.profile, page.machine).html()
    found = Reader(text)
    assert found.tags.count("script") == 1 and "img" not in found.tags
    assert not any(name.startswith("on") or name in ("src", "href") for name, _ in found.attributes)
    assert "default-src 'none'" in text
    assert not re.search(r"@import|url\(", text)


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_three_hundred_kernels_in_a_browser(tmp_path):
    seen = probe(
        synthetic(300).html().replace("</h1>", "</h1><script>document.title='injected'</script>"),
        """
        const all = selector => [...document.querySelectorAll(selector)];
        const boxes = all(".node rect").map(each => each.getBoundingClientRect());
        const overlaps = boxes.filter((a, i) => boxes.slice(i + 1).some(b =>
          a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)).length;
        const shown = () =>
          all("main section").filter(each => each.offsetParent).map(each => each.id);
        const first = shown();
        all("nav button").find(each => each.value === "roofline").click();
        const second = shown();
        const fill = () => getComputedStyle(all(".node rect")[200]).fill;
        const point = document.querySelector('circle[data-kernel="7"]');
        point.dispatchEvent(new MouseEvent("click", {bubbles: true}));
        const article =
          all("aside article").filter(each => !each.hidden).map(each => each.innerText);
        const chosen = all(".node.chosen").map(each => each.dataset.kernel);
        const heat = fill();
        const colors = document.getElementById("colors");
        colors.value = "by-backend";
        colors.dispatchEvent(new Event("change"));
        const search = document.getElementById("search");
        search.value = "k299";
        search.dispatchEvent(new Event("input"));
        return {nodes: boxes.length, overlaps, first, second, article, chosen, heat, flat: fill(),
          found: all(".node.chosen").length, title: document.title,
          circles: all("circle").length, tensors: all("#memory rect").length,
          fetched: performance.getEntriesByType("resource").length};
        """,
        tmp_path,
    )
    assert seen["nodes"] == 302 and seen["circles"] == 300 and seen["tensors"] == 300
    assert seen["overlaps"] == seen["fetched"] == 0
    assert seen["first"] == ["network"] and seen["second"] == ["roofline"]
    (article,) = seen["article"]
    assert "k7" in article and "a record" in article
    assert seen["chosen"] == ["7"] and seen["found"] == 1
    assert seen["heat"] != seen["flat"]
    assert seen["title"] == "m"  # the policy lets no other script run
