/* The instruction sets of this CPU that the operating system saves the registers of, and its architecture. */
#include <elf.h>
#include <string.h>

#include "internal.h"

#if defined(__x86_64__)
#include <cpuid.h>

typedef struct {
  uint32_t basic, extended, extended_c, extended_d, lzcnt, more; /* leaf 1 ecx; 7 ebx, ecx, edx; 80000001 ecx; 7.1 eax */
  uint64_t saved;
} cpu_bits;

static cpu_bits read_bits(void) {
  cpu_bits bits = {0};
  uint32_t a, b, c, d;
  if (__get_cpuid(1, &a, &b, &c, &d)) bits.basic = c;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
    bits.extended = b;
    bits.extended_c = c;
    bits.extended_d = d;
  }
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) bits.more = a;
  if (__get_cpuid(0x80000001u, &a, &b, &c, &d)) bits.lzcnt = c;
  if (bits.basic >> 27 & 1) {
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    bits.saved = (uint64_t)d << 32 | a;
  }
  return bits;
}

static int has(uint32_t word, uint32_t wanted) { return (word & wanted) == wanted; }

int cpu_runs(const char* isa) {
  const cpu_bits bits = read_bits();
  /* fma, movbe, popcnt, avx, f16c; bmi1, avx2, bmi2; lzcnt */
  const int avx2 = has(bits.basic, 1u << 12 | 1u << 22 | 1u << 23 | 1u << 28 | 1u << 29) &&
                   has(bits.extended, 1u << 3 | 1u << 5 | 1u << 8) && has(bits.lzcnt, 1u << 5) && (bits.saved & 6) == 6;
  /* avx512f, dq, cd, bw, vl */
  const int avx512 = avx2 && has(bits.extended, 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31) &&
                     (bits.saved & 0xe6) == 0xe6;
  if (!strcmp(isa, "scalar")) return 1;
  if (!strcmp(isa, "avx2")) return avx2;
  if (!strcmp(isa, "avx512")) return avx512;
  if (!strcmp(isa, "avx512_vnni")) return avx512 && has(bits.extended_c, 1u << 11);
  if (!strcmp(isa, "avx512_bf16")) return avx512 && has(bits.more, 1u << 5);
  return 0;
}
#else
int cpu_runs(const char* isa) {
#if defined(__aarch64__)
  if (!strcmp(isa, "neon")) return 1;
#endif
  return !strcmp(isa, "scalar");
}
#endif

/* An ELF file's architecture is in bytes 18 and 19, in the order of bytes that byte 5 names. */
int cpu_loads(const uint8_t* object, size_t bytes) {
#if defined(__x86_64__)
  const unsigned own = EM_X86_64;
#elif defined(__aarch64__)
  const unsigned own = EM_AARCH64;
#else
  const unsigned own = EM_NONE;
#endif
  return own == EM_NONE || bytes < 20 || memcmp(object, ELFMAG, SELFMAG) || object[18] + 256u * object[19] == own;
}
