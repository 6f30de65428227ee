/* From transfers to a post.
 *
 *   sends     this rank's transfers, in their order; in a chain each names the receive that it forwards
 *   receives  likewise; those of a reduction land in staging where the transport cannot add, one slot per source
 *
 *   hops      of both: the number of forwarders before, that is steps along `after` to the beginning of the chain
 *
 * Transfers stand ascending by (source, destination). So sums are in ascending order of sources in both cases: in a
 * transport that adds receive by receive, and in the additions after staging. */
#include "runtime/exec/stage.h"

void hec_message_add(hec_message *list, int32_t *n, int32_t peer, const hec_segment *segments, int32_t n_segments) {
  int64_t bytes = 0;
  for (int32_t i = 0; i < n_segments; i++)
    bytes += segments[i].bytes;
  if (bytes > 0)
    list[(*n)++] =
        (hec_message){.peer = peer, .n_segments = n_segments, .segments = segments, .bytes = bytes, .after = -1};
}

/* What arrives for these segments goes into staging from `staging` on; how to add it afterwards. */
static char *put_aside(hec_piece *additions, int32_t *n_additions, hec_segment *segments, int32_t n, char *staging) {
  for (int32_t i = 0; i < n; i++) {
    additions[(*n_additions)++] =
        (hec_piece){segments[i].at, (const float *)(const void *)staging, segments[i].bytes / (int64_t)sizeof(float)};
    segments[i].at = staging;
    staging += segments[i].bytes;
  }
  return staging;
}

/* Hops of all transfers, [n_transfers]; a transfer comes after the one it forwards. */
static int32_t *hops_of(const hec_transfer *t, int32_t n, hec_arena *arena) {
  int32_t *hop = HEC_NEW(arena, int32_t, n);
  for (int32_t k = 0; k < n; k++)
    hop[k] = t[k].after >= 0 ? hop[t[k].after] + 1 : 0;
  return hop;
}

void hec_stage_bind(const hec_stage *stage, hec_arena *arena, hec_post *post, hec_piece **additions,
                    int32_t *n_additions) {
  const hec_transfer *t = stage->transfers;
  int32_t *receive_of = HEC_NEW(arena, int32_t, stage->n_transfers); /* 1 + index of the receive of a transfer */
  int32_t *hop = hops_of(t, stage->n_transfers, arena);
  hec_segment *segment = HEC_NEW(arena, hec_segment, stage->n_segments);
  bool staged = stage->reduces && stage->staged;
  char *staging = stage->staging;
  *additions = staged ? HEC_NEW(arena, hec_piece, stage->n_segments) : NULL;
  *n_additions = 0;
  *post = (hec_post){.lane = post->lane,
                     .sends = HEC_NEW(arena, hec_message, stage->n_transfers),
                     .receives = HEC_NEW(arena, hec_message, stage->n_transfers),
                     .add = stage->reduces && !staged};
  for (int32_t k = 0; k < stage->n_transfers; k++) {
    if (t[k].source != stage->rank && t[k].destination != stage->rank)
      continue;
    bool sends = t[k].source == stage->rank;
    int32_t n = stage->segments(stage->context, k, segment);
    if (!sends && staged)
      staging = put_aside(*additions, n_additions, segment, n, staging);
    hec_message *list = sends ? post->sends : post->receives, *added;
    int32_t *n_list = sends ? &post->n_sends : &post->n_receives;
    added = list + *n_list;
    hec_message_add(list, n_list, sends ? t[k].destination : t[k].source, segment, n);
    if (added < list + *n_list) {
      added->hop = hop[k];
      added->after = sends && t[k].after >= 0 ? receive_of[t[k].after] - 1 : -1;
    }
    if (!sends)
      receive_of[k] = post->n_receives;
    segment += n;
  }
  if (stage->n_chunks > 1)
    post->chunk_bytes = (t->bytes / stage->n_chunks + 4) / 4 * 4;
}
