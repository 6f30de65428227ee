/* Memory of devices. An address range per device, given out from the beginning on and never twice, so that whatever is
 * freed stays out of reach. Pages are private copies of a file full of 0xFF (NaN as a float), made when they are
 * written. They are open only while work of the device runs (of more than a MiB: closed now and then). An allocation
 * ends where its last page does, up to alignment (256 bytes): a page that nobody may touch follows.
 *
 * A crash is told from others by its address: a handler of its signal says what was touched and lets it happen. */
#define _GNU_SOURCE /* memfd_create, MAP_NORESERVE */
#include "tests/cuda/fake.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const size_t PAGE = 4096, ALIGNMENT = 256, POISON_BYTES = (size_t)16 << 20, RANGE_BYTES = (size_t)1 << 40,
                    CLOSED_ALWAYS_BYTES = (size_t)1 << 20;

typedef struct block {
  char *at, *pages;
  size_t bytes, page_bytes;
  struct block *next;
} block;

typedef struct {
  char *begin, *end; /* of its addresses; NULL: nothing allocated yet */
  char *next;        /* the first address that was never given out */
  block *blocks;     /* allocated */
  size_t used;
  bool open;
} device_memory;

static device_memory devices[FAKE_DEVICES_MAX];
static block *pinned;
static int poison = -1;
static const char *volatile running;

size_t fake_memory_total(void) {
  return (size_t)fake_setting("FAKE_CUDA_MEMORY", (int64_t)16 << 30);
}

size_t fake_memory_used(int32_t device) {
  return devices[device].used;
}

/* ---- Crashes ---- */

void fake_memory_running(const char *name) {
  running = name;
}

static int32_t owner_of(const void *at) {
  const char *byte = at;
  for (int32_t d = 0; d < FAKE_DEVICES_MAX; d++)
    if (devices[d].begin && byte >= devices[d].begin && byte < devices[d].end)
      return d;
  return -1;
}

/* In a handler: write only. An instruction that no CPU knows is what the compiler puts where a place is misaligned
 * (fake.cmake). */
static void explain(int signal, siginfo_t *info, void *context) {
  (void)context;
  char text[256];
  const char *doing = running;
  int32_t device = owner_of(info->si_addr);
  int n = 0;
  if (signal == SIGILL)
    n = snprintf(text, sizeof text, "fake CUDA: %s uses a place that is not aligned to its type\n",
                 doing ? doing : "the host");
  else if (doing)
    n = snprintf(text, sizeof text, "fake CUDA: %s touches %p, which it must not (device %d; -1: of the host)\n", doing,
                 info->si_addr, device);
  else if (device >= 0)
    n = snprintf(text, sizeof text, "fake CUDA: the host touches memory of device %d at %p\n", device, info->si_addr);
  if (n > 0)
    n = (int)write(STDERR_FILENO, text, (size_t)n);
  /* Comes again at once, for good: the handler is gone (SA_RESETHAND). */
}

static void explain_signal(int signal) {
  struct sigaction action = {.sa_sigaction = explain, .sa_flags = SA_SIGINFO | (int)SA_RESETHAND}, before;
  if (sigaction(signal, NULL, &before) == 0 && before.sa_handler == SIG_DFL)
    (void)sigaction(signal, &action, NULL);
}

static void begin(device_memory *m) {
  if (poison < 0) {
    poison = memfd_create("poison", MFD_CLOEXEC);
    char *at = poison < 0 || ftruncate(poison, (off_t)POISON_BYTES) != 0
                   ? MAP_FAILED
                   : mmap(NULL, POISON_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, poison, 0);
    if (at == MAP_FAILED)
      hec_queue_die("no memory to imitate that of devices");
    memset(at, 0xFF, POISON_BYTES);
    (void)munmap(at, POISON_BYTES);
    explain_signal(SIGSEGV);
    explain_signal(SIGILL);
  }
  char *at = mmap(NULL, RANGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED)
    hec_queue_die("no addresses to imitate the memory of a device");
  m->begin = m->next = at;
  m->end = at + RANGE_BYTES;
}

/* ---- Devices ---- */

static int protection(const device_memory *m) {
  return m->open ? PROT_READ | PROT_WRITE : PROT_NONE;
}

static void protect(const device_memory *m) {
  for (const block *b = m->blocks; b; b = b->next)
    if (mprotect(b->pages, b->page_bytes, protection(m)) != 0)
      hec_queue_die("the memory of a device cannot be opened or closed");
}

/* Closing and opening again cost the kernel a visit of every page: what is large is closed so seldom that this is bearable.
 * Tests have small devices, or many accesses. */
static bool worth_closing(const device_memory *m) {
  return hec_queue_random((uint32_t)(m->used / CLOSED_ALWAYS_BYTES) + 1) == 0;
}

void fake_memory_open(uint32_t wanted) {
  for (int32_t d = 0; d < FAKE_DEVICES_MAX; d++) {
    bool open = (wanted >> d & 1) != 0;
    if (!devices[d].begin || devices[d].open == open || (!open && !worth_closing(&devices[d])))
      continue;
    devices[d].open = open;
    protect(&devices[d]);
  }
}

void *fake_memory_take(int32_t device, size_t bytes) {
  device_memory *m = &devices[device];
  size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, page_bytes = (rounded + PAGE - 1) / PAGE * PAGE;
  if (bytes > fake_memory_total() - m->used)
    return NULL;
  if (!m->begin)
    begin(m);
  if (page_bytes + PAGE > (size_t)(m->end - m->next))
    hec_queue_die("too much memory was allocated and freed again");
  block *b = calloc(1, sizeof *b);
  if (!b)
    hec_queue_die("no memory");
  *b = (block){m->next + page_bytes - rounded, m->next, bytes, page_bytes, m->blocks};
  for (size_t done = 0; done < page_bytes; done += POISON_BYTES) {
    size_t piece = page_bytes - done < POISON_BYTES ? page_bytes - done : POISON_BYTES;
    if (mmap(m->next + done, piece, protection(m), MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, poison, 0) == MAP_FAILED)
      hec_queue_die("no memory to imitate that of a device");
  }
  m->next += page_bytes + PAGE;
  m->blocks = b;
  m->used += bytes;
  return b->at;
}

static block *unlink_block(block **list, const void *at) {
  for (block **link = list; *link; link = &(*link)->next)
    if ((*link)->at == at) {
      block *found = *link;
      *link = found->next;
      return found;
    }
  return NULL;
}

static bool meets(const void *at, size_t bytes, const block *b) {
  const char *begin_at = at;
  return bytes > 0 && begin_at < b->at + b->bytes && b->at < begin_at + bytes;
}

static void die_if_used(hec_queue_piece *work, void *context) {
  const block *b = context;
  for (int i = 0; i < HEC_QUEUE_RANGES_MAX; i++)
    if (meets(work->uses[i].at, work->uses[i].bytes, b))
      hec_queue_die("memory at %p is freed while %s of stream %d, which uses it, is queued", (void *)b->at, work->name,
                    work->stream->number);
  for (size_t i = 0; i + sizeof(void *) <= work->closure_bytes; i += sizeof(void *)) {
    const void *word;
    memcpy(&word, (const char *)work->closure + i, sizeof word);
    if (meets(word, 1, b))
      hec_queue_die("memory at %p is freed while %s of stream %d, which uses it, is queued", (void *)b->at, work->name,
                    work->stream->number);
  }
}

bool fake_memory_give(void *at) {
  int32_t device = owner_of(at);
  block *b = device < 0 ? NULL : unlink_block(&devices[device].blocks, at);
  if (!b)
    return false;
  fake_visit(die_if_used, b);
  void *gone = mmap(b->pages, b->page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  if (gone == MAP_FAILED)
    hec_queue_die("the memory of a device could not be freed");
  devices[device].used -= b->bytes;
  free(b);
  return true;
}

/* ---- Pinned memory ---- */

void *fake_pinned_take(size_t bytes) {
  block *b = calloc(1, sizeof *b);
  char *at = aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);
  if (!b || !at) {
    free(b);
    free(at);
    return NULL;
  }
  memset(at, 0xFF, bytes);
  *b = (block){at, at, bytes, bytes, pinned};
  pinned = b;
  return at;
}

bool fake_pinned_give(void *at) {
  block *b = unlink_block(&pinned, at);
  if (!b)
    return false;
  fake_visit(die_if_used, b);
  free(b->pages);
  free(b);
  return true;
}

/* ---- What an address is ---- */

fake_place fake_place_of(const void *at, size_t bytes, const char *call, int32_t *device) {
  const char *byte = at;
  *device = owner_of(at);
  if (*device < 0) {
    for (const block *b = pinned; b; b = b->next)
      if (byte >= b->at && byte + bytes <= b->at + b->bytes)
        return FAKE_PINNED;
    return FAKE_PAGEABLE;
  }
  for (const block *b = devices[*device].blocks; b; b = b->next)
    if (byte >= b->at && byte + bytes <= b->at + b->bytes)
      return FAKE_DEVICE;
  hec_queue_die("%s: not all of the %zu bytes at %p are allocated on device %d", call, bytes, at, *device);
}
