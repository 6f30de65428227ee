/* Links between devices: how numbers get from the memory of one rank's device to that of another, on the streams of both.
 * The counterpart of transports (transport.h) for processors with streams (processor.h): nothing waits for the device.
 *
 * An exchange is the hec_post that a transport would get, with two rules. Its segments are memory of the devices, in
 * whole floats. The segments of a message are the same in number and sizes at both ends. `exchange` puts it on the
 * stream selected at this rank. What that stream is given afterwards may use what was received and write over what was
 * sent. It may wait for the peers' host threads to come to the same exchange (never for their devices), as long as
 * rank->limit_ns allows. hec_rank_late names who is missing. Ranks reach the exchanges of the program in the order of
 * their ids, so this cannot deadlock. The post may go when the call returns.
 *
 * Where rank->serial, what it gives to the device is given in the rank's turn, and done when the turn ends.
 *
 *   plain     receives are copied to their places
 *   add       receives are added to what is there, in the order of `receives` (only where the link `adds`)
 *   chained   chunk_bytes > 0: sends with after >= 0 forward that receive; message.hop says how far from the chain's
 *             beginning a send is, so that all ranks can cut time into the same steps: chunk c of hop h moves in step c + h
 */
#pragma once
#include "runtime/exec/launch/rank.h"

struct hec_device_link {
  const char *name, *summary;
  bool adds;
  hec_status (*prepare)(const hec_launch_options *options, hec_world *world); /* before the ranks are; NULL: nothing */
  /* On the rank's thread, its processor and memory in place: connects it with all others on every stream. */
  hec_status (*open)(hec_rank *rank);
  hec_status (*exchange)(hec_rank *rank, hec_post *post);
  /* Sums at[n] of all ranks in place, on the selected stream, which is that of `lane`; NULL: made of exchanges. As with
   * exchanges, all ranks call it. */
  hec_status (*allreduce)(hec_rank *rank, int32_t lane, float *at, int64_t n);
  /* HEC_FAILED (through hec_rank_fail) when a connection broke; asked while the host waits. NULL: cannot happen. */
  hec_status (*check)(hec_rank *rank);
  void (*close)(hec_rank *rank, bool failed); /* failed: with exchanges on their way that will never end */
};

/* Ranks are threads of this process; devices that can read each other's memory, or one device for all of them. Written in
 * calls of the processor: copies and additions ordered by events. */
extern const hec_device_link hec_device_link_local;
/* NCCL, one device to a rank: its ranks are threads, or processes on any machines. Not for virtual time (rank->serial).
 * Backend nccl must have loaded the plug-in (cuda/plugin.h). */
extern const hec_device_link hec_device_link_nccl;
extern const hec_device_link *const hec_device_links[]; /* both, NULL-terminated */

/* Until the selected stream has done what it was given, rank->limit_ns at most; `what` completes "waited 60 s for ". */
hec_status hec_device_wait(hec_rank *rank, const char *what) HEC_MUST_USE;
