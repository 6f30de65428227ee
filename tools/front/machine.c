/* From /proc/cpuinfo, /proc/meminfo and /proc/loadavg, the affinity mask and sysconf. */
#define _GNU_SOURCE /* sched_getaffinity, CPU_COUNT */
#include "tools/front/machine.h"

#include "runtime/base/files.h"
#include "runtime/base/text.h"
#include "runtime/plan/problem.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void hec_machine_cpu(hec_text *name) {
  FILE *file = hec_file_open("/proc/cpuinfo", "r");
  char line[512];
  while (file && name->length == 0 && fgets(line, sizeof line, file)) {
    char *colon = strchr(line, ':');
    if (strncmp(line, "model name", 10) != 0 || !colon)
      continue;
    colon += 1 + strspn(colon + 1, " \t");
    colon[strcspn(colon, "\n")] = 0;
    hec_text_add_plain(name, colon);
  }
  if (file)
    (void)fclose(file);
  if (name->length == 0)
    hec_text_add(name, "unknown CPU");
}

int32_t hec_machine_cores(void) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
    return CPU_COUNT(&allowed);
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? (int32_t)online : 1;
}

double hec_machine_memory(void) {
  long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
  return pages > 0 && bytes > 0 ? (double)pages * (double)bytes : 0;
}

double hec_machine_memory_free(const char *meminfo) {
  static const char key[] = "MemAvailable:"; /* in kB: with what the page cache would give back */
  double all = hec_machine_memory(), bytes = -1;
  char line[256];
  FILE *file = hec_file_open(meminfo, "r");
  while (file && bytes < 0 && fgets(line, sizeof line, file))
    if (strncmp(line, key, sizeof key - 1) == 0) {
      char *end, *from = line + sizeof key - 1;
      double read = strtod(from, &end);
      bytes = end > from && read >= 0 ? 1024 * read : -1;
    }
  if (file)
    (void)fclose(file);
  return bytes < 0 || (all > 0 && bytes > all) ? all : bytes;
}

hec_status hec_machine_check_memory(const hec_problem *problem, int32_t ranks_here, bool check) {
  double bytes = hec_problem_bytes_without_copies(problem) * ranks_here, memory = hec_machine_memory();
  if (memory > 0 && bytes > memory)
    return hec_fail(HEC_BAD_INPUT,
                    "the ranks need at least %.3g GB, this machine has %.3g: choose fewer --ranks, --layers or "
                    "--tokens, or a smaller model",
                    bytes * 1e-9, memory * 1e-9);
  double reference = check ? hec_problem_bytes_reference(problem) : 0;
  if (memory > 0 && bytes + reference > memory)
    return hec_fail(HEC_BAD_INPUT,
                    "--check: the dense reference and the ranks need at least %.3g GB, this machine has %.3g: leave it "
                    "out, or choose fewer --layers or a smaller model",
                    (bytes + reference) * 1e-9, memory * 1e-9);
  return HEC_OK;
}

/* Slurm's is of the step (srun): a batch script has SLURM_NTASKS too and is one process. */
int32_t hec_machine_launched(void) {
  static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
  int32_t max = 1;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const char *size = getenv(sizes[i]);
    long n = size ? strtol(size, NULL, 10) : 1;
    max = n > max && n < INT32_MAX ? (int32_t)n : max;
  }
  return max;
}
