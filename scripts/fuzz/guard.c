/* Guard pages around TVM's tensors; loaded with LD_PRELOAD.

   An allocation that libtvm* aligns to 64 bytes or more ends at an inaccessible page, as closely as
   the alignment permits, and starts behind another one. The bytes between are compared when it is
   freed. It is filled with a pattern. Freed addresses stay inaccessible. All other allocations are
   the C library's. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096ul
#define ROOM (1ul << 43)
#define PATTERN 0xCD

struct head { /* in a page before the first guard page */
  char *end;
  size_t size;
};

static char *first, *next;

/* libc_malloc_debug.so.0 has these only in their first version. */
static void *next_of(const char *name) {
  void *found = dlvsym(RTLD_NEXT, name, "GLIBC_2.2.5");
  return found ? found : dlsym(RTLD_NEXT, name);
}

static int is_of_tvm(void *caller) {
  Dl_info info;
  return dladdr(caller, &info) && info.dli_fname && strstr(info.dli_fname, "libtvm");
}

static void require_pattern(const unsigned char *from, const unsigned char *to) {
  for (; from < to; ++from)
    if (*from != PATTERN) abort();
}

int posix_memalign(void **result, size_t alignment, size_t size) {
  static int (*real)(void **, size_t, size_t);
  if (!real) real = next_of("posix_memalign");
  if (alignment < 64 || alignment > PAGE || !is_of_tvm(__builtin_return_address(0)))
    return real(result, alignment, size);
  if (size > ROOM / 256) return ENOMEM;
  if (!first) {
    char *room = mmap(0, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return ENOMEM;
    next = room;
    first = room;
  }
  size_t aligned = (size + alignment - 1) & ~(alignment - 1);
  size_t pages = (aligned + PAGE - 1) & ~(PAGE - 1);
  char *block = __atomic_fetch_add(&next, pages + 3 * PAGE, __ATOMIC_SEQ_CST);
  char *data = block + 2 * PAGE, *end = data + pages;
  if (end + PAGE > first + ROOM || mprotect(block, PAGE, PROT_READ | PROT_WRITE)) return ENOMEM;
  if (pages && mprotect(data, pages, PROT_READ | PROT_WRITE)) return ENOMEM;
  memset(data, PATTERN, pages);
  *(struct head *)block = (struct head){end, size};
  *result = end - aligned; /* in the first of the pages; inaccessible if there are none */
  return 0;
}

void free(void *memory) {
  static void (*real)(void *);
  if (!first || (char *)memory < first || (char *)memory >= first + ROOM) {
    if (!real) real = next_of("free");
    real(memory);
    return;
  }
  char *data = (char *)((uintptr_t)memory & ~(PAGE - 1)), *block = data - 2 * PAGE;
  struct head head = *(struct head *)block;
  require_pattern((unsigned char *)data, memory);
  require_pattern((unsigned char *)memory + head.size, (unsigned char *)head.end);
  mmap(block, head.end - block, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
       -1, 0);
}
