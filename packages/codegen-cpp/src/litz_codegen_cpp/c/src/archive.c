/* ZIP archives (PKWARE's APPNOTE 6.3.3, with ZIP64) whose members are stored; every number of a file is checked. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

#define END 0x06054b50u
#define END64 0x06064b50u
#define LOCATOR64 0x07064b50u
#define CENTRAL 0x02014b50u
#define LOCAL 0x04034b50u

static uint64_t number(const uint8_t* at, int bytes) {
  uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; --i) value = value << 8 | at[i];
  return value;
}

static litz_code damaged(litz_error* error, const char* what) {
  return litz_fail(error, LITZ_ERROR_FORMAT, "the file is no archive of litz, or is damaged: %s", what);
}

litz_code archive_map(const char* path, archive* file, litz_error* error) {
  struct stat about;
  *file = (archive){NULL, 0};
  const int handle = open(path, O_RDONLY | O_CLOEXEC);
  if (handle < 0) return litz_fail(error, LITZ_ERROR_IO, "cannot open %s: %s", path, strerror(errno));
  litz_code code = LITZ_OK;
  if (fstat(handle, &about) || !S_ISREG(about.st_mode)) {
    code = litz_fail(error, LITZ_ERROR_IO, "%s is no regular file", path);
  } else if (about.st_size == 0) {
    code = litz_fail(error, LITZ_ERROR_FORMAT, "%s is empty", path);
  } else {
    void* data = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, handle, 0);
    if (data == MAP_FAILED) code = litz_fail(error, LITZ_ERROR_IO, "cannot map %s: %s", path, strerror(errno));
    else *file = (archive){data, (size_t)about.st_size};
  }
  close(handle);
  return code;
}

void archive_unmap(archive* file) {
  if (file->data) munmap((void*)(uintptr_t)file->data, file->bytes);
  *file = (archive){NULL, 0};
}

uint32_t archive_crc32(const uint8_t* data, size_t bytes) {
  uint32_t crc = ~0u;
  for (size_t i = 0; i < bytes; ++i) {
    crc ^= data[i];
    for (int k = 0; k < 8; ++k) crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1)));
  }
  return ~crc;
}

/* Where the central directory begins and ends, and how many entries it has. It ends where its record begins, which is the
 * end of the file: nothing can be put before or after an archive, so that no other reader finds another directory. */
static litz_code find_directory(const archive* file, uint64_t* at, uint64_t* entries, uint64_t* end, litz_error* error) {
  const uint8_t* data = file->data;
  if (file->bytes < 22) return damaged(error, "it is too short");
  const size_t found = file->bytes - 22;
  if (number(data + found, 4) != END || number(data + found + 20, 2))
    return damaged(error, "it has no end of a directory, so part of it may be missing");
  uint64_t size = number(data + found + 12, 4);
  *entries = number(data + found + 10, 2);
  *at = number(data + found + 16, 4);
  *end = found;
  if (*entries == 0xffff || *at == 0xffffffffu || size == 0xffffffffu) {
    if (found < 20 + 56 || number(data + found - 20, 4) != LOCATOR64) return damaged(error, "it has no ZIP64 directory");
    *end = found - 20 - 56;
    if (number(data + found - 12, 8) != *end || number(data + *end, 4) != END64)
      return damaged(error, "its ZIP64 directory is at another place");
    *entries = number(data + *end + 32, 8);
    size = number(data + *end + 40, 8);
    *at = number(data + *end + 48, 8);
  }
  if (*at > *end || *end - *at != size) return damaged(error, "its directory does not end at its record");
  return LITZ_OK;
}

/* The sizes and offset of an entry of the directory, from its ZIP64 field where they are too large for the others. */
static int entry_numbers(const uint8_t* entry, size_t name, size_t extra, uint64_t* packed, uint64_t* bytes, uint64_t* offset) {
  *packed = number(entry + 20, 4);
  *bytes = number(entry + 24, 4);
  *offset = number(entry + 42, 4);
  const uint8_t *at = entry + 46 + name, *end = at + extra;
  while (end - at >= 4) {
    const uint8_t* field = at + 4;
    const size_t length = (size_t)number(at + 2, 2);
    if (length > (size_t)(end - field)) return 0;
    if (number(at, 2) == 1) {
      uint64_t* wanted[] = {bytes, packed, offset};
      size_t used = 0;
      for (int i = 0; i < 3; ++i) {
        if (*wanted[i] != 0xffffffffu) continue;
        if (used + 8 > length) return 0;
        *wanted[i] = number(field + used, 8);
        used += 8;
      }
    }
    at = field + length;
  }
  return 1;
}

static litz_code read_entry(const archive* file, const uint8_t* entry, size_t name, size_t extra, member* found,
                            litz_error* error) {
  const uint8_t* data = file->data;
  uint64_t packed, bytes, offset;
  if (!entry_numbers(entry, name, extra, &packed, &bytes, &offset)) return damaged(error, "a ZIP64 field is short");
  if (number(entry + 10, 2) != 0 || packed != bytes || number(entry + 8, 2) & 1)
    return damaged(error, "a member is compressed or encrypted");
  if (offset > file->bytes || file->bytes - offset < 30 || number(data + offset, 4) != LOCAL)
    return damaged(error, "a member is outside of the file");
  const size_t named = (size_t)number(data + offset + 26, 2);
  const uint64_t begin = offset + 30 + named + number(data + offset + 28, 2);
  if (begin > file->bytes || file->bytes - begin < bytes) return damaged(error, "a member is outside of the file");
  if (named != name || memcmp(data + offset + 30, entry + 46, name)) return damaged(error, "a member has two names");
  *found = (member){data + begin, (size_t)bytes, (uint32_t)number(entry + 16, 4)};
  return LITZ_OK;
}

litz_code archive_find(const archive* file, const char* name, member* found, litz_error* error) {
  uint64_t at = 0, entries = 0, end = 0;
  const uint8_t *data = file->data, *wanted = NULL;
  const size_t length = strlen(name);
  size_t wanted_extra = 0;
  const litz_code code = find_directory(file, &at, &entries, &end, error);
  if (code) return code;
  for (uint64_t i = 0; i < entries; ++i) {
    if (at > end || end - at < 46 || number(data + at, 4) != CENTRAL) return damaged(error, "its directory ends early");
    const uint8_t* entry = data + at;
    const size_t named = (size_t)number(entry + 28, 2), extra = (size_t)number(entry + 30, 2);
    const size_t whole = 46 + named + extra + (size_t)number(entry + 32, 2);
    if (end - at < whole) return damaged(error, "its directory ends early");
    at += whole;
    if (named != length || memcmp(entry + 46, name, length)) continue;
    if (wanted) return damaged(error, "two members have one name"); /* other readers take the last one */
    wanted = entry;
    wanted_extra = extra;
  }
  if (at != end) return damaged(error, "its directory has more entries than its record counts");
  if (wanted) return read_entry(file, wanted, length, wanted_extra, found, error);
  return litz_fail(error, LITZ_ERROR_FORMAT, "the file has no member %s", name);
}
