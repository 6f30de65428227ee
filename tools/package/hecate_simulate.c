/* hec_simulate of libhecate: hecate-sim's options and its JSON document, without the program (hecate.h). Options are
 * parsed by the rows that hecate-sim has; what it does with them is simulation.c. */
#include "runtime/exec/package/hecate.h"
#include "tools/front/simulation.h"
#include "tools/front/summary/summary_write.h"

#include <stdlib.h>
#include <string.h>

static hec_status read_options(const char *const *options, int32_t n_options, hec_simulation_args *args) {
  *args = HEC_SIMULATION_ARGS;
  const hec_arg rows[] = {HEC_SIMULATION_ARG_ROWS(*args), {.name = NULL}};
  const hec_command command = {.program = "hecate-sim", .args = rows};
  if (n_options < 0 || (n_options > 0 && !options))
    return hec_fail(HEC_BAD_INPUT, "n_options: expected 0 or the number of words in options, found %d%s", n_options,
                    options ? "" : " and no options");
  for (int32_t i = 0; i < n_options; i++)
    if (!options[i])
      return hec_fail(HEC_BAD_INPUT, "options[%d]: expected a word, found NULL", i);
  hec_args words;
  hec_args_begin(&command, &words);
  for (int i = 0; i < n_options; i++) {
    if (options[i][0] != '-')
      return hec_fail(HEC_BAD_INPUT, "options[%d]: expected an option (--name), found \"%.100s\"", i, options[i]);
    HEC_TRY(hec_args_set(&words, n_options, options, &i));
  }
  return HEC_OK;
}

static hec_status open_trace(const char *trace, size_t length, const char *name, hec_trace_reader **reader) {
  if (!name)
    return hec_fail(HEC_BAD_INPUT, "name: expected a path or what messages call the trace, found NULL");
  if (trace)
    return hec_trace_open_memory(trace, length, name, reader);
  if (strcmp(name, "-") == 0)
    return hec_fail(HEC_BAD_INPUT, "trace: expected a text or the path of a file, found \"-\"");
  return hec_trace_open(name, reader);
}

int hec_simulate(const char *trace, size_t length, const char *name, const char *const *options, int32_t n_options,
                 char **json) {
  hec_simulation_args args;
  HEC_SCOPED(hec_arena) arena = {0};
  HEC_SCOPED(hec_simulation) simulation = {.summary = {0}};
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  hec_text text = {0};
  hec_status status =
      json ? read_options(options, n_options, &args) : hec_fail(HEC_BAD_INPUT, "json: expected a pointer, found NULL");
  if (status == HEC_OK)
    status = open_trace(trace, length, name, &reader);
  if (status == HEC_OK)
    status = hec_simulation_run(&args, reader, &arena, &simulation);
  if (status == HEC_OK) {
    hec_summary_json(&simulation.summary, &text);
    *json = text.data;
  }
  return (int)status;
}

void hec_simulate_free(char *json) {
  free(json);
}
