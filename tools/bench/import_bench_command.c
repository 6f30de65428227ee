/* hecate-bench import: MB/s and memory of every importer, each on a file of its own in a process of its own. */
#include "runtime/base/table.h"
#include "tools/bench/bench_commands.h"
#include "tools/bench/bench_loads.h"
#include "tools/bench/import_bench.h"
#include "tools/front/args.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
  double bytes;
  const char *format, *folder;
  bool json;
} settings;

/* In a child: makes the file, or (run) imports it and sends the result. */
static hec_status in_child(const hec_importer *format, const char *path, uint64_t bytes, hec_import_bench *run) {
  int ends[2];
  if (pipe(ends) != 0)
    return hec_fail(HEC_FAILED, "pipe: %s", strerror(errno));
  pid_t child = fork();
  if (child == 0) {
    hec_import_bench result = {0};
    hec_status status = run ? hec_import_bench_run(format, path, &result) : hec_import_bench_make(format, path, bytes);
    if (status != HEC_OK)
      fprintf(stderr, "%s\n", hec_last_error());
    if (status == HEC_OK && write(ends[1], &result, sizeof result) != (ssize_t)sizeof result)
      status = HEC_FAILED;
    _exit((int)status);
  }
  (void)close(ends[1]);
  hec_import_bench result = {0};
  bool got = child > 0 && read(ends[0], &result, sizeof result) == (ssize_t)sizeof result;
  (void)close(ends[0]);
  int code = 1;
  if (child > 0)
    (void)waitpid(child, &code, 0);
  if (!got || code != 0)
    return hec_fail(HEC_FAILED, "%s: %s failed in a process of its own", format->name, run ? "its import" : "its file");
  if (run)
    *run = result;
  return HEC_OK;
}

static hec_status measure(const settings *s, const hec_importer *format, hec_import_bench *result) {
  hec_text path = {0};
  hec_text_printf(&path, "%s/hecate-bench-%ld", s->folder, (long)getpid());
  hec_status status = in_child(format, path.data, (uint64_t)s->bytes, NULL);
  for (int attempt = 0; attempt < 3 && status == HEC_OK; attempt++) {
    hec_import_bench once = {0};
    status = in_child(format, path.data, 0, &once);
    if (status == HEC_OK && (attempt == 0 || once.seconds < result->seconds))
      *result = once;
  }
  (void)remove(path.data);
  hec_text_free(&path);
  return status;
}

static void print_row(const settings *s, const hec_importer *format, const hec_import_bench *r, hec_json_out *json,
                      hec_text *out) {
  if (!s->json) {
    hec_text_printf(out, "%-28s %8.0f %8.0f %8.0f %10" PRIu64 " %8.0f\n", format->name, 1e-6 * (double)r->bytes,
                    1e-6 * (double)r->bytes / r->seconds, 1e-6 * (double)r->bytes / r->cpu_s, r->records,
                    1e-6 * (double)r->peak_bytes);
    return;
  }
  hec_json_object(json, NULL);
  hec_json_string(json, "format", format->name);
  hec_json_int(json, "bytes", (int64_t)r->bytes);
  hec_json_double(json, "bytes_per_s", (double)r->bytes / r->seconds);
  hec_json_double(json, "cpu_s", r->cpu_s);
  hec_json_int(json, "records", (int64_t)r->records);
  hec_json_int(json, "peak_bytes", r->peak_bytes);
  hec_json_close(json);
}

static hec_status run(const settings *s, hec_text *out) {
  hec_json_out json = hec_json_begin(out, 1);
  if (s->format && !hec_importer_find(s->format))
    return hec_table_unknown(&(hec_table){.rows = hec_importers, .list = "hecate-trace import --list"}, "--format",
                             s->format);
  if (s->json) {
    hec_json_object(&json, NULL);
    hec_json_int(&json, "version", 1);
    hec_json_array(&json, "importers");
  } else {
    hec_text_printf(
        out,
        "synthetic files, one thread, written to /dev/null, best of 3; CPU: per second of its own computing\n"
        "memory: a step, transitions; json-routed-experts: a request; trtllm: a header; csv-ranks: the whole table\n\n"
        "%-28s %8s %8s %8s %10s %8s\n",
        "format", "file MB", "MB/s", "CPU MB/s", "records", "peak MB");
  }
  for (size_t i = 0; hec_importers[i]; i++) {
    hec_import_bench result = {0};
    if (s->format && strcmp(s->format, hec_importers[i]->name) != 0)
      continue;
    HEC_TRY(measure(s, hec_importers[i], &result));
    print_row(s, hec_importers[i], &result, &json, out);
  }
  if (s->json) {
    hec_json_close(&json);
    hec_json_close(&json);
  }
  return HEC_OK;
}

int hec_import_bench_command(int argc, char **argv) {
  const char *temporary = getenv("TMPDIR");
  settings s = {.bytes = 64e6, .folder = temporary && temporary[0] ? temporary : "/tmp"};
  const hec_arg args[] = {
      HEC_ARG_SIZE("--bytes", s.bytes, "N", "at least so large a file (default 64M)", 1e3, 1e12),
      HEC_ARG_WORD("--format", s.format, "F", "one importer only"),
      HEC_ARG_WORD("--folder", s.folder, "DIR", "where the file is made (default TMPDIR, else /tmp)"),
      {"--json", HEC_ARG_FLAG, &s.json, NULL, "one JSON document", 0, 0},
      {.name = NULL}};
  const hec_command command = {.program = "hecate-bench import",
                               .usage = "hecate-bench import [options]",
                               .summary = "Times importers on made files: MB/s, and the max memory that each takes.",
                               .examples = "  hecate-bench import --bytes 16M --format vllm-eplb",
                               .args = args};
  int32_t n;
  bool done;
  hec_text out = {0};
  hec_status status = hec_args_parse(&command, argc, argv, NULL, 0, &n, &done);
  if (status == HEC_OK && !done)
    status = run(&s, &out);
  return hec_bench_exit(status, &out);
}
