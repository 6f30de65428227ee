/* Memory of one rank over time. What is held is held from when its first operation begins to when its last one ends.
 * Where the rank takes no part in one of these, its next operation or the one before counts. O(holds * (operations
 * without the rank + log)). */
#include "runtime/program/timeline.h"

#include "runtime/base/arena.h"

#include <stdlib.h>

/* When operation `id` begins (or ends) on the rank; where the rank takes no part, when its next one begins (its last
 * one ended). id -1: before the program, or after it. */
static int64_t moment(const hec_timeline *timeline, int32_t id, int32_t rank, bool end) {
  if (id < 0)
    return end ? hec_timeline_end_ps(timeline) : 0;
  for (int32_t i = id; i >= 0 && i < timeline->n_ops; i += end ? -1 : 1) {
    size_t at = (size_t)i * (size_t)timeline->n_ranks + (size_t)rank;
    if (timeline->begin_ps[at] >= 0)
      return end ? timeline->end_ps[at] : timeline->begin_ps[at];
  }
  return end ? 0 : hec_timeline_end_ps(timeline);
}

/* Order of changes: freed before taken at one instant, then as held. */
typedef struct {
  hec_memory_change change;
  int32_t hold;
  bool end;
} event;

static int by_time(const void *a, const void *b) {
  const event *x = a, *y = b;
  if (x->change.time_ps != y->change.time_ps)
    return x->change.time_ps < y->change.time_ps ? -1 : 1;
  if (x->end != y->end)
    return x->end ? -1 : 1;
  return (x->hold > y->hold) - (x->hold < y->hold);
}

hec_memory_change *hec_timeline_memory(const hec_timeline *timeline, const hec_program *program, int32_t rank,
                                       int32_t *n) {
  event *events = hec_malloc(2 * program->n_holds + 1, sizeof *events);
  for (size_t i = 0; i < program->n_holds; i++) {
    const hec_hold *hold = &program->holds[i];
    int64_t first = moment(timeline, hold->first, rank, false), last = moment(timeline, hold->last, rank, true);
    double bytes = hold->bytes_at < 0 ? hold->bytes : hold->bytes * program->local_bytes[hold->bytes_at + rank];
    events[2 * i] = (event){{first, hold->memory, bytes}, (int32_t)i, false};
    events[2 * i + 1] = (event){{last > first ? last : first, hold->memory, -bytes}, (int32_t)i, true};
  }
  *n = (int32_t)(2 * program->n_holds);
  qsort(events, (size_t)*n, sizeof *events, by_time);
  hec_memory_change *changes = hec_malloc((size_t)*n + 1, sizeof *changes);
  for (int32_t i = 0; i < *n; i++)
    changes[i] = events[i].change;
  free(events);
  return changes;
}
