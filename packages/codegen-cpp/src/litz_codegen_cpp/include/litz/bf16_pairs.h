// Sums of products of bf16 numbers, 2 LITZ_LANES of them at a time: by the CPU's instruction for pairs where it has one,
// which takes denormals for zeros, as libraries' matmuls do. Two numbers of a pair are in one lane of 32 bits.
//
//   bf16_pairs load_adjacent(const bf16* p)      p[2 i] with p[2 i + 1]
//   bf16_pairs join_adjacent<EXACT>(vec<float> lo, vec<float> hi)      lo[i] with hi[i], each rounded to bf16 unless exact
//   bf16_pairs load_consecutive(const bf16* p)   p[0 .. 2 LITZ_LANES), paired as those of
//   bf16_pairs join_consecutive<EXACT>(vec<float> lo, vec<float> hi)   lo, then hi
//   void       add_products(sum_state<vec<float>>& s, bf16_pairs x, bf16_pairs y)
#ifndef LITZ_BF16_PAIRS_H
#define LITZ_BF16_PAIRS_H
#include "accumulate.h"
#include "memory.h"

namespace litz {

#if defined(LITZ_BF16_PAIRS)
#if __GNUC__ >= 13
typedef __bf16 paired_halves __attribute__((vector_size(64)));
#else
typedef packed_halves paired_halves;
#endif
typedef packed_halves bf16_pairs;
LITZ_FN bf16_pairs load_consecutive(const bf16* p) { return raw_load<packed_halves>(p); }
LITZ_FN bf16_pairs load_adjacent(const bf16* p) { return raw_load<packed_halves>(p); }
template <bool EXACT>
LITZ_FN bf16_pairs join_consecutive(vec<float> lo, vec<float> hi) {
#if __GNUC__ >= 13
  return (packed_halves)__builtin_ia32_cvtne2ps2bf16_v32bf(hi, lo);
#else
  return (packed_halves)__builtin_ia32_cvtne2ps2bf16_v32hi(hi, lo);
#endif
}
template <bool EXACT>
LITZ_FN bf16_pairs join_adjacent(vec<float> lo, vec<float> hi) {
  const packed_halves places = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return __builtin_ia32_permvarhi512_mask(join_consecutive<EXACT>(lo, hi), places, packed_halves{}, -1);
}
LITZ_FN void add_products(sum_state<vec<float>>& s, bf16_pairs x, bf16_pairs y) {
  s.block = (vec<float>)__builtin_ia32_dpbf16ps_v16sf(s.block, (paired_halves)x, (paired_halves)y);
}
#else
typedef wide<vec<float>> bf16_pairs;
LITZ_FN bf16_pairs load_consecutive(const bf16* p) { return load_pair(p); }
LITZ_FN bf16_pairs load_adjacent(const bf16* p) { return {load_strided(p, 2), load_strided(p + 1, 2)}; }
template <bool EXACT>
LITZ_FN bf16_pairs join_consecutive(vec<float> lo, vec<float> hi) {
  if constexpr (EXACT) return {lo, hi};
  else return round_bf16_pair(lo, hi);
}
template <bool EXACT>
LITZ_FN bf16_pairs join_adjacent(vec<float> lo, vec<float> hi) {
  if constexpr (EXACT) return {lo, hi};
  else return round_bf16_pair(lo, hi);
}
LITZ_FN void add_products(sum_state<vec<float>>& s, bf16_pairs x, bf16_pairs y) {
  s.add_product(x.lo, y.lo);
  s.add_product(x.hi, y.hi);
}
#endif

}  // namespace litz

#endif
