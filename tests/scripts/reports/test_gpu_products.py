"""The table of predicted products: which instruction each architecture gets."""

import sys

from scripts.reports import gpu_products


def test_large_products_have_wgmma_on_one_architecture_alone(monkeypatch, capsys):
    monkeypatch.setattr(gpu_products, "PRODUCTS", ((256, 256, 256), (4096, 4096, 4096)))
    monkeypatch.setattr(sys, "argv", ["gpu_products"])
    gpu_products.main()
    rows = [line for line in capsys.readouterr().out.splitlines() if "product" in line]
    half = [row.split("|") for row in rows if "float16" in row]
    assert ["wgmma" in cell for cell in half[0]].count(True) == 0
    assert "mma.sync" in half[1][3]
    assert "wgmma" in half[1][5]
    assert float(half[1][6]) < 0.8 * float(half[1][4])
