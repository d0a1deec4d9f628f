/* Shared objects of an archive: what is loaded is the copy whose sum was taken, so that no one can change it between. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

static int write_all(int handle, const uint8_t* data, size_t bytes) {
  while (bytes) {
    const ssize_t written = write(handle, data, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return 0;
    data += written;
    bytes -= (size_t)written;
  }
  return 1;
}

/* Loads from memory that no other process sees, or from a folder that only this user may enter. */
static void load(const uint8_t* data, size_t bytes, library* loaded, litz_error* error) {
  char path[64] = "", folder[] = "/tmp/litz-XXXXXX";
  int file = -1, in_folder = 0;
#ifdef MFD_CLOEXEC
  file = memfd_create("litz", MFD_CLOEXEC);
  if (file >= 0) snprintf(path, sizeof path, "/proc/self/fd/%d", file);
#endif
  if (file < 0 && mkdtemp(folder)) {
    in_folder = 1;
    snprintf(path, sizeof path, "%s/program.so", folder);
    file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  }
  if (file < 0 || !write_all(file, data, bytes)) {
    litz_fail(error, LITZ_ERROR_IO, "cannot write a program to load it: %s", strerror(errno));
  } else {
    loaded->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!loaded->handle) litz_fail(error, LITZ_ERROR_IO, "cannot load a program: %s", dlerror());
  }
  if (loaded->handle && !in_folder) loaded->file = file;
  else if (file >= 0) close(file);
  if (in_folder) {
    unlink(path);
    rmdir(folder);
  }
}

litz_code library_open(const member* object, const char* name, const char* sha256, library* loaded, litz_error* error) {
  char found[65];
  *loaded = (library){NULL, -1};
  uint8_t* copy = malloc(object->bytes ? object->bytes : 1);
  if (!copy) return litz_fail(error, LITZ_ERROR_MEMORY, "no memory for %s", name);
  memcpy(copy, object->data, object->bytes);
  litz_sha256(copy, object->bytes, found);
  litz_error reason = {LITZ_OK, ""};
  if (strcmp(found, sha256)) {
    litz_fail(&reason, LITZ_ERROR_CHECKSUM, "%s has the SHA-256 sum %s, and the manifest has %s: nothing of it was run",
              name, found, sha256);
  } else {
    load(copy, object->bytes, loaded, &reason);
  }
  free(copy);
  if (reason.code && error) *error = reason;
  return reason.code;
}

void library_close(library* loaded) {
  if (!loaded->handle) return;
  dlclose(loaded->handle);
  if (loaded->file >= 0) close(loaded->file);
}
