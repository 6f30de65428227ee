/* Files that people try first and that have no loads, or not in a form that is read: what is wrong, and what works instead. */
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

/* A table, but not one with a line per expert: its first line. */
static bool is_table(const char *head, size_t n) {
  size_t line = strcspn(head, "\r\n");
  return line < n && head[0] != '{' && head[0] != '[' && memchr(head, ',', line) != NULL;
}

hec_status hec_import_dead_end(const char *path, const char *head, size_t n) {
  static const char expected[] = "expected a format of hecate-trace import --list, found";
  for (size_t i = 0; i < sizeof dead_ends / sizeof *dead_ends; i++) {
    const dead_end *d = &dead_ends[i];
    if (hec_import_has(head, n, d->words[0]) && (!d->words[1] || hec_import_has(head, n, d->words[1])))
      return hec_fail(HEC_BAD_INPUT, "%s: %s %s; %s", path, expected, d->found, d->instead);
  }
  if (head[0] != '{' && head[0] != '[' && memchr(head, '\t', strcspn(head, "\r\n")))
    return hec_fail(HEC_BAD_INPUT, "%s: %s a table with tabs; commas are read: tr '\\t' , <FILE >FILE.csv", path,
                    expected);
  if (is_table(head, n))
    return hec_fail(
        HEC_BAD_INPUT,
        "%s: %s a table with other columns (%.*s); write a line per step, layer and expert under "
        "step,layer,expert,count, then hecate-trace import FILE --top-k K; from step,layer and a column per "
        "expert: awk -F, -v OFS=, 'NR==1{print \"step,layer,expert,count\";next}{for(i=3;i<=NF;i++)print "
        "$1,$2,i-3,$i}'",
        path, expected, (int)(strcspn(head, "\r\n") < 60 ? strcspn(head, "\r\n") : 60), head);
  return hec_fail(HEC_BAD_INPUT,
                  "%s: %s nothing that begins like one; docs/traces.md says how each recorder is switched on, and how "
                  "to write a table",
                  path, expected);
}
