/* hecate-bench import: MB/s and memory of every importer, each on a file of its own in a process of its own. */
#include "runtime/base/table.h"
#include "tools/bench/bench.h"
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
  HEC_SCOPED(hec_text) path = {0};
  hec_text_printf(&path, "%s/hecate-bench-%ld", s->folder, (long)getpid());
  hec_status status = in_child(format, path.data, (uint64_t)s->bytes, NULL);
  for (int attempt = 0; attempt < 3 && status == HEC_OK; attempt++) {
    hec_import_bench once = {0};
    status = in_child(format, path.data, 0, &once);
    if (status == HEC_OK && (attempt == 0 || once.seconds < result->seconds))
      *result = once;
  }
  (void)remove(path.data);
  return status;
}

enum { IMPORTERS_MAX = 64 };
typedef struct {
  settings settings;
  hec_import_bench of[IMPORTERS_MAX]; /* [importer]; bytes 0: not timed */
} results;

static void report(const void *of, hec_doc *doc) {
  const results *all = of;
  HEC_ADD(doc, HEC_KEEP("version", 1));
  hec_doc_note(doc,
               "synthetic files, one thread, written to /dev/null, best of 3; CPU: per second of its own computing");
  hec_doc_note(doc,
               "memory: a step, transitions; json-routed-experts: a request; trtllm: a header; csv-ranks: the whole "
               "table");
  hec_doc_table(doc, "importers", "format | file MB | MB/s | CPU MB/s | records | peak MB");
  for (size_t i = 0; hec_importers[i]; i++) {
    const hec_import_bench *r = &all->of[i];
    double mb = 1e-6 * (double)r->bytes;
    if (r->bytes > 0)
      HEC_ROW(doc, HEC_SHOW("format", HEC_AS_IS, hec_importers[i]->name), HEC_KEEP("bytes", (int64_t)r->bytes),
              HEC_SHOW(NULL, HEC_FIXED2, mb), HEC_KEEP("bytes_per_s", (double)r->bytes / r->seconds),
              HEC_SHOW(NULL, HEC_FIXED2, mb / r->seconds), HEC_KEEP("cpu_s", r->cpu_s),
              HEC_SHOW(NULL, HEC_FIXED2, mb / r->cpu_s), HEC_SHOW("records", HEC_AS_IS, (int64_t)r->records),
              HEC_KEEP("peak_bytes", r->peak_bytes), HEC_SHOW(NULL, HEC_FIXED2, 1e-6 * (double)r->peak_bytes));
  }
  hec_doc_end(doc);
}

static hec_status run(results *all) {
  const settings *s = &all->settings;
  if (s->format && !hec_importer_find(s->format))
    return hec_table_unknown(&(hec_table){.rows = hec_importers, .list = "hecate-trace import --list"}, "--format",
                             s->format);
  for (size_t i = 0; hec_importers[i]; i++) {
    HEC_ASSERT(i < IMPORTERS_MAX);
    if (!s->format || strcmp(s->format, hec_importers[i]->name) == 0)
      HEC_TRY(measure(s, hec_importers[i], &all->of[i]));
  }
  return HEC_OK;
}

int hec_import_bench_command(int argc, char **argv) {
  const char *temporary = getenv("TMPDIR");
  results all = {.settings = {.bytes = 64e6, .folder = temporary && temporary[0] ? temporary : "/tmp"}};
  settings *s = &all.settings;
  const hec_arg args[] = {
      HEC_ARG_SIZE("--bytes", s->bytes, "N", "at least so large a file (default 64M)", 1e3, 1e12),
      HEC_ARG_WORD("--format", s->format, "F", "one importer only"),
      HEC_ARG_WORD("--folder", s->folder, "DIR", "where the file is made (default TMPDIR, else /tmp)"),
      {"--json", HEC_ARG_FLAG, &s->json, NULL, "one JSON document", 0, 0},
      {.name = NULL}};
  const hec_command command = {.program = "hecate-bench import",
                               .usage = "hecate-bench import [options]",
                               .summary = "Times importers on made files: MB/s, and the max memory that each takes.",
                               .examples = "  hecate-bench import --bytes 16M --format vllm-eplb",
                               .args = args};
  int32_t n;
  bool done;
  hec_status status = hec_args_parse(&command, argc, argv, NULL, 0, &n, &done);
  if (status == HEC_OK && !done)
    status = run(&all);
  return hec_bench_report(status, done, report, &all, s->json);
}
