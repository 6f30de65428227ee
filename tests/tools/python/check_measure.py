"""hecate.torch.measure on the CPU, small sizes: tables in `measured`, which the test reads with hecate-validate. Two ranks write the
collectives. What an expert layer is given are the rows that the rule draws; a folder that has tables is left as it is."""
import os
import random
import sys
from pathlib import Path

import ranks

from hecate.torch import measure

OUT = Path("measured")


def both(rank, size):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1])
    measure.main(["--gpu", "h100", "--out", str(OUT), "--small"])


if __name__ == "__main__":
    chance = random.Random(3)
    assert measure.drawn(64, 2, 8, 4, 0, chance) == [16, 16]
    for tokens, top_k, experts, ep in ((2048, 8, 128, 8), (64, 8, 16, 2), (100, 1, 8, 1)):
        rows = measure.drawn(tokens, top_k, experts, ep, 1.2, chance)
        assert len(rows) == experts // ep and max(rows) <= tokens and sum(rows) >= tokens * top_k // ep - experts, rows
    measure.main(["--gpu", "h100", "--out", str(OUT), "--small"])
    before = {p.name: p.read_bytes() for p in OUT.iterdir()}
    try:
        measure.main(["--gpu", "h100", "--out", str(OUT), "--small"])
        raise AssertionError("tables were overwritten")
    except SystemExit as ended:
        assert ended.code == 2
    ranks.run(2, both, group=False)
    assert {name: (OUT / name).read_bytes() for name in before} == before
    print("all passed")
