"""tools/python/examples/train_moe.py as torchrun runs it, but forked: 4 ranks, then 2 that go on from the checkpoint with the same
losses as 4 would have."""
import contextlib
import io
import os
import runpy
import sys

import ranks


def example(rank, size, path, steps, out):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=os.environ["PORT"])
    sys.argv = [path, "--steps", str(steps), "--save-every", "4", "--period", "2", "--hot", "1", "--layers", "2", "--batch", "8",
                "--experts", "8", "--length", "32", "--out", out]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        runpy.run_path(path, run_name="__main__")
    with open("said-%d-%d" % (size, rank), "w") as file:
        file.write(said.getvalue())


def losses(size):
    return {int(line.split()[1]): float(line.split()[3]) for line in open("said-%d-0" % size)}


def free_port():
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


if __name__ == "__main__":
    marked = sum("# hecate" in line for line in open(sys.argv[1]))
    assert 0 < marked <= 20, "lines that a user adds: %d" % marked
    for size, steps in ((4, 7), (2, 7)):
        os.environ["PORT"] = free_port()
        ranks.run(size, example, sys.argv[1], steps, "out", group=False)
    all_of_it, resumed = losses(4), losses(2)
    assert sorted(all_of_it) == list(range(7)) and sorted(resumed) == [4, 5, 6], (all_of_it, resumed)
    assert all(abs(all_of_it[s] - resumed[s]) < 1e-4 for s in resumed), (all_of_it, resumed)
    assert all_of_it[6] < all_of_it[0]
    print("all passed")
