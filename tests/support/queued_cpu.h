/* A device with streams for tests on any machine: the arithmetic of the CPU, carried out later and in the worst order
 * (work_queue.h). So a missing event gives wrong numbers with some seeds.
 *
 * A call is recorded, what describes it copied, and put into the queue of the selected stream. Nothing happens until some
 * thread calls reached, restart, to_host or to_device of any such processor.
 *
 *   to_device  takes the numbers at once and writes them when their turn comes    reached  a few steps, then the answer
 *   when       hec_clock_ns at which the event was carried out                    restart  steps until all own is done
 *
 * Events that a restart has ended are noticed when they are used (HEC_ASSERT). Calls of different processors may come from
 * different threads. With one thread, same seeds, same order. */
#pragma once
#include "runtime/exec/math/processor.h"

/* hec_math_open first. */
hec_processor *hec_queued_cpu_new(uint64_t seed);
/* Drops what is not carried out (restart before, where that matters). NULL: nothing. */
void hec_queued_cpu_free(hec_processor *on);

/* From now on the device has failed with this text (static), as hec_streams says: nothing more is carried out. */
void hec_queued_cpu_break(hec_processor *on, const char *text);
int64_t hec_queued_cpu_done(const hec_processor *on); /* calls carried out so far; events and waits are none */
int64_t hec_queued_cpu_left(const hec_processor *on); /* of this processor: in its queues, events and waits too */

/* Told of everything that is carried out: "gemm", "mark", "wait", ... on the thread that happens to do it; must not call
 * the processor. NULL: nobody. */
typedef void hec_queued_cpu_log(void *context, const hec_processor *on, int32_t stream, const char *call);
void hec_queued_cpu_watch(hec_processor *on, hec_queued_cpu_log *log, void *context);
