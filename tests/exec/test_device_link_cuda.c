/* Links through backend nccl, on devices that are an imitation (tests/cuda/fake.h): random programs, then every call that
 * can fail. */
#include "runtime/exec/backend.h"
#include "tests/exec/launch_case.h"
#include "tests/exec/link_case.h"
#include "tests/support/test.h"

#include <string.h>
#include <unistd.h>

HEC_TEST_NEEDS(access(HEC_BINARY_DIR "/fake/hecate-cuda.so", F_OK) == 0,
               "the plug-in over imitated devices is not built: no CUDA or NCCL was found, or an instrumented build")

static hec_status run_on_backend(hec_rank *rank, void *context) {
  const hec_test_program *p = context;
  if (!rank->link || !rank->processor->streams || rank->memory_bytes < sizeof(hec_test_memory))
    return hec_rank_fail(rank, "the backend has not brought what it should");
  rank->serial = p->adds && p->seed % 4 == 0;
  return hec_test_program_run(rank, p);
}

/* So many devices that are an imitation. */
static void imitate(const char *n_devices) {
  (void)setenv("HECATE_PLUGINS", HEC_BINARY_DIR "/fake", 1);
  (void)setenv("FAKE_CUDA_DEVICES", n_devices, 1);
  hec_math_open();
  HEC_SCOPED(hec_text) why = {0};
  ck_assert_msg(hec_backend_nccl.available(&why), "%s", why.data);
}

static void launch_on_backend(const hec_device_link *link, uint64_t seed, int32_t n_ranks) {
  hec_test_program *p = hec_test_program_new(seed, n_ranks, link->adds);
  hec_launch_options options = hec_test_options(n_ranks, true);
  const hec_device_link *chosen;
  options.link = link;
  ck_assert_int_eq(hec_backend_nccl.link(link->name, n_ranks, &chosen), HEC_OK);
  ck_assert_ptr_eq(chosen, link);
  if (hec_backend_nccl.launch(&options, run_on_backend, p) != HEC_OK)
    ck_abort_msg("%s, seed %d: %s", link->name, (int)seed, hec_last_error());
  hec_test_program_free(p);
}

HEC_TEST_LOOP(programs_on_devices, 2) {
  imitate(_i == 0 ? "1" : "3");
  for (uint64_t seed = 1; seed <= 6; seed++)
    launch_on_backend(&hec_device_link_local, seed, 1 + (int32_t)seed);
}

HEC_TEST(programs_over_nccl) {
  imitate("8");
  for (uint64_t seed = 1; seed <= 21; seed++)
    launch_on_backend(&hec_device_link_nccl, seed, 1 + (int32_t)seed % 8);
}

HEC_TEST(links_of_ranks_and_devices) {
  const hec_device_link *link;
  imitate("2");
  ck_assert_int_eq(hec_backend_nccl.link(NULL, 2, &link), HEC_OK);
  ck_assert_ptr_eq(link, &hec_device_link_nccl);
  ck_assert_int_eq(hec_backend_nccl.link(NULL, 3, &link), HEC_OK);
  ck_assert_ptr_eq(link, &hec_device_link_local);
  ck_assert_int_eq(hec_backend_nccl.link("local", 2, &link), HEC_OK);
  ck_assert_ptr_eq(link, &hec_device_link_local);
  ck_assert_int_eq(hec_backend_nccl.link("nccl", 3, &link), HEC_BAD_INPUT);
  ck_assert_str_eq(hec_last_error(), "`transport` nccl: expected at most one rank to a device, found 3 ranks and 2 "
                                     "devices; local shares devices");
  ck_assert_int_eq(hec_backend_nccl.link("shm", 2, &link), HEC_BAD_INPUT);
}

/* ---- What goes wrong on devices ---- */

/* Until the device is through, as the executor waits for it. */
static hec_status wait_for_device(hec_rank *rank) {
  hec_processor *on = rank->processor;
  const hec_event *event = on->streams->mark(on);
  int64_t deadline_ns = hec_clock_ns() + rank->limit_ns;
  while (!on->streams->reached(on, event)) {
    HEC_TRY(hec_rank_check(rank));
    if (rank->link->check)
      HEC_TRY(rank->link->check(rank));
    if (hec_clock_ns() > deadline_ns)
      return hec_rank_fail(rank, "waited too long for the device");
    hec_test_pause_ns(20000);
  }
  const char *error = on->streams->error(on);
  return error ? hec_rank_fail(rank, "the device failed: %s", error) : HEC_OK;
}

/* Circles over every lane and sums; one rank may fail in the middle. */
static hec_status run_circles(hec_rank *rank, void *context) {
  const hec_test_fault *f = context;
  hec_test_at_dispatch(rank);
  for (int i = 0; i < 6; i++) {
    if (i == 3 && rank->rank == f->absent)
      return hec_rank_fail(rank, "on purpose");
    rank->processor->streams->select(rank->processor, HEC_LANE_TOKEN);
    HEC_TRY(hec_test_circle(rank, &hec_test_good));
    if (rank->link->allreduce)
      HEC_TRY(rank->link->allreduce(rank, HEC_LANE_TOKEN, (float *)(void *)rank->memory, 5));
    HEC_TRY(wait_for_device(rank));
  }
  return HEC_OK;
}

/* The text of the failure, NULL: all went well. */
static const char *circles_on_backend(const hec_device_link *link, int32_t absent) {
  hec_test_fault f = {.absent = absent};
  hec_launch_options options = hec_test_options(3, true);
  options.link = link;
  options.limit_s = 5;
  hec_status status = hec_backend_nccl.launch(&options, run_circles, &f);
  return status == HEC_OK ? NULL : hec_last_error();
}

/* What ranks found: their regions, and that they are of the device that is theirs. */
typedef struct {
  size_t bytes[8];
  const void *at[8];
} regions;

static hec_status look_at_region(hec_rank *rank, void *context) {
  regions *r = context;
  r->bytes[rank->rank] = rank->memory_bytes;
  r->at[rank->rank] = rank->memory;
  float ends[2] = {1, 2}, back[2] = {0};
  float *last = (float *)(void *)(rank->memory + rank->memory_bytes) - 1, *first = (float *)(void *)rank->memory;
  hec_processor *on = rank->processor;
  on->math->to_device(on, first, &ends[0], 1);
  on->math->to_device(on, last, &ends[1], 1);
  on->math->to_host(on, &back[0], first, 1);
  on->math->to_host(on, &back[1], last, 1);
  return back[0] == 1 && back[1] == 2 ? HEC_OK : hec_rank_fail(rank, "a region that is not whole");
}

/* Three ranks on two devices of 1 GiB: two share the first. All that there is but a tenth, in units of 2 MiB; or what is
 * wanted, where that is less. What each rank has for products and lists is taken before. */
HEC_TEST(shares_of_memory) {
  const int64_t unit = 2 << 20, all = (int64_t)1 << 30;
  static const size_t wanted[] = {0, 5000000, (size_t)1 << 40};
  (void)setenv("FAKE_CUDA_MEMORY", "1073741824", 1);
  imitate("2");
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    regions r = {{0}, {0}};
    hec_launch_options options = hec_test_options(3, true);
    options.memory_bytes = wanted[i];
    if (hec_backend_nccl.launch(&options, look_at_region, &r) != HEC_OK)
      ck_abort_msg("%s", hec_last_error());
    if (i == 1) {
      for (int k = 0; k < 3; k++)
        ck_assert_uint_eq(r.bytes[k], 3 * (size_t)unit);
      continue;
    }
    ck_assert(r.bytes[0] == r.bytes[2] && r.bytes[0] % (size_t)unit == 0 && r.bytes[1] % (size_t)unit == 0);
    ck_assert((int64_t)r.bytes[1] <= all / 10 * 9 && (int64_t)r.bytes[1] > all / 10 * 8);
    ck_assert(2 * r.bytes[0] <= r.bytes[1] + (size_t)unit && 2 * r.bytes[0] + 24 * (size_t)unit > r.bytes[1]);
    ck_assert(r.at[0] != r.at[2]);
  }
}

/* The others wait on the device for messages that never come. */
HEC_TEST(a_rank_fails_on_a_device) {
  imitate("3");
  for (int i = 0; hec_device_links[i]; i++) {
    ck_assert_ptr_null(circles_on_backend(hec_device_links[i], -1));
    const char *text = circles_on_backend(hec_device_links[i], 1);
    ck_assert_msg(text && strcmp(text, "rank 1, in " HEC_TEST_DISPATCH ": on purpose") == 0, "%s", text);
  }
}

static const struct {
  const char *variable, *value, *says; /* says NULL: nothing need go wrong */
} breaks[] = {
    {"FAKE_NCCL_FAIL", "rank:1,after:9", "rank 1, in " HEC_TEST_DISPATCH ": NCCL, lane token: "},
    {"FAKE_NCCL_FAIL", "rank:2,after:1", "rank 2, in connecting the devices: NCCL, lane "},
    {"FAKE_CUDA_FAIL", "ncclGetUniqueId:2", "rank 0, in connecting the devices: NCCL, lane intra-node: "},
    {"FAKE_CUDA_FAIL", "ncclCommInitRank:5", "in connecting the devices: NCCL, lane intra-node: opening a com"},
    {"FAKE_CUDA_FAIL", "ncclSend:9", "NCCL, lane "},
    {"FAKE_CUDA_FAIL", "ncclRecv:30", "NCCL, lane "},
    {"FAKE_CUDA_FAIL", "ncclGroupEnd:20", "NCCL, lane "},
    {"FAKE_CUDA_FAIL", "ncclAllReduce:14", "NCCL, lane "},
    {"FAKE_CUDA_FAIL", "cudaMemGetInfo:2", ": the device's memory: "},
    {"FAKE_CUDA_FAIL", "cudaStreamCreate:8", "in opening the device: device "},
    {"FAKE_CUDA_FAIL", "cudaMalloc:2", "in opening the device: device "},
    {"FAKE_CUDA_FAIL", "cudaEventCreate:7", NULL},
    {"FAKE_CUDA_FAIL", "ncclCommFinalize:2", NULL},
    {"FAKE_CUDA_FAIL", "cudaStreamWaitEvent:3", NULL},
    {"FAKE_CUDA_FAIL", "launch:2", NULL},
};
enum { N_BREAKS = sizeof breaks / sizeof *breaks };

/* Whatever fails, every rank ends, and what is said names it. Over NCCL; from N_BREAKS on over local. */
HEC_TEST_LOOP(calls_that_fail, 2 * N_BREAKS) {
  bool local = _i >= N_BREAKS;
  int k = _i % N_BREAKS;
  (void)setenv(breaks[k].variable, breaks[k].value, 1);
  imitate("3");
  const char *text = circles_on_backend(local ? &hec_device_link_local : &hec_device_link_nccl, -1);
  bool of_nccl = strstr(breaks[k].value, "nccl") || strstr(breaks[k].variable, "NCCL");
  ck_assert_msg(!local || !of_nccl || !text, "%s", text);
  if (breaks[k].says && !(local && of_nccl))
    ck_assert_msg(text && strstr(text, breaks[k].says), "%s=%s: %s", breaks[k].variable, breaks[k].value,
                  text ? text : "nothing went wrong");
}
