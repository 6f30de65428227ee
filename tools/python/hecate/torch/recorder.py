"""Records what the routers of an ExpertParallel choose, as a trace for hecate-sim."""
from .. import recorder


class Recorder(recorder.Recorder):
    """recorder = Recorder("run.jsonl.gz", parallel); close() at the end. Every rank makes it, rank 0 of the group writes. The
    counts are those that the layers exchange anyway: nothing is counted or sent again. A record is an iteration, all its
    micro-batches; forward passes that are recomputed count once. Until close() the trace is PATH.part."""

    def __init__(self, path, parallel, **about):
        super().__init__(path, parallel.experts, parallel.top_k, **about)
        self.parallel, self.sum, self.counts = parallel, None, [[0]] * parallel.layers
        parallel.recorders.append(self)

    def add(self, iteration, counts):
        """counts [layers, ranks, experts] of a micro-batch."""
        if self.sum is not None and iteration != self.current:
            self.flush()
        self.current = iteration
        self.sum = counts.clone() if self.sum is None else self.sum.add_(counts)

    def gather(self):
        return self.sum.transpose(0, 1).tolist() if self.parallel.exchange.rank == 0 else None

    def flush(self):
        if self.sum is not None:
            self.step(self.current)
            self.sum = None

    def close(self, complete=True):
        if self in self.parallel.recorders:
            self.parallel._end()
            self.parallel.recorders.remove(self)
            self.flush()
        super().close(complete)
