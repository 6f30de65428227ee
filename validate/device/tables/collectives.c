/* collectives.csv: one collective of nccl-tests at one size. Fits take NCCL on one node; torch adds overheads of its own,
 * and kernels that are not NCCL are not covered. send_recv is half of an all-to-all of two ranks: each side sends all. */
#include "validate/device/cases.h"

#include <string.h>

static const char *const columns[] = {"gpu", "cluster", "op", "ranks", "nodes", "bytes", "seconds", "library", NULL};

static int32_t find_op(const char *name) {
  int32_t op = 0;
  while (op < HEC_N_COLLECTIVE_OPS && strcmp(hec_collective_op_name[op], name) != 0)
    op++;
  return op;
}

static void read(const hec_case_file *csv, hec_arena *arena, hec_case *c) {
  const char *op = hec_case_file_text(csv, "op"), *library = hec_case_file_text(csv, "library");
  hec_collective_case *work = HEC_NEW(arena, hec_collective_case, 1);
  int64_t ranks, nodes, bytes;
  bool pair = strcmp(op, "send_recv") == 0;
  c->kind = hec_arena_printf(arena, "collective %.30s", library);
  if (!hec_case_seconds(csv, arena, c) || !hec_case_whole(csv, "ranks", 2, &ranks, arena, c) ||
      !hec_case_whole(csv, "nodes", 1, &nodes, arena, c) || !hec_case_whole(csv, "bytes", 1, &bytes, arena, c))
    return;
  int32_t which = pair ? HEC_ALL_TO_ALL : find_op(op);
  if (which == HEC_N_COLLECTIVE_OPS)
    c->why_not = hec_arena_printf(arena, "op: the law has no \"%.40s\"", op);
  else if (strncmp(library, "nccl", 4) != 0)
    c->why_not = hec_arena_printf(arena, "library: the law covers NCCL; %.40s is a kernel of its own", library);
  if (c->why_not)
    return;
  work->op = (hec_collective_op)which;
  work->ranks = ranks > INT32_MAX ? INT32_MAX : (int32_t)ranks;
  work->n_nodes = nodes > INT32_MAX ? INT32_MAX : (int32_t)nodes;
  work->bytes = pair ? 2 * (double)bytes : (double)bytes;
  work->work.bytes = hec_collective_port_bytes(work->op, work->ranks, work->bytes);
  c->law = "collective";
  c->variant = hec_arena_printf(arena, "%s %d", hec_collective_op_name[work->op], (int)ranks);
  c->work = work;
  c->whole = true;
  const char *cluster = hec_case_file_text(csv, "cluster");
  size_t length = strlen(cluster);
  c->fit =
      !pair && nodes == 1 && strcmp(library, "nccl") == 0 && length >= 5 && strcmp(cluster + length - 5, "-node") == 0;
  c->shape = hec_case_hash(0, bytes);
  c->repeat = c->fit ? hec_case_hash_text(hec_case_hash(hec_case_hash(0, bytes), ranks), op) : 0;
}

const hec_case_table hec_case_table_collectives = {.file = "collectives.csv", .columns = columns, .read = read};
