"""The table of int8, bfloat16 and float16 from rows that were measured before."""

import json

from scripts.bench import precision


def test_the_table_holds_the_better_peer_against_baton(tmp_path, monkeypatch, capsys):
    def entry(ms, error=0.0):
        return {"ms": ms, "error": error}

    rows = {
        "net int8 2": {
            "baton": entry(2.0),
            "onnxruntime": entry(5.0),
            "openvino": {"failed": "no such operator"},
        },
        "net floats 2": {
            "baton": entry(8.0),
            "baton-bf16": entry(4.0, 0.0031),
            "openvino-bf16": entry(6.0, 0.0042),
        },
    }
    for name in ("net_qdq.onnx", "net.onnx"):
        (tmp_path / name).touch()
    output = tmp_path / "rows.json"
    output.write_text(json.dumps(rows))
    arguments = [str(tmp_path), str(tmp_path), "--threads", "2", "--output", str(output)]
    monkeypatch.setattr("sys.argv", ["precision.py", *arguments])
    precision.main()
    said = capsys.readouterr().out
    (line,) = [line for line in said.splitlines() if line.startswith(" " * 12 + "net")]
    assert line.split() == [
        *("net", "2.00", "2.50", "8.00", "4.00", "4.00", "2.00", "1.50"),
        *("0.0031", "0.0042", "-", "-", "-", "-", "-"),
    ]
    assert "f32/int8: geometric mean 4.00, least 4.00 of 1" in said
