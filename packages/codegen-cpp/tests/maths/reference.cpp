// What the maths is judged by: exact values of floats in double, of doubles in long double from 113 bits, and the judge.
//
// Values of floats come from the C library's vector functions where it has them; those err by less than 4 units in the
// last place of a double, which is nothing to a float. Where they give anything but an ordinary number the scalar
// function is asked again.
#include "reference.h"

#include <quadmath.h>

typedef __float128 quad;

#if defined(__x86_64__) && defined(__GLIBC__)
#define VECTOR __attribute__((simd("notinbranch"), const, nothrow))
#else
#define VECTOR
#endif
#define VECTOR_1(name) extern "C" VECTOR double name(double);
#define VECTOR_2(name) extern "C" VECTOR double name(double, double);
VECTOR_1(exp) VECTOR_1(exp2) VECTOR_1(expm1) VECTOR_1(log) VECTOR_1(log2) VECTOR_1(log10) VECTOR_1(log1p)
VECTOR_1(sin) VECTOR_1(cos) VECTOR_1(tan) VECTOR_1(asin) VECTOR_1(acos) VECTOR_1(atan)
VECTOR_1(sinh) VECTOR_1(cosh) VECTOR_1(tanh) VECTOR_1(asinh) VECTOR_1(acosh) VECTOR_1(atanh)
VECTOR_1(erf) VECTOR_1(erfc) VECTOR_2(pow) VECTOR_2(atan2) VECTOR_2(hypot)

// --- values of floats ---------------------------------------------------------------------------------------

#define FLOAT_1(name, value)                                                            \
  extern "C" void exact_##name##_float(const float* a, const float*, double* out, int64_t n) { \
    for (int64_t i = 0; i < n; ++i) {                                                   \
      double x = a[i];                                                                  \
      out[i] = value;                                                                   \
    }                                                                                   \
  }
#define FLOAT_2(name, value)                                                            \
  extern "C" void exact_##name##_float(const float* a, const float* b, double* out, int64_t n) { \
    for (int64_t i = 0; i < n; ++i) {                                                   \
      double x = a[i], y = b[i];                                                        \
      out[i] = value;                                                                   \
    }                                                                                   \
  }
// A vector function where the argument is within its domain, which is all that it is fast for. Which zero it gives is
// settled by the scalar one.
#define LIBM_1(name, inside, safe, outside)                                             \
  extern "C" void exact_##name##_float(const float* a, const float*, double* out, int64_t n) { \
    for (int64_t i = 0; i < n; ++i) {                                                   \
      double x = a[i];                                                                  \
      double value = name(inside ? x : safe);                                           \
      out[i] = inside ? value : outside;                                                \
    }                                                                                   \
    for (int64_t i = 0; i < n; ++i)                                                     \
      if (out[i] == 0) out[i] = name((double)a[i]);                                     \
  }
#define LIBM_2(name)                                                                    \
  extern "C" void exact_##name##_float(const float* a, const float* b, double* out, int64_t n) { \
    for (int64_t i = 0; i < n; ++i) out[i] = name((double)a[i], (double)b[i]);          \
    for (int64_t i = 0; i < n; ++i)                                                     \
      if (out[i] == 0) out[i] = name((double)a[i], (double)b[i]);                       \
  }
#define SIZE __builtin_fabs(x)
#define INF __builtin_inf()
#define NOT_A_NUMBER __builtin_nan("")
// Beyond these a float is infinite, or zero, and the sign is all that counts.
#define GROWS (x < -400 ? 0x1p-400 : x > 400 ? 0x1p400 : x)
#define WITHIN(size) (SIZE <= size)
LIBM_1(exp, WITHIN(400), 0, GROWS)
LIBM_1(exp2, WITHIN(400), 0, GROWS)
LIBM_1(expm1, WITHIN(400), 0, (x < -400 ? -1 : x > 400 ? INF : x))
LIBM_1(log, (x > 0), 1, (x == 0 ? -INF : NOT_A_NUMBER))
LIBM_1(log2, (x > 0), 1, (x == 0 ? -INF : NOT_A_NUMBER))
LIBM_1(log10, (x > 0), 1, (x == 0 ? -INF : NOT_A_NUMBER))
LIBM_1(log1p, (x > -1), 1, (x == -1 ? -INF : NOT_A_NUMBER))
LIBM_1(sin, (SIZE < INF), 0, NOT_A_NUMBER)
LIBM_1(cos, (SIZE < INF), 0, NOT_A_NUMBER)
LIBM_1(tan, (SIZE < INF), 0, NOT_A_NUMBER)
LIBM_1(asin, WITHIN(1), 0, NOT_A_NUMBER)
LIBM_1(acos, WITHIN(1), 0, NOT_A_NUMBER)
LIBM_1(atan, (x == x), 0, x)
LIBM_1(sinh, WITHIN(400), 0, (x < -400 ? -INF : x > 400 ? INF : x))
LIBM_1(cosh, WITHIN(400), 0, (SIZE > 400 ? INF : x))
LIBM_1(tanh, WITHIN(400), 0, (x < -400 ? -1 : x > 400 ? 1 : x))
LIBM_1(asinh, (SIZE < INF), 0, x)
LIBM_1(acosh, (x >= 1), 1, NOT_A_NUMBER)
LIBM_1(atanh, (SIZE < 1), 0, (SIZE == 1 ? x * INF : NOT_A_NUMBER))
LIBM_1(erf, WITHIN(400), 0, (x < -400 ? -1 : x > 400 ? 1 : x))
LIBM_1(erfc, WITHIN(20), 0, (x < -20 ? 2 : x > 20 ? 0x1p-400 : x))
LIBM_2(pow) LIBM_2(atan2) LIBM_2(hypot)

// Eager computes 1 / (1 + exp(-x)): where the power overflows a float the result is zero, though a denormal is nearer.
FLOAT_1(sigmoid, -x > 88.72283905206835 ? 0 : 1 / (1 + exp(SIZE <= 100 ? -x : x > 100 ? -100 : x)))
FLOAT_1(sqrt, __builtin_sqrt(x))
FLOAT_1(rsqrt, 1 / __builtin_sqrt(x))
FLOAT_1(reciprocal, 1 / x)
FLOAT_1(floor, __builtin_floor(x))
FLOAT_1(ceil, __builtin_ceil(x))
FLOAT_1(trunc, __builtin_trunc(x))
FLOAT_1(round, __builtin_rint(x))
FLOAT_1(abs, __builtin_fabs(x))
FLOAT_1(neg, -x)
FLOAT_1(sign, x > 0 ? 1.0 : x < 0 ? -1.0 : 0.0)

// Winitzki's closed form, then Halley's steps; each triples the digits.
FLOAT_1(erfinv, ({
  double size = SIZE < 1 ? SIZE : 0.5, tail = 1 - size, w = -log(tail * (1 + size));
  double b = 4.330746750799873 - w / 2;
  double v = __builtin_sqrt(__builtin_sqrt(b * b + w / 0.147) - b);
  for (int k = 0; k < 3; ++k) {
    double near = size - erf(v), far = erfc(v) - tail;
    double step = (size < 0.5 ? near : far) * 0.886226925452758 * exp(v * v);
    v += step / (1 - v * step);
  }
  v = size < 0x1p-60 ? size * 0.886226925452758 : v;
  SIZE < 1 ? __builtin_copysign(v, x) : SIZE == 1 ? x * INF : NOT_A_NUMBER;
}))

static double lgamma_of(double x) {
  int sign;
  return lgamma_r(x, &sign);
}
FLOAT_1(lgamma, lgamma_of(x))

// The remainder by whole numbers: mantissas and the difference of exponents.
static double float_fmod(double x, double y) {
  if (x != x || y != y || __builtin_isinf(x) || y == 0) return __builtin_nan("");
  if (__builtin_isinf(y) || x == 0) return x;
  int ex, ey;
  uint64_t mx = uint64_t(frexp(__builtin_fabs(x), &ex) * 0x1p24), my = uint64_t(frexp(__builtin_fabs(y), &ey) * 0x1p24);
  int steps = ex - ey;
  if (steps < 0) return x;
  uint64_t rest = mx % my;
  for (; steps > 0; steps -= 40) rest = (rest << (steps < 40 ? steps : 40)) % my;
  return __builtin_copysign(ldexp(double(rest), ey - 24), x);
}
static double float_remainder(double x, double y) {
  double r = float_fmod(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
// Eager's formula, in float.
static double float_floor_div(float x, float y) {
  if (y == 0) return x / y;
  float r = float(float_fmod(x, y)), q = (x - r) / y;
  if (r != 0 && (y < 0) != (r < 0)) q -= 1;
  if (q == 0) return __builtin_copysignf(0, x / y);
  float whole = __builtin_floorf(q);
  return q - whole > 0.5f ? whole + 1 : whole;
}
FLOAT_2(fmod, float_fmod(x, y))
FLOAT_2(remainder, float_remainder(x, y))
FLOAT_2(floor_div, float_floor_div(a[i], b[i]))
FLOAT_2(trunc_div, __builtin_truncf(a[i] / b[i]))
FLOAT_2(nextafter, nextafterf(a[i], b[i]))
FLOAT_2(copysign, __builtin_copysign(x, y))

// --- values of doubles --------------------------------------------------------------------------------------

#define DOUBLE_1(name, value)                                                           \
  extern "C" void exact_##name##_double(const double* a, const double*, long double* out, int64_t n) { \
    for (int64_t i = 0; i < n; ++i) {                                                   \
      [[maybe_unused]] quad x = a[i];                                                   \
      out[i] = (long double)(value);                                                    \
    }                                                                                   \
  }
#define DOUBLE_2(name, value)                                                           \
  extern "C" void exact_##name##_double(const double* a, const double* b, long double* out, int64_t n) { \
    for (int64_t i = 0; i < n; ++i) {                                                   \
      quad x = a[i], y = b[i];                                                          \
      out[i] = (long double)(value);                                                    \
    }                                                                                   \
  }
#define QUAD_1(name) DOUBLE_1(name, name##q(x))
QUAD_1(exp) QUAD_1(exp2) QUAD_1(expm1) QUAD_1(log) QUAD_1(log2) QUAD_1(log10) QUAD_1(log1p)
QUAD_1(sin) QUAD_1(cos) QUAD_1(tan) QUAD_1(asin) QUAD_1(acos) QUAD_1(atan)
QUAD_1(sinh) QUAD_1(cosh) QUAD_1(tanh) QUAD_1(asinh) QUAD_1(acosh) QUAD_1(atanh)
QUAD_1(erf) QUAD_1(erfc) QUAD_1(sqrt)
DOUBLE_1(floor, __builtin_floor(a[i]))
DOUBLE_1(ceil, __builtin_ceil(a[i]))
DOUBLE_1(trunc, __builtin_trunc(a[i]))
DOUBLE_1(round, __builtin_rint(a[i]))
DOUBLE_1(abs, __builtin_fabs(a[i]))
DOUBLE_1(neg, -a[i])
DOUBLE_1(sign, a[i] > 0 ? 1.0 : a[i] < 0 ? -1.0 : 0.0)
DOUBLE_2(fmod, __builtin_fmod(a[i], b[i]))
DOUBLE_2(nextafter, __builtin_nextafter(a[i], b[i]))
DOUBLE_2(copysign, __builtin_copysign(a[i], b[i]))
DOUBLE_1(sigmoid, -a[i] > 709.782712893384 ? 0 : 1 / (1 + expq(-x)))
DOUBLE_1(rsqrt, 1 / sqrtq(x))
DOUBLE_1(reciprocal, 1 / x)
DOUBLE_2(pow, powq(x, y))
DOUBLE_2(atan2, atan2q(x, y))
DOUBLE_2(hypot, hypotq(x, y))

static quad erfinv_of(double given) {
  double size = __builtin_fabs(given);
  if (!(size < 1)) return size == 1 ? __builtin_copysign(__builtin_inf(), given) : __builtin_nan("");
  if (given == 0) return given;
  quad x = size, tail = 1 - x;
  double w = -log(double(tail) * (1 + size)), b = 4.330746750799873 - w / 2;
  quad v = __builtin_sqrt(__builtin_sqrt(b * b + w / 0.147) - b);
  if (size < 0x1p-26) v = x * 0.886226925452758013649083741670572591Q;
  for (int k = 0; k < 3; ++k) {
    quad error = size < 0.5 ? x - erfq(v) : erfcq(v) - tail;
    quad step = error * 0.886226925452758013649083741670572591Q * expq(v * v);
    v += step / (1 - v * step);
  }
  return given < 0 ? -v : v;
}
DOUBLE_1(erfinv, erfinv_of(a[i]))

// Infinite at negative whole numbers as in C.
static quad lgamma_of_quad(quad x) {
  return x <= 0 && x == floorq(x) ? __builtin_infq() : lgammaq(x);
}
DOUBLE_1(lgamma, lgamma_of_quad(x))

// Reflection, recurrence up to `far`, then the asymptotic series with Bernoulli's numbers.
template <class F>
static F digamma_of(F x, F far, F (*log_of)(F), F (*tan_of)(F)) {
  static const F terms[] = {F(1) / 12,    -F(1) / 120,       F(1) / 252,  -F(1) / 240,
                            F(1) / 132,   -F(691) / 32760,   F(1) / 12,   -F(3617) / 8160,
                            F(43867) / 14364, -F(174611) / 6600, F(77683) / 276};
  const F pi = 3.14159265358979323846264338327950288Q;
  if (x != x) return x;
  if (x == 0) return __builtin_copysign(__builtin_inf(), -double(x));
  F result = 0;
  if (x < 0) {
    F fraction = x - F(__builtin_truncl(x));
    if (fraction == 0) return __builtin_nan("");
    result = -pi / tan_of(pi * fraction);
    x = 1 - x;
  }
  if (x > F(1e30)) return result + log_of(x);
  for (; x < far; x += 1) result -= 1 / x;
  F w = 1 / (x * x), series = 0;
  for (int k = 10; k >= 0; --k) series = (series + terms[k]) * w;
  return log_of(x) - F(0.5) / x - series + result;
}
DOUBLE_1(digamma, digamma_of<quad>(x, 60, logq, tanq))
FLOAT_1(digamma, digamma_of<long double>(x, 16, logl, tanl))

// --- the judge ----------------------------------------------------------------------------------------------

extern "C" void judge_float(const float* x, const float* y, const float* got, const double* want, int64_t n, tally* t) {
  judge_floats(x, y, got, want, n, t);
}
extern "C" void judge_double(const double* x, const double* y, const double* got, const long double* want, int64_t n,
                             tally* t) {
  judge(x, y, got, want, n, t);
}
extern "C" void compare_kinds_float(const float* x, const float* y, const float* a, const float* b, int64_t n, tally* t) {
  compare_kinds(x, y, a, b, n, t);
}
extern "C" void compare_kinds_double(const double* x, const double* y, const double* a, const double* b, int64_t n,
                                     tally* t) {
  compare_kinds(x, y, a, b, n, t);
}
