/* See tool.h. Which tool runs is known to the whole process, so that the help of a command can name its neighbours. */
#include "tools/front/tool.h"

#include "runtime/base/nearest.h"
#include "runtime/base/progress.h"
#include "tools/front/args.h"
#include "tools/front/colour.h"

#include "runtime/base/text.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

static const hec_tool *running; /* set once, by main */

const hec_tool *hec_tool_running(void) {
  return running;
}

static hec_nearest_search nearest_command(const hec_tool *tool, const char *word) {
  hec_nearest_search search = {.word = word};
  for (const hec_tool_command *c = tool->commands; c->name; c++)
    if (c->run && c->summary)
      hec_nearest_offer(&search, c->name);
  return search;
}

static hec_status unknown(const hec_tool *tool, const char *found) {
  HEC_SCOPED(hec_text) names = {0}, near = {0};
  const hec_nearest_search search = nearest_command(tool, found);
  for (const hec_tool_command *c = tool->commands; c->name; c++)
    if (c->run && c->summary)
      hec_text_printf(&names, "%s%s", names.length ? ", " : "", c->name);
  hec_nearest_hint(&search, &near);
  return hec_fail(HEC_BAD_INPUT, "expected %sa command (%s), found \"%.100s\"%s; see %s --help",
                  tool->run ? "a trace file or " : "", names.data, found, near.data ? near.data : "", tool->name);
}

/* Where a tool takes a trace, too: no file has this name, and a command has nearly. */
static bool is_mistyped(const hec_tool *tool, const char *word) {
  return word[0] != '-' && access(word, F_OK) != 0 && nearest_command(tool, word).nearest;
}

/* Help and the like of a tool that does nothing without a command. */
static hec_status without_command(const hec_tool *tool, int argc, char **argv) {
  const hec_arg none[] = {{.name = NULL}};
  HEC_SCOPED(hec_text) usage = {0};
  hec_text_printf(&usage, "%s COMMAND [options]", tool->name);
  const hec_command command = {.program = tool->name, .usage = usage.data, .summary = tool->description, .args = none};
  int32_t n;
  bool done = false;
  hec_status status = argc > 1 && argv[1][0] == '-' ? hec_args_parse(&command, argc, argv, NULL, 0, &n, &done) : HEC_OK;
  return status != HEC_OK || done ? status : unknown(tool, argc > 1 ? argv[1] : "");
}

/* What a row of a sweep frees the next one takes. By default glibc gives it back to the system in between, and every
 * page comes back by a fault and zeroed: a sixth of the CPU time of a sweep of layouts. Large pieces still come as zero
 * pages, of which only those in use are there. */
static void keep_freed_memory(void) {
#ifdef __GLIBC__
  (void)mallopt(M_MMAP_THRESHOLD, 512 << 10);
  (void)mallopt(M_TRIM_THRESHOLD, 64 << 20);
#endif
}

int hec_tool_main(const hec_tool *tool, int argc, char **argv) {
  running = tool;
  keep_freed_memory();
  if (hec_progress_wanted())
    hec_progress_begin(&(hec_progress_options){.name = tool->name, .file = STDERR_FILENO});
  for (const hec_tool_command *c = tool->commands; argc > 1 && c->name; c++)
    if (c->run && strcmp(argv[1], c->name) == 0)
      return c->run(argc - 1, argv + 1);
  if (tool->run && argc > 1 && is_mistyped(tool, argv[1]))
    return hec_tool_exit(tool->name, unknown(tool, argv[1]));
  return tool->run ? tool->run(argc, argv) : hec_tool_exit(tool->name, without_command(tool, argc, argv));
}
