/* hecate-bench gpu: options and output of gpu_bench.h. */
#include "runtime/base/value.h"
#include "runtime/exec/backend.h"
#include "tools/bench/bench.h"
#include "tools/bench/gpu_bench.h"
#include "tools/front/args.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  int64_t device, repeats;
  bool small, list, json;
} settings;

typedef struct {
  const settings *s;
  const hec_cuda_plugin *plugin;
  hec_cuda_probe probe;
  bool emulated; /* no GPU: the stand-in that tests use */
  hec_gpu_results results;
} command;

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  *s = (settings){.repeats = 11};
  const hec_arg args[] = {
      HEC_ARG_WHOLE("--device", s->device, "D", "which GPU, from 0 (default 0)", 0, HEC_CUDA_DEVICES_MAX - 1),
      HEC_ARG_WHOLE("--repeats", s->repeats, "N", "readings of everything, by turns (default 11)", 1, 10000),
      {"--small", HEC_ARG_FLAG, &s->small, NULL, "small sizes, to see that it works: such numbers mean nothing", 0, 0},
      {"--list", HEC_ARG_FLAG, &s->list, NULL,
       "the GPUs that can be seen and the versions of the libraries, nothing else", 0, 0},
      {"--json", HEC_ARG_FLAG, &s->json, NULL, "one JSON document", 0, 0},
      {.name = NULL}};
  const hec_command text = {
      .program = "hecate-bench gpu",
      .usage = "hecate-bench gpu [options]",
      .summary =
          "Times one GPU through what the executor calls on it. memory: bytes read and written per second, as a share\n"
          "of one large copy's. Then products in float32, TF32 and bfloat16, as lists in one grouped call and one by\n"
          "one: experts with skewed and with even rows, as a share of one dense product with as many rows;\n"
          "attention. launches: what small calls cost the host and the device. Shares are taken repeat by repeat.\n"
          "Median [10th percentile, 90th percentile]. 'required': the min share asked for, and whether the median\n"
          "is there; missing it is no failure of this command. Exit code 2 where no GPU can be used.",
      .examples = "  hecate-bench gpu\n  hecate-bench gpu --json",
      .args = args};
  return hec_args_options(&text, argc, argv, done);
}

/* ---- The device ---- */

static hec_status no_device(const char *why) {
  return hec_fail(HEC_BAD_INPUT, "no GPU can be used: %s", why);
}

static hec_status find_device(command *c) {
  HEC_SCOPED(hec_text) why = {0};
  bool there = hec_backend_nccl.available(&why); /* loads the plug-in; what else it needs does not matter here */
  c->plugin = hec_cuda_plugin_of();
  hec_status status = HEC_OK;
  if (!c->plugin)
    status = no_device(why.data && !there ? why.data : "no plug-in");
  else if (!c->plugin->probe(&c->probe))
    status = no_device(c->probe.why);
  HEC_TRY(status);
  if (c->s->device >= c->probe.n_devices)
    return hec_fail(HEC_BAD_INPUT, "--device %d: expected less than the %d that can be seen", (int)c->s->device,
                    c->probe.n_devices);
  c->emulated = strncmp(c->probe.devices[c->s->device].name, "fake", 4) == 0;
  return HEC_OK;
}

static bool means_nothing(const command *c) {
  return c->emulated || c->s->small;
}

/* NULL: nothing is asked for, or it could not be judged. */
static const char *verdict(const command *c, const hec_gpu_rate *row) {
  if (row->required <= 0 || means_nothing(c))
    return NULL;
  return row->share.median >= row->required ? "met" : "missed";
}

/* 13000 = 13.0 as CUDA counts, 22809 = 2.28.9 as NCCL does, 130001 = 13.0.1 as cuBLAS does. */
static void print_list(const hec_cuda_probe *p, hec_text *out) {
  for (const hec_cuda_device_info *d = p->devices; d < p->devices + p->n_devices; d++) {
    hec_text_printf(out, "device %d  ", (int)(d - p->devices));
    hec_text_add_plain(out, d->name);
    hec_text_printf(out, ", compute capability %d.%d, %d processors, %.1f GB%s\n", d->major, d->minor, d->n_processors,
                    1e-9 * (double)d->memory_bytes, d->fits ? "" : ", no code for it in this build");
  }
  hec_text_printf(out, "driver    for CUDA %d.%d\n", p->driver_version / 1000, p->driver_version % 1000 / 10);
  hec_text_printf(out, "CUDA      %d.%d\n", p->runtime_version / 1000, p->runtime_version % 1000 / 10);
  hec_text_printf(out, "cuBLAS    %d.%d.%d\n", p->cublas_version / 10000, p->cublas_version / 100 % 100,
                  p->cublas_version % 100);
  hec_text_printf(out, "NCCL      %d.%d.%d\n", p->nccl_version / 10000, p->nccl_version / 100 % 100,
                  p->nccl_version % 100);
}

/* ---- JSON ---- */

static void json_rate(const command *c, const hec_gpu_rate *row, hec_json_out *json) {
  const char *said = verdict(c, row);
  hec_json_object(json, NULL);
  HEC_JSON(json, HEC_TEXT("section", row->section), HEC_TEXT("name", row->name),
           HEC_REAL(row->flops ? "flop" : "bytes", row->amount));
  hec_bench_spread_json(json, row->flops ? "flop_per_s" : "bytes_per_s", row->rate);
  if (row->base) {
    hec_json_string(json, "share_of", row->base);
    hec_bench_spread_json(json, "share", row->share);
  }
  if (row->required > 0)
    hec_json_double(json, "required", row->required);
  if (said)
    hec_json_bool(json, "met", strcmp(said, "met") == 0);
  hec_json_close(json);
}

static void print_json(const command *c, hec_text *out) {
  const hec_cuda_device_info *device = &c->probe.devices[c->s->device];
  hec_json_out json = hec_json_begin(out, 1);
  hec_json_object(&json, NULL);
  HEC_JSON(&json, HEC_INT("version", 1), HEC_TEXT("device", device->name), HEC_BOOL("emulated", c->emulated),
           HEC_BOOL("small", c->s->small), HEC_INT("memory_bytes", device->memory_bytes),
           HEC_INT("repeats", c->s->repeats));
  hec_json_array(&json, "rates");
  for (int32_t i = 0; i < c->results.n_rates; i++)
    json_rate(c, &c->results.rates[i], &json);
  hec_json_close(&json);
  hec_json_array(&json, "launches");
  for (int32_t i = 0; i < c->results.n_launches; i++) {
    hec_json_object(&json, NULL);
    hec_json_string(&json, "name", c->results.launches[i].name);
    hec_bench_spread_json(&json, "host_s", c->results.launches[i].host_s);
    hec_bench_spread_json(&json, "device_s", c->results.launches[i].device_s);
    hec_json_close(&json);
  }
  hec_json_close(&json);
  hec_json_double(&json, "events_per_s", c->results.events_per_s);
  hec_json_close(&json);
}

/* ---- Text ---- */

static void print_rate(const command *c, const hec_gpu_rate *row, hec_text *out) {
  const char *said = verdict(c, row);
  double unit = row->flops ? 1e-12 : 1e-9;
  hec_text_printf(out, "  %-18s %9.2f [%9.2f,%9.2f] %s", row->name, unit * row->rate.median, unit * row->rate.low,
                  unit * row->rate.high, row->flops ? "TFLOP/s" : "GB/s");
  if (row->base)
    hec_text_printf(out, "%*s%5.2f [%5.2f,%5.2f] of %s", row->flops ? 2 : 5, "", row->share.median, row->share.low,
                    row->share.high, row->base);
  if (row->required > 0)
    hec_text_printf(out, "; required %.2f: %s", row->required, said ? said : "not judged");
  hec_text_add(out, "\n");
}

static void print_launches(const command *c, hec_text *out) {
  hec_text_printf(out, "\nlaunches, us per call: until it returns; until the device is done, of many\n");
  for (const hec_gpu_launch *l = c->results.launches; l < c->results.launches + c->results.n_launches; l++)
    hec_text_printf(out, "  %-18s %7.2f [%7.2f,%7.2f]  %7.2f [%7.2f,%7.2f]\n", l->name, 1e6 * l->host_s.median,
                    1e6 * l->host_s.low, 1e6 * l->host_s.high, 1e6 * l->device_s.median, 1e6 * l->device_s.low,
                    1e6 * l->device_s.high);
  hec_text_printf(out, "  %.0f events per second from stream to stream\n", c->results.events_per_s);
}

static void print_text(const command *c, hec_text *out) {
  const hec_cuda_device_info *device = &c->probe.devices[c->s->device];
  hec_text_add_plain(out, device->name);
  hec_text_printf(out, ", %.1f GB, %d repeats\n", 1e-9 * (double)device->memory_bytes, (int)c->s->repeats);
  if (c->emulated)
    hec_text_add(out, "emulated on the CPU: times mean nothing\n");
  else if (c->s->small)
    hec_text_add(out, "small sizes: times mean nothing\n");
  for (int32_t i = 0; i < c->results.n_rates; i++) {
    const hec_gpu_rate *row = &c->results.rates[i];
    if (i == 0 || strcmp(row->section, row[-1].section) != 0)
      hec_text_printf(out, "\n%s\n", row->section);
    print_rate(c, row, out);
  }
  print_launches(c, out);
}

/* ---- The command ---- */

static hec_status run(command *c, hec_text *out) {
  HEC_TRY(find_device(c));
  if (c->s->list) {
    print_list(&c->probe, out);
    return HEC_OK;
  }
  const hec_gpu_bench bench = {c->plugin->device, (int32_t)c->s->device, (int32_t)c->s->repeats, c->s->small};
  HEC_TRY(hec_gpu_bench_run(&bench, &c->results));
  (c->s->json ? print_json : print_text)(c, out);
  return HEC_OK;
}

int hec_gpu_command(int argc, char **argv) {
  settings s;
  bool done;
  hec_text out = {0};
  HEC_SCOPED(hec_arena) arena = {0};
  command *c = HEC_NEW(&arena, command, 1);
  c->s = &s;
  hec_status status = parse(argc, argv, &s, &done);
  if (status == HEC_OK && !done)
    status = run(c, &out);
  return hec_bench_exit(status, &out);
}
