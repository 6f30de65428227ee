/* Finding and loading plug-ins; plugin.h says where. */
#define _GNU_SOURCE /* dladdr */
#include "runtime/exec/launch/plugin.h"

#include "runtime/base/files.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WANTED, PROGRAM, PROGRAM_LIB, LIBRARY, LIBRARY_BELOW, LIBRARY_BESIDE, N_FOLDERS };

/* The folder of the executable with `below` behind it, or "". */
static void add_program_folder(hec_text *path, const char *below) {
  char exe[4096];
  ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
  if (n <= 0)
    return;
  exe[n] = '\0';
  char *slash = strrchr(exe, '/');
  if (slash)
    hec_text_printf(path, "%.*s%s", (int)(slash - exe), exe, below);
}

/* The same of the file that this code was loaded from: the shared library, where it is part of one. */
static void add_library_folder(hec_text *path, const char *below) {
  static const char here = 0;
  Dl_info own;
  const char *slash = dladdr(&here, &own) != 0 && own.dli_fname ? strrchr(own.dli_fname, '/') : NULL;
  if (slash)
    hec_text_printf(path, "%.*s%s", (int)(slash - own.dli_fname), own.dli_fname, below);
}

static void find_folders(hec_text folders[N_FOLDERS]) {
  const char *wanted = getenv("HECATE_PLUGINS");
  if (wanted)
    hec_text_add(&folders[WANTED], wanted);
  add_program_folder(&folders[PROGRAM], "");
  add_program_folder(&folders[PROGRAM_LIB], "/../lib/hecate");
  add_library_folder(&folders[LIBRARY], "");
  add_library_folder(&folders[LIBRARY_BELOW], "/hecate");
  add_library_folder(&folders[LIBRARY_BESIDE], "/../hecate");
}

static void free_folders(hec_text folders[N_FOLDERS]) {
  for (int f = 0; f < N_FOLDERS; f++)
    hec_text_free(&folders[f]);
}

/* A copy that was interrupted: an ELF file's table of sections comes last and is not all there. dlopen would map what is
 * missing, and the process end by SIGBUS. Its offset is at byte 40 of a file of 64 bits, the size of a section and their
 * number at 58 and 60. */
static bool cut_short(const char *path) {
  unsigned char head[64];
  uint64_t at = 0;
  uint16_t bytes = 0, n = 0;
  FILE *file = hec_file_open(path, "rb");
  bool cut = false;
  if (file && fread(head, sizeof head, 1, file) == 1 && memcmp(head, "\177ELF\2", 5) == 0 &&
      fseek(file, 0, SEEK_END) == 0) {
    memcpy(&at, head + 40, sizeof at);
    memcpy(&bytes, head + 58, sizeof bytes);
    memcpy(&n, head + 60, sizeof n);
    cut = (uint64_t)ftell(file) < at + (uint64_t)n * bytes;
  }
  if (file)
    (void)fclose(file);
  return cut;
}

/* Opens folder/file; `why` gets the reason when the file is there and cannot be used. */
static bool load_from(const hec_text *folder, const hec_plugin_file *wanted, hec_text *why) {
  if (!folder->length)
    return false;
  HEC_SCOPED(hec_text) path = {0};
  hec_text_printf(&path, "%s/%s", folder->data, wanted->file);
  bool there = access(path.data, F_OK) == 0, cut = there && cut_short(path.data), accepted = false;
  void *library = there && !cut ? dlopen(path.data, RTLD_NOW | (wanted->global ? RTLD_GLOBAL : RTLD_LOCAL)) : NULL;
  const char *error = there && !cut && !library ? dlerror() : NULL;
  void *symbol = library ? dlsym(library, wanted->symbol) : NULL;
  if (symbol)
    accepted = wanted->accept(symbol);
  if (library && !accepted)
    hec_text_printf(why, "%s%s belongs to another version of hecate", why->length ? "; " : "", path.data);
  else if (cut)
    hec_text_printf(why, "%s%s is cut short", why->length ? "; " : "", path.data);
  else if (error)
    hec_text_printf(why, "%s%s", why->length ? "; " : "", error);
  return accepted;
}

bool hec_plugin_load(const hec_plugin_file *wanted, hec_text *why) {
  hec_text folders[N_FOLDERS] = {0};
  bool loaded = false;
  find_folders(folders);
  for (int f = 0; f < N_FOLDERS && !loaded; f++)
    loaded = load_from(&folders[f], wanted, why);
  free_folders(folders);
  return loaded;
}

void hec_plugin_say_missing(const char *file, hec_text *why) {
  const char *wanted = getenv("HECATE_PLUGINS");
  HEC_SCOPED(hec_text) program = {0};
  add_program_folder(&program, "");
  hec_text_printf(why, "%s is not in %s%s%s nor in ../lib/hecate", file, wanted ? wanted : "",
                  wanted ? ", not in " : "", program.length ? program.data : "?");
}
