/* The table of break-even tokens, a row for each class of link and share of the transfer that is exposed. The plain
 * formula and the cluster's laws stand side by side (runtime/plan/breakeven.h). */
#include "tools/sim/sim_commands.h"

#include "models/straggler.h"
#include "runtime/base/text.h"
#include "runtime/base/value.h"
#include "runtime/plan/breakeven.h"
#include "tools/front/job_args.h"
#include "tools/front/output.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double exposed_shares[] = {1, 0.5, 0.25, 0.1};
enum { N_EXPOSED = sizeof exposed_shares / sizeof *exposed_shares, LINKS_MAX = 2 };

typedef struct {
  hec_job_options job;
  bool json;
} settings;

/* What is asked about. */
typedef struct {
  hec_cluster cluster;
  const char *stragglers; /* what the options changed; NULL: nothing */
  hec_moe moe;
  double flops_s; /* of device 0 in large products */
  int32_t n_links;
  struct {
    const char *key, *text;
    hec_breakeven_path path;
  } link[LINKS_MAX];
} question;

static const hec_run_option_words words[] = {
    {"cluster", NULL, "preset (hecate-sim --list), JSON file or line (default p4d-4x8)"},
    {"model", NULL, "preset (hecate-sim --list), JSON file or config.json of Hugging Face (default gpt-moe-s)"},
    {.key = NULL},
};

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  *s = (settings){.job = HEC_JOB_OPTIONS};
  s->job.cluster = "p4d-4x8";
  s->job.model = "gpt-moe-s";
  const hec_arg args[] = {HEC_ARG_JOB("", s->job, "cluster model slow", words),
                          {"--json", HEC_ARG_FLAG, &s->json, NULL, "one JSON document", 0, 0},
                          {.name = NULL}};
  const hec_command command = {
      .program = "hecate-sim breakeven",
      .usage = "hecate-sim breakeven [--cluster C] [--model M] [--json]",
      .summary =
          "How many token-expert assignments a copy of an expert must take over, in one micro-batch, before it pays "
          "for being\nsent to another device: inside a node and between nodes, by what is sent and by how much of "
          "that nothing hides.",
      .examples = "  hecate-sim breakeven --cluster dgx-h100 --model deepseek-v3\n"
                  "  hecate-sim breakeven --cluster \"2x8 nvlink=450G@2us nic=400G@5us flops=600T mem=80G\" --model "
                  "olmoe --json",
      .args = args};
  return hec_args_options(&command, argc, argv, done);
}

/* Whether a way that is asked about, or the one back, crosses the link. */
static bool crosses(const question *q, int32_t link) {
  for (int32_t l = 0; l < q->n_links; l++)
    for (int32_t back = 0; back < 2; back++) {
      const hec_breakeven_path *path = &q->link[l].path;
      const int32_t *links;
      int32_t n = hec_cluster_route(&q->cluster, back ? path->destination : path->source,
                                    back ? path->source : path->destination, &links);
      for (int32_t i = 0; i < n; i++)
        if (links[i] == link)
          return true;
    }
  return false;
}

static bool computes(const question *q, int32_t device) {
  bool is = device == 0; /* the source of every path */
  for (int32_t l = 0; l < q->n_links; l++)
    is = is || device == q->link[l].path.destination;
  return is;
}

/* What is slower than in `before` must be asked about: elsewhere it would change nothing. */
static hec_status check_slow(const settings *s, const question *q, const hec_cluster *before) {
  bool counts = true;
  for (int32_t d = 0; d < q->cluster.n_devices; d++)
    counts = counts && (!(q->cluster.devices[d].speed < before->devices[d].speed) || computes(q, d));
  for (int32_t l = 0; l < q->cluster.n_links; l++)
    counts = counts && (!(q->cluster.links[l].bandwidth < before->links[l].bandwidth) || crosses(q, l));
  if (counts)
    return HEC_OK;
  HEC_SCOPED(hec_text) ranks = {0};
  for (int32_t l = 0; l < q->n_links; l++)
    hec_text_printf(&ranks, "%s%" PRId32, l + 1 < q->n_links ? ", " : " and ", q->link[l].path.destination);
  return hec_fail(HEC_BAD_INPUT,
                  "--slow: expected ranks 0%s, whose copies are asked about, or links between them; found \"%s\"",
                  ranks.data, s->job.slow);
}

static hec_status slow_down(const settings *s, hec_arena *arena, question *q) {
  hec_cluster before = q->cluster;
  HEC_SCOPED(hec_text) said = {0};
  hec_status slowed = hec_stragglers_apply(&(hec_stragglers){.slow = s->job.slow}, before.n_devices, &before, arena,
                                           &q->cluster, &said);
  q->stragglers = said.length > 0 ? hec_arena_text(arena, said.data) : NULL;
  HEC_TRY(slowed);
  for (int32_t l = 0; l < q->n_links; l++)
    q->link[l].path = hec_breakeven_path_of(&q->cluster, 0, q->link[l].path.destination);
  return check_slow(s, q, &before);
}

static hec_status ask(const settings *s, hec_arena *arena, question *q) {
  HEC_TRY(hec_cluster_load(s->job.cluster, arena, &q->cluster));
  HEC_TRY(hec_moe_load(s->job.model, &q->moe));
  int32_t per_node = q->cluster.devices_per_node;
  if (q->cluster.n_devices < 2)
    return hec_fail(HEC_BAD_INPUT, "cluster %s: expected at least 2 devices, found 1: nowhere to send a copy",
                    q->cluster.name);
  if (per_node > 1) {
    q->link[q->n_links].key = "node";
    q->link[q->n_links].text = "in a node";
    q->link[q->n_links++].path = hec_breakeven_path_of(&q->cluster, 0, 1);
  }
  if (q->cluster.n_nodes > 1) {
    q->link[q->n_links].key = "between";
    q->link[q->n_links].text = "between nodes";
    q->link[q->n_links++].path = hec_breakeven_path_of(&q->cluster, 0, per_node);
  }
  HEC_TRY(slow_down(s, arena, q));
  const hec_device *device = &q->cluster.devices[0];
  q->flops_s = device->flops * device->flops_efficiency * device->speed;
  return HEC_OK;
}

static double plain_of(const question *q, int32_t link, hec_breakeven way, double exposed) {
  return hec_breakeven_plain(way, q->moe.dtype_bytes, q->flops_s, q->link[link].path.bandwidth, exposed);
}

static int64_t law_of(const question *q, int32_t link, hec_breakeven way, double exposed) {
  return hec_breakeven_by_law(way, &q->moe, &q->cluster, &q->link[link].path, exposed);
}

static void print_json(const question *q, hec_text *out) {
  hec_json_out json = hec_json_begin(out, 1);
  hec_json_object(&json, NULL);
  HEC_JSON(&json, HEC_INT("version", 1), HEC_TEXT("tool", "hecate-sim " HEC_VERSION),
           HEC_TEXT("cluster", q->cluster.name));
  if (q->stragglers)
    hec_json_string(&json, "stragglers", q->stragglers);
  HEC_JSON(&json, HEC_TEXT("model", q->moe.name), HEC_REAL("flops_s", q->flops_s),
           HEC_REAL("expert_bytes", hec_moe_expert_params(&q->moe) * q->moe.dtype_bytes));
  hec_json_array(&json, "links");
  for (int32_t l = 0; l < q->n_links; l++) {
    HEC_JSON(&json, HEC_OBJECT(NULL, HEC_TEXT("link", q->link[l].key), HEC_REAL("bandwidth", q->link[l].path.bandwidth),
                               HEC_REAL("latency_s", q->link[l].path.latency_s)));
  }
  hec_json_close(&json);
  hec_json_array(&json, "breakeven");
  for (int32_t l = 0; l < q->n_links; l++)
    for (int32_t x = 0; x < N_EXPOSED; x++)
      for (hec_breakeven way = 0; way < HEC_N_BREAKEVEN; way++) {
        hec_json_object(&json, NULL);
        HEC_JSON(&json, HEC_TEXT("link", q->link[l].key), HEC_REAL("exposed", exposed_shares[x]),
                 HEC_TEXT("sent", hec_breakeven_ways[way].name),
                 HEC_REAL("tokens", plain_of(q, l, way, exposed_shares[x])));
        int64_t law = law_of(q, l, way, exposed_shares[x]);
        if (law == HEC_BREAKEVEN_NEVER)
          hec_json_null(&json, "tokens_by_law");
        else
          hec_json_int(&json, "tokens_by_law", law);
        hec_json_close(&json);
      }
  hec_json_close(&json);
  hec_json_close(&json);
}

static void print_head(const question *q, hec_text *out) {
  double params = hec_moe_expert_params(&q->moe);
  hec_text_add(out, "hecate-sim " HEC_VERSION ": tokens per copy of an expert above which the copy pays\n");
  hec_text_printf(out, "model    %s: an expert has %.4g M parameters, %.4g MB of weights\n", q->moe.name, params * 1e-6,
                  params * q->moe.dtype_bytes * 1e-6);
  hec_text_printf(out, "         %.4g MFLOP a token forward, three times that in training\n", 2e-6 * params);
  hec_text_printf(out, "cluster  %s\n         a device reaches %.4g TFLOP/s in large products\n", q->cluster.name,
                  q->flops_s * 1e-12);
  const char *shared = q->cluster.nics == q->cluster.devices_per_node ? "its own" : "of a NIC that devices share";
  if (q->stragglers)
    hec_text_printf(out, "         %s\n", q->stragglers);
  for (int32_t l = 0; l < q->n_links; l++)
    hec_text_printf(out, "%s %s %.4g GB/s, %.3g us: what one transfer alone gets (%s)\n",
                    l == 0 ? "a copy is sent" : "              ", q->link[l].text, q->link[l].path.bandwidth * 1e-9,
                    q->link[l].path.latency_s * 1e6, strcmp(q->link[l].key, "node") == 0 ? "a device's port" : shared);
  if (strcmp(q->link[q->n_links - 1].key, "between") == 0 && q->cluster.nics < q->cluster.devices_per_node)
    hec_text_printf(out,
                    "               %" PRId32 " devices share %" PRId32 " NIC%s: each has %.4g GB/s when all send\n",
                    q->cluster.devices_per_node, q->cluster.nics, q->cluster.nics == 1 ? "" : "s",
                    q->link[q->n_links - 1].path.bandwidth * 1e-9 * q->cluster.nics / q->cluster.devices_per_node);
  hec_text_add(out, "\n");
}

static void print_table(const question *q, hec_text *out) {
  print_head(q, out);
  hec_text_printf(out, "%-13s %7s  %17s  %17s  %17s  %17s\n", "", "", "weights once,", "weights twice,",
                  "weights twice,", "weights kept,");
  hec_text_printf(out, "%-13s %7s  %17s  %17s  %17s  %17s\n", "", "", "forward only", "fp32 gradients",
                  "bf16 gradients", "fp32 gradients");
  hec_text_printf(out, "%-13s %7s", "copy sent", "exposed");
  for (hec_breakeven way = 0; way < HEC_N_BREAKEVEN; way++)
    hec_text_printf(out, "  %8s %8s", "plain", "by law");
  hec_text_add(out, "\n");
  for (int32_t l = 0; l < q->n_links; l++)
    for (int32_t x = 0; x < N_EXPOSED; x++) {
      hec_text_printf(out, "%-13s %7g", x == 0 ? q->link[l].text : "", exposed_shares[x]);
      for (hec_breakeven way = 0; way < HEC_N_BREAKEVEN; way++) {
        int64_t law = law_of(q, l, way, exposed_shares[x]);
        hec_text_printf(out, "  %8.0f", ceil(plain_of(q, l, way, exposed_shares[x]) * (1 - 1e-12)));
        if (law == HEC_BREAKEVEN_NEVER)
          hec_text_printf(out, " %8s", "-");
        else
          hec_text_printf(out, " %8" PRId64, law);
      }
      hec_text_add(out, "\n");
    }
  hec_text_add(
      out, "\nNumbers are assignments (token, expert) of a micro-batch that the copy computes in place of its owner:\n"
           "from so many on the copy pays.\n"
           "exposed:         share of the transfer that nothing hides (1: all of it delays the iteration)\n"
           "weights once:    the copy gets its weights before the forward pass, which is all there is\n"
           "weights twice:   they are sent again for the backward pass; its gradients go back in fp32 or bf16\n"
           "weights kept:    they stay till the backward pass, which takes memory; gradients go back in fp32\n"
           "plain:           bytes sent over the bandwidth above, against the products saved, nothing else\n"
           "by law:          half of an expert's assignments moved to the copy, with the cluster's latency,\n"
           "                 launches, tiles and streaming of weights; -: it never pays\n");
}

static hec_status run(const settings *s, hec_arena *arena) {
  question q = {0};
  HEC_TRY(ask(s, arena, &q));
  HEC_SCOPED(hec_text) out = {0};
  (s->json ? print_json : print_table)(&q, &out);
  return hec_output_print(&out);
}

int hec_breakeven_command(int argc, char **argv) {
  settings s;
  bool done;
  hec_status status = parse(argc, argv, &s, &done);
  if (status != HEC_OK || done)
    return hec_tool_exit("hecate-sim breakeven", status);
  HEC_SCOPED(hec_arena) arena = {0};
  status = run(&s, &arena);
  return hec_tool_exit("hecate-sim breakeven", status);
}
