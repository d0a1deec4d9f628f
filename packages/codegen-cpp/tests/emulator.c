/* A process that runs kernels on copies of buffers: `emulated_cpu.py` starts it under an emulator, and talks to it by its
 * standard input and output. All numbers are 64-bit integers of the machine's order.
 *
 *   1, bytes of a path, path                        loads a library; answers 0, or 1, bytes and text of a message
 *   2, library, bytes of a name, name,              runs a kernel; answers its error code and all blocks, or -1 where the
 *      blocks, their bytes, their contents,         library has no such kernel
 *      buffers, block and offset of each,
 *      symbols, their values
 *
 * Blocks end where their page does, and the next page is not mapped: an access past the end ends the process.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <litz/runtime_table.h>

typedef int64_t kernel(litz_runtime*, void**, const int64_t*);

enum { MOST_LIBRARIES = 4096, THREADS = 3 };

static void* libraries[MOST_LIBRARIES];
static int64_t library_count;
static int member, members = 1;

static void receive(void* to, size_t bytes) {
  for (char* at = to; bytes;) {
    const ssize_t count = read(0, at, bytes);
    if (count <= 0) exit(count ? 1 : 0);
    at += count;
    bytes -= (size_t)count;
  }
}

static void answer(const void* from, size_t bytes) {
  for (const char* at = from; bytes;) {
    const ssize_t count = write(1, at, bytes);
    if (count <= 0) exit(1);
    at += count;
    bytes -= (size_t)count;
  }
}

static int64_t number(void) {
  int64_t value;
  receive(&value, sizeof value);
  return value;
}

static void answer_number(int64_t value) { answer(&value, sizeof value); }

static void* allocated(size_t bytes) {
  void* memory = calloc(bytes + 1, 1);
  if (!memory) exit(1);
  return memory;
}

/* The members of a team run one after another; kernels that are called alone have no barriers. */
static void one_by_one(void (*run)(void*), void* data, unsigned count, unsigned flags) {
  (void)flags;
  members = (int)count;
  for (member = 0; member < members; ++member) run(data);
  member = 0;
  members = 1;
}
static int which(void) { return member; }
static int team(void) { return members; }
static int most(void) { return THREADS; }

static void load(void) {
  const size_t bytes = (size_t)number();
  char* path = allocated(bytes);
  receive(path, bytes);
  void* opened = library_count < MOST_LIBRARIES ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (opened) {
    libraries[library_count++] = opened;
    answer_number(0);
  } else {
    const char* message = library_count < MOST_LIBRARIES ? dlerror() : "too many libraries";
    answer_number(1);
    answer_number((int64_t)strlen(message));
    answer(message, strlen(message));
  }
  free(path);
}

static void run(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  void* const library = libraries[number()];
  const size_t length = (size_t)number();
  char* name = allocated(length);
  receive(name, length);
  const size_t blocks = (size_t)number();
  size_t* sizes = allocated(blocks * sizeof *sizes);
  char** mapped = allocated(blocks * sizeof *mapped);
  char** contents = allocated(blocks * sizeof *contents);
  for (size_t k = 0; k < blocks; ++k) sizes[k] = (size_t)number();
  for (size_t k = 0; k < blocks; ++k) {
    const size_t whole = (sizes[k] + page - 1) / page * page;
    mapped[k] = mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped[k] == MAP_FAILED || mprotect(mapped[k] + whole, page, PROT_NONE)) exit(1);
    contents[k] = mapped[k] + whole - sizes[k];
    receive(contents[k], sizes[k]);
  }
  const size_t buffers = (size_t)number();
  void** pointers = allocated(buffers * sizeof *pointers);
  for (size_t k = 0; k < buffers; ++k) {
    const int64_t block = number();
    pointers[k] = contents[block] + number();
  }
  const size_t symbols = (size_t)number();
  int64_t* values = allocated(symbols * sizeof *values);
  for (size_t k = 0; k < symbols; ++k) values[k] = number();
  void* found = dlsym(library, name);
  kernel* entry;
  memcpy(&entry, &found, sizeof entry);
  litz_runtime table = {one_by_one, which, team, most, NULL, 0, 0, 0, NULL};
  answer_number(entry ? entry(&table, pointers, values) : -1);
  for (size_t k = 0; k < blocks; ++k) {
    answer(contents[k], sizes[k]);
    munmap(mapped[k], (sizes[k] + page - 1) / page * page + page);
  }
  free(name);
  free(sizes);
  free(mapped);
  free(contents);
  free(pointers);
  free(values);
}

int main(void) {
  for (;;) {
    if (number() == 1) load();
    else run();
  }
}
