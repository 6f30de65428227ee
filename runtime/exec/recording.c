/* Reading the iterations that are to be executed into memory: O(iterations * cells). */
#include "runtime/exec/replay.h"
#include "runtime/program/job.h"

#include <inttypes.h>

static void copy_loads(const hec_iteration *it, hec_arena *arena, hec_replay_step *step) {
  hec_load *loads = HEC_NEW(arena, hec_load, it->n_loads);
  for (int32_t i = 0; i < it->n_loads; i++) {
    const hec_load *from = &it->loads[i];
    loads[i] = hec_load_new(arena, from->n_layers, from->n_sources, from->n_experts);
    hec_load_copy(from, &loads[i]);
  }
  *step = (hec_replay_step){.iter = it->iter, .stride = it->stride, .n_loads = it->n_loads, .loads = loads};
}

hec_status hec_recording_read(const hec_job *job, hec_trace_reader *reader, int32_t n_wanted, hec_arena *arena,
                              hec_recording *recording) {
  hec_replay_step *steps = HEC_NEW(arena, hec_replay_step, n_wanted);
  HEC_OPENED(hec_feed) *feed = hec_feed_new(job, reader);
  const hec_iteration *it = NULL;
  hec_status status = HEC_OK;
  *recording = (hec_recording){.steps = steps};
  while (recording->n_steps < n_wanted && (status = hec_feed_next(feed, &it)) == HEC_OK && it) {
    if (recording->n_steps > 0 && it->n_micro_batches != recording->n_micro_batches) {
      status = hec_fail(HEC_BAD_INPUT,
                        "iteration %" PRId64 ": expected %" PRId32 " micro-batches as in the first, found %" PRId32
                        "; executed iterations are alike",
                        it->iter, recording->n_micro_batches, it->n_micro_batches);
      break;
    }
    recording->n_micro_batches = it->n_micro_batches;
    copy_loads(it, arena, &steps[recording->n_steps++]);
  }
  recording->tokens = hec_feed_tokens(feed);
  return status;
}
