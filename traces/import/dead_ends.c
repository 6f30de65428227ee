/* Files that people try first and that have no loads, or not in a form that is read: what is wrong, and what works instead. */
#include "traces/import/csv.h"
#include "traces/import/job.h"

#include <string.h>

/* What text before `instead` must be in the head of the file: all of `words`, the others NULL. */
typedef struct {
  const char *words[2];
  const char *found, *instead;
} dead_end;

static const dead_end dead_ends[] = {
    {{"PK\3\4"},
     "a ZIP file",
     "SGLang's .pt becomes JSON by python3 -c \"import torch,json,sys; d=torch.load(sys.argv[1],weights_only=True); "
     "json.dump({'logical_count':d['logical_count'].tolist()},sys.stdout)\" FILE"},
    {{"consumed samples", "iteration"},
     "a text log of Megatron-LM, which has no loads",
     "train with --moe-routing-trace-path DIR, then hecate-trace import DIR --experts E"},
    {{"INFO ", ".py:"},
     "a text log, which has no loads",
     "vLLM: start it with --enable-return-routed-experts, save the responses as FILE, then hecate-trace import FILE "
     "--experts E"},
    {{"#running-req"},
     "a text log of SGLang, which has no loads",
     "send requests with return_routed_experts, save the responses as FILE, then hecate-trace import FILE --experts E"},
    {{"PAR1"},
     "a Parquet file",
     "python3 -c \"import pandas,sys; pandas.read_parquet(sys.argv[1]).to_csv(sys.stdout,index=False)\" FILE "
     ">FILE.csv, "
     "with columns step,layer,expert,count"},
    {{"logits"},
     "logits",
     "expert ids are the K largest of each token: numpy.save(\"ids.npy\", logits.argsort()[..., -K:]), then "
     "hecate-trace "
     "import ids.npy --experts E --axes tokens,layers,top_k"},
};

/* How often the first line has this byte; 0 where it is JSON. */
static int count_in_line(const char *head, char byte) {
  int n = 0;
  for (const char *p = head; head[0] != '{' && head[0] != '[' && *p && *p != '\r' && *p != '\n'; p++)
    n += *p == byte;
  return n;
}

/* Columns that a format must have and the table has not: n_near may be misspelt there, n_missing are not. */
typedef struct {
  int n_missing, n_near;
} lacking;

static lacking columns_lacking(hec_csv *csv, const char *const *columns) {
  lacking l = {0};
  memset(csv->used, 0, sizeof csv->used);
  for (csv->n_wanted = 0; *columns; columns++) {
    HEC_SCOPED(hec_text) hint = {0};
    int column = -1;
    if (hec_csv_find(csv, *columns, &column) == HEC_OK && column >= 0)
      continue;
    bool near = hec_csv_add_near(csv, *columns, &hint);
    l.n_near += near;
    l.n_missing += !near;
  }
  return l;
}

/* A table of a known form, but for misspelt columns or one that is missing: an error that names the first. A wide table
 * has a column per expert, so it is none of them. */
static hec_status check_columns(hec_csv *csv) {
  const char *const *meant = NULL;
  lacking least = {2, 0};
  int column = -1;
  for (size_t i = 0; hec_importers[i]; i++) {
    const char *const *columns = hec_importers[i]->columns;
    lacking l = columns ? columns_lacking(csv, columns) : least;
    int n = 0;
    while (columns && columns[n])
      n++;
    if (l.n_missing < least.n_missing && (l.n_missing == 0 || l.n_near > 0 || csv->n_columns <= n + 1)) {
      least = l;
      meant = columns;
    }
  }
  for (csv->n_wanted = 0; meant && *meant; meant++)
    HEC_TRY(hec_csv_want(csv, *meant, &column));
  return HEC_OK;
}

static hec_status wrong_columns(const char *path, const char *head) {
  hec_csv csv;
  const hec_import_input input = {.path = path, .bytes = head, .length = strcspn(head, "\r\n")};
  const hec_import_file file = {.input = &input};
  hec_status status = HEC_OK;
  if (hec_csv_open(&csv, &file) == HEC_OK) /* else it has more columns than any of these */
    status = check_columns(&csv);
  hec_csv_close(&csv);
  return status;
}

static hec_status wrong_separator(const char *path, const char *expected, const char *name, char separator) {
  return hec_fail(HEC_BAD_INPUT, "%s: %s a table with %s; commas are read: tr '%s' , <FILE >FILE.csv", path, expected,
                  name, separator == '\t' ? "\\t" : ";");
}

hec_status hec_import_dead_end(const char *path, const char *head, size_t n) {
  static const char expected[] = "expected a format of hecate-trace import --list, found";
  for (size_t i = 0; i < sizeof dead_ends / sizeof *dead_ends; i++) {
    const dead_end *d = &dead_ends[i];
    if (hec_import_has(head, n, d->words[0]) && (!d->words[1] || hec_import_has(head, n, d->words[1])))
      return hec_fail(HEC_BAD_INPUT, "%s: %s %s; %s", path, expected, d->found, d->instead);
  }
  if (count_in_line(head, '\t') > 0)
    return wrong_separator(path, expected, "tabs", '\t');
  if (count_in_line(head, ';') > 1 && count_in_line(head, ',') == 0)
    return wrong_separator(path, expected, "semicolons", ';');
  if (count_in_line(head, ',') > 0 && strcspn(head, "\r\n") < n) {
    HEC_TRY(wrong_columns(path, head));
    return hec_fail(
        HEC_BAD_INPUT,
        "%s: %s a table with other columns (%.*s); write a line per step, layer and expert under "
        "step,layer,expert,count, then hecate-trace import FILE --top-k K; from step,layer and a column per "
        "expert: awk -F, -v OFS=, 'NR==1{print \"step,layer,expert,count\";next}{for(i=3;i<=NF;i++)print "
        "$1,$2,i-3,$i}'",
        path, expected, (int)(strcspn(head, "\r\n") < 60 ? strcspn(head, "\r\n") : 60), head);
  }
  return hec_fail(HEC_BAD_INPUT,
                  "%s: %s nothing that begins like one; docs/traces.md says how each recorder is switched on, and how "
                  "to write a table",
                  path, expected);
}
