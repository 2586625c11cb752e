// An auditor of the dynamic loader (LD_AUDIT): which pages of libtvm_compiler.so's code run.
// The pages are inaccessible at first; the first access to each is noted in the file that
// $TRACED_PAGES names, a byte for each page, and makes it accessible.
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };
static char *code;
static unsigned char *seen;
static size_t size;

static void on_access(int signal_number, siginfo_t *info, void *context) {
  size_t offset = (char *)info->si_addr - code;
  if (offset >= size) {
    signal(signal_number, SIG_DFL);
    return;
  }
  seen[offset / PAGE] = 1;
  mprotect(code + offset / PAGE * PAGE, PAGE, PROT_READ | PROT_EXEC);
}

unsigned la_version(unsigned version) { return LAV_CURRENT; }

unsigned la_objopen(struct link_map *map, Lmid_t id, uintptr_t *cookie) {
  const char *path = getenv("TRACED_PAGES");
  if (!path || !strstr(map->l_name, "libtvm_compiler")) return 0;
  Elf64_Ehdr *header = (Elf64_Ehdr *)map->l_addr;
  Elf64_Phdr *segment = (Elf64_Phdr *)(map->l_addr + header->e_phoff);
  while (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X)) ++segment;
  code = (char *)map->l_addr + segment->p_vaddr;
  size = (segment->p_memsz + PAGE - 1) / PAGE * PAGE;
  int file = open(path, O_RDWR | O_CREAT, 0644);
  if (file < 0 || ftruncate(file, size / PAGE)) abort();
  seen = mmap(NULL, size / PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (seen == MAP_FAILED) abort();
  struct sigaction action = {.sa_sigaction = on_access, .sa_flags = SA_SIGINFO | SA_NODEFER};
  sigaction(SIGSEGV, &action, NULL);
  mprotect(code, size, PROT_NONE);
  return 0;
}
