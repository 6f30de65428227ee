/* Ranks on GPUs: one device each, messages by NCCL. So far the way there only: the plug-in (cuda/plugin.h) is loaded and
 * asked for its devices. Executing on them is not written yet, so this backend is never available, and says so. */
#include "runtime/exec/backend.h"
#include "runtime/exec/cuda/plugin.h"
#include "runtime/exec/plugin.h"

#include <stdlib.h>
#include <string.h>

#ifndef HEC_CUDA_WHY_NOT
#define HEC_CUDA_WHY_NOT "" /* why the plug-in is not part of this build, "": it is; set by CMake */
#endif

static const hec_cuda_plugin *plugin;

const hec_cuda_plugin *hec_cuda_plugin_of(void) {
  return plugin;
}

static bool accept(void *symbol) {
  hec_cuda_plugin_entry *entry;
  memcpy(&entry, &symbol, sizeof entry); /* ISO C has no cast from an object to a function */
  const hec_cuda_plugin *found = entry();
  if (found && found->layout == HEC_CUDA_LAYOUT)
    plugin = found;
  return plugin != NULL;
}

static bool load(hec_text *why) {
  static const hec_plugin_file file = {.file = "hecate-cuda.so", .symbol = HEC_CUDA_PLUGIN_SYMBOL, .accept = accept};
  hec_text reasons = {0};
  if (!plugin && !hec_plugin_load(&file, &reasons)) {
    if (!reasons.length && HEC_CUDA_WHY_NOT[0])
      hec_text_printf(&reasons, "not built: %s", HEC_CUDA_WHY_NOT);
    else if (!reasons.length)
      hec_plugin_say_missing(file.file, &reasons);
    hec_text_add(why, reasons.data);
  }
  hec_text_free(&reasons); /* those of files that were passed over do not matter once one is found */
  return plugin != NULL;
}

enum { NAMED_MOST = 4 };

/* "2 devices found (NVIDIA H200, NVIDIA H200)". */
static void say_devices(const hec_cuda_probe *probe, hec_text *why) {
  hec_text_printf(why, "%d device%s found (", probe->n_devices, probe->n_devices == 1 ? "" : "s");
  for (int32_t i = 0; i < probe->n_devices && i < NAMED_MOST; i++) {
    hec_text_add(why, i > 0 ? ", " : "");
    hec_text_add_plain(why, probe->devices[i].name);
  }
  hec_text_add(why, probe->n_devices > NAMED_MOST ? ", ...)" : ")");
}

static bool available(hec_text *why) {
  if (!load(why))
    return false;
  hec_cuda_probe *probe = calloc(1, sizeof *probe);
  if (!probe) {
    hec_text_add(why, "no memory");
  } else if (plugin->probe(probe)) {
    say_devices(probe, why);
    hec_text_add(why, ", but executing on GPUs is not there yet");
  } else {
    hec_text_add_plain(why, probe->why);
  }
  free(probe);
  return false;
}

static hec_status refuse(void) {
  hec_text why = {0};
  (void)available(&why);
  hec_status status = hec_fail(HEC_FAILED, "backend nccl: %s", why.data ? why.data : "not available");
  hec_text_free(&why);
  return status;
}

static hec_status ranks(int32_t *n_ranks) {
  *n_ranks = 0;
  return refuse();
}

static const hec_transport *transport(void) {
  return NULL;
}

static hec_status launch(const hec_launch_options *options, hec_rank_body *body, void *context) {
  (void)options, (void)body, (void)context;
  return refuse();
}

static bool speaks(void) {
  return true;
}

const hec_backend hec_backend_nccl = {
    .name = "nccl",
    .summary = "GPUs, one to a rank, messages by NCCL",
    .available = available,
    .ranks = ranks,
    .transport = transport,
    .here = NULL,
    .launch = launch,
    .speaks = speaks,
    .abandon = NULL,
    .close = NULL,
};
