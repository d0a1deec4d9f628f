// Tables of 16 values in a register.
//
//   vec<float> look_up(vec<float> table, vec<int32_t> i)   table[i % 16], for registers of 16 lanes
#ifndef LITZ_TABLES_H
#define LITZ_TABLES_H
#include "lanes.h"

namespace litz {

LITZ_FN vec<float> look_up(vec<float> table, vec<int32_t> i) {
#if defined(LITZ_AVX512) && LITZ_LANES == 16
  typedef int v16si __attribute__((vector_size(64)));
  return __builtin_ia32_permvarsf512_mask(table, (v16si)i, table, (short)-1);
#else
  vec<float> r = table;
  for (int k = 0; k < LITZ_LANES; ++k) set_lane(r, k, lane(table, lane(i, k) & 15));
  return r;
#endif
}

}  // namespace litz

#endif
