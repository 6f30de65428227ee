/* A trainer of somebody else's that uses libhecate. Four ranks plan with FSSDP, gather the hot experts (spAG), "compute"
 * with them, return the gradients (spRS), and check the sums against a plain loop.
 *   cc main.c $(pkg-config --cflags --libs hecate) -o example && ./example     or: threads, or mpirun -n 4 ./example mpi
 * (not in the system's folders: PKG_CONFIG_PATH=PREFIX/lib/pkgconfig, and LD_LIBRARY_PATH or -Wl,-rpath,PREFIX/lib) */
#include <hecate/hecate.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 4, LAYERS = 2, EXPERTS = 8, WIDTH = 1000, STEPS = 3 };
#define TRY(call)                                                                                                      \
  do {                                                                                                                 \
    int code_ = (call);                                                                                                \
    if (code_ != HECATE_OK)                                                                                            \
      return code_;                                                                                                    \
  } while (0)

/* Small whole numbers, so that sums are exact in any order. */
static float parameter(int layer, int expert, int i) {
  return (float)(100 * layer + expert + i % 7);
}
static float gradient(int rank, int expert, int i) {
  return (float)((rank + 1) * (expert + 1) + i % 3);
}

/* Where the experts of a layer stand on this rank. */
typedef struct {
  float *params[LAYERS][EXPERTS], *grads[LAYERS][EXPERTS];
} memory;

/* The layer's guests: parameters come, are checked, gradients return to the homes and are checked there. */
static int run_layer(hec_comm *comm, hec_planner *planner, memory *m, int layer) {
  hec_sparse_items items;
  int me = hec_comm_rank(comm);
  void *params[EXPERTS];
  float *grads[EXPERTS];
  TRY(hec_planner_guests(planner, layer, HECATE_ALL, &items));
  for (int i = 0; i < items.n_items; i++) {
    int e = items.expert[i];
    params[i] = m->params[layer][e];
    grads[i] = m->grads[layer][e];
    for (int k = 0; k < WIDTH; k++) {
      m->params[layer][e][k] = me == items.owner[i] ? parameter(layer, e, k) : -1;
      m->grads[layer][e][k] = gradient(me, e, k);
    }
  }
  TRY(hec_sparse_all_gather(comm, &items, WIDTH * sizeof(float), params));
  TRY(hec_sparse_reduce_scatter(comm, &items, WIDTH, grads));
  for (int i = 0; i < items.n_items; i++) {
    const int *first = items.receiver + items.receiver_at[i], *end = items.receiver + items.receiver_at[i + 1];
    int e = items.expert[i], here = me == items.owner[i];
    for (const int *r = first; r < end; r++)
      here |= me == *r;
    for (int k = 0; here && k < WIDTH; k++) {
      float sum = gradient(me, e, k);
      for (const int *r = first; r < end; r++)
        sum += gradient(*r, e, k);
      if (m->params[layer][e][k] != parameter(layer, e, k) || (me == items.owner[i] && m->grads[layer][e][k] != sum))
        return hec_comm_fail(comm, "a number differs from the plain loop's");
    }
  }
  return HECATE_OK;
}

static int train(hec_comm *comm, hec_planner *planner, memory *m) {
  uint32_t counts[LAYERS][RANKS][EXPERTS], mine[LAYERS][EXPERTS];
  for (int step = 0; step < STEPS; step++) {
    TRY(hec_planner_step(planner, step, 0));
    for (int l = 0; l < LAYERS; l++) {
      for (int e = 0; e < EXPERTS; e++) /* your gate: here expert 5 is hot */
        mine[l][e] = e == 5 ? 300 : (uint32_t)(20 + e + hec_comm_rank(comm));
      TRY(hec_comm_all_gather(comm, mine[l], sizeof mine[l], counts[l]));
      TRY(hec_planner_refine(planner, l, &counts[l][0][0]));
      TRY(run_layer(comm, planner, m, l));
    }
    TRY(hec_planner_end(planner, NULL));
    uint64_t digest = hec_planner_digest(planner), all[RANKS];
    TRY(hec_comm_all_gather(comm, &digest, sizeof digest, all));
    for (int r = 0; r < RANKS; r++)
      if (all[r] != digest)
        return hec_comm_fail(comm, "two ranks planned differently");
  }
  return HECATE_OK;
}

static int body(hec_comm *comm, void *context) {
  static memory all[RANKS]; /* one each where ranks are threads */
  memory *m = &all[hec_comm_rank(comm)];
  hec_planner_options options = *(hec_planner_options *)context;
  hec_planner *planner;
  for (int i = 0; i < LAYERS * EXPERTS; i++) {
    m->params[i / EXPERTS][i % EXPERTS] = hec_comm_alloc(comm, WIDTH * sizeof(float));
    m->grads[i / EXPERTS][i % EXPERTS] = hec_comm_alloc(comm, WIDTH * sizeof(float));
  }
  TRY(hec_planner_open(&options, &planner));
  int code = train(comm, planner, m);
  hec_planner_close(planner);
  printf("rank %d: sent %lld bytes of experts\n", (int)hec_comm_rank(comm), (long long)hec_comm_sent(comm, NULL));
  return code;
}

int main(int argc, char **argv) {
  hec_planner_options planner = hec_planner_defaults();
  planner.cluster = "1x4 nvlink=300G@2us flops=312T mem=40G";
  planner.n_layers = LAYERS;
  planner.n_experts = EXPERTS;
  planner.top_k = 2;
  planner.d_model = 512;
  planner.d_ffn = 1024;
  planner.tokens = 256;
  hec_run_options run = hec_run_defaults(RANKS);
  run.threads = argc > 1 && strcmp(argv[1], "threads") == 0;
  run.backend = argc > 1 && strcmp(argv[1], "mpi") == 0 ? "mpi" : "cpu";
  run.collective = argc > 2 ? argv[2] : NULL;
  int code = hec_run(&run, body, &planner);
  fprintf(stderr, "hecate %s: %s\n", hec_version(),
          code == HECATE_OK ? "every number as the plain loop's" : hec_error());
  hec_finish();
  return code;
}
