/* A fixed table, because a signal handler may only look and unlink. A slot is taken by its flag, set last and cleared
 * first, so the handler never sees half a path. */
#include "runtime/base/temporary.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

enum { N_SLOTS = 8, PATH_BYTES = 4096 };

static struct {
  volatile sig_atomic_t used;
  char path[PATH_BYTES];
} slots[N_SLOTS];

void hec_temporary_add(const char *path) {
  size_t bytes = strlen(path) + 1;
  for (int i = 0; i < N_SLOTS && bytes <= PATH_BYTES; i++) {
    if (slots[i].used)
      continue;
    memcpy(slots[i].path, path, bytes);
    slots[i].used = 1;
    return;
  }
}

void hec_temporary_drop(const char *path) {
  for (int i = 0; i < N_SLOTS; i++)
    if (slots[i].used && strcmp(slots[i].path, path) == 0)
      slots[i].used = 0;
}

void hec_temporary_forget(void) {
  for (int i = 0; i < N_SLOTS; i++)
    slots[i].used = 0;
}

static void clean_up(int number) {
  for (int i = 0; i < N_SLOTS; i++)
    if (slots[i].used)
      (void)unlink(slots[i].path);
  (void)signal(number, SIG_DFL);
  (void)raise(number); /* blocked here: the default action follows this handler */
}

void hec_temporary_watch_signals(void) {
  static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
  /* Not SA_RESETHAND: `timeout` and a terminal may send a signal twice at once, and the second one would end the program
   * between the reset and the handler. */
  struct sigaction action = {.sa_handler = clean_up}, before;
  (void)sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    (void)sigaddset(&action.sa_mask, numbers[i]);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
      (void)sigaction(numbers[i], &action, NULL);
  action = (struct sigaction){.sa_handler = SIG_IGN};
  (void)sigaction(SIGXFSZ, &action, NULL);
}
