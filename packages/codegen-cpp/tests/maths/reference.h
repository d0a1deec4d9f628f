// How far values lie from exact ones, counted over many inputs. T is float or double, W the wider type that holds what is
// exact: double for float, long double for double.
#ifndef MATHS_REFERENCE_H
#define MATHS_REFERENCE_H
#include <math.h>
#include <stdint.h>

struct tally {
  int64_t inputs, above_1, above_2;     // of how many, and how many lie further than 1 and 2 units in the last place
  int64_t wrong_nan, wrong_inf, wrong_zero;  // where one alone is NaN, or infinite, or a zero has the other sign
  double worst;                         // the largest distance, in units of the last place
  double worst_at[2], special_at[2];    // where it is, and the first input that one of the three counts holds
};

template <class T>
struct format;
template <>
struct format<float> {
  static constexpr int digits = 24, lowest = -125;
  static constexpr double past_largest = 0x1p128;
};
template <>
struct format<double> {
  static constexpr int digits = 53, lowest = -1021;
  static constexpr long double past_largest = 0x1p1024L;
};

// One unit in the last place of a T near w.
template <class T, class W>
static inline W unit_near(W w) {
  int exponent;
  frexpl(w, &exponent);
  if (exponent < format<T>::lowest) exponent = format<T>::lowest;
  return ldexpl(1, exponent - format<T>::digits);
}
template <>
inline double unit_near<float, double>(double w) {
  uint64_t bits;
  __builtin_memcpy(&bits, &w, sizeof bits);
  uint64_t exponent = bits >> 52 & 0x7ff, lowest = 1023 - 126;
  bits = (exponent < lowest ? lowest : exponent) - 23 << 52;
  __builtin_memcpy(&w, &bits, sizeof bits);
  return w;
}

template <class T>
static void note_special(tally* t, int64_t& count, T x, T y) {
  if (t->wrong_nan + t->wrong_inf + t->wrong_zero == 0) {
    t->special_at[0] = x;
    t->special_at[1] = y;
  }
  count += 1;
}

// What rounds to infinity may be the largest number instead where it is no further from it than rounding takes it.
template <class T, class W>
static void judge_one(T x, T y, T got, W want, tally* t) {
  W w = want, g = got;
  if (w != w || g != g) {
    if (w == w || g == g) note_special(t, t->wrong_nan, x, y);
    return;
  }
  W largest = format<T>::past_largest, size = w < 0 ? -w : w, infinite = __builtin_inf();
  if (size >= largest) {
    if (g != (w < 0 ? -infinite : infinite)) note_special(t, t->wrong_inf, x, y);
    return;
  }
  if (g == 0 && __builtin_signbit(g) != __builtin_signbit(w)) note_special(t, t->wrong_zero, x, y);
  if (g > largest) g = largest;
  if (g < -largest) g = -largest;
  double ulps = double((g < w ? w - g : g - w) / unit_near<T, W>(w));
  t->above_1 += ulps > 1;
  t->above_2 += ulps > 2;
  if (ulps > t->worst) {
    t->worst = ulps;
    t->worst_at[0] = x;
    t->worst_at[1] = y;
  }
}
template <class T, class W>
static void judge(const T* x, const T* y, const T* got, const W* want, int64_t n, tally* t) {
  t->inputs += n;
  for (int64_t i = 0; i < n; ++i) judge_one(x[i], y[i], got[i], want[i], t);
}

// The same for floats, by vectors: those that hold an ordinary number each, and none further than the worst so far.
static void judge_floats(const float* x, const float* y, const float* got, const double* want, int64_t n, tally* t) {
  constexpr int64_t group = 64;
  t->inputs += n;
  for (int64_t first = 0; first < n; first += group) {
    int64_t count = n - first < group ? n - first : group, odd = 0, above_1 = 0, above_2 = 0, worse = 0;
    double worst = t->worst;
    for (int64_t i = first; i < first + count; ++i) {
      double w = want[i], g = got[i], size = __builtin_fabs(w), limit = format<float>::past_largest;
      double ulps = __builtin_fabs(g - w) / unit_near<float, double>(w);
      odd += !(size < limit) | (size == 0) | (g == 0) | !(__builtin_fabs(g) < limit);
      above_1 += ulps > 1;
      above_2 += ulps > 2;
      worse += ulps > worst;
    }
    if (odd + worse != 0) {
      for (int64_t i = first; i < first + count; ++i) judge_one(x[i], y[i], got[i], want[i], t);
    } else {
      t->above_1 += above_1;
      t->above_2 += above_2;
    }
  }
}

// Only the kinds of values are compared: numbers may differ.
template <class T>
static void compare_kinds(const T* x, const T* y, const T* a, const T* b, int64_t n, tally* t) {
  t->inputs += n;
  for (int64_t i = 0; i < n; ++i) {
    bool nan_a = a[i] != a[i], nan_b = b[i] != b[i];
    if (nan_a != nan_b) note_special(t, t->wrong_nan, x[i], y[i]);
    if (nan_a || nan_b) continue;
    bool signs = __builtin_signbit(a[i]) != __builtin_signbit(b[i]);
    bool inf_a = __builtin_isinf(a[i]), inf_b = __builtin_isinf(b[i]);
    if (inf_a != inf_b || (inf_a && signs)) note_special(t, t->wrong_inf, x[i], y[i]);
    if (a[i] == 0 && b[i] == 0 && signs) note_special(t, t->wrong_zero, x[i], y[i]);
  }
}

#endif
