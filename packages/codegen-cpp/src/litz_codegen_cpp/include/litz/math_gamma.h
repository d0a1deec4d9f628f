// The gamma function's relatives. V is vec<float>, vec<double>, float or double.
//
//   V lgamma(V)      log |gamma(x)|; of a negative number, which has zeros close to floats, and of a double the C
//                    library's in double, lane by lane
//   V digamma(V)     its derivative; in double, lane by lane: recurrence up to 10, then the asymptotic series and the
//                    reflection of Abramowitz and Stegun 6.3. Infinite at zero, with the opposite sign; NaN at poles
//   V zeta(V x, V q)  Hurwitz's, in double, lane by lane: nine or ten terms, then Euler and Maclaurin's formula, whose
//                    constants are (2k)! over Bernoulli's numbers. Infinite at x = 1 and at poles, NaN for x below 1
//   V gamma_series(V a, V x), gamma_fraction(V a, V x)  in double, lane by lane: the power series of the lower and
//                    Legendre's fraction of the upper incomplete gamma function, 2000 terms at most
//
// float results are rounded from double.
#ifndef LITZ_MATH_GAMMA_H
#define LITZ_MATH_GAMMA_H
#include "math_wide.h"

// lgamma itself writes to a variable of the process.
extern "C" double lgamma_r(double, int*);

namespace litz {

static __attribute__((noinline, unused)) double lgamma_scalar(double x) {
  int sign;
  return lgamma_r(x, &sign);
}

static __attribute__((noinline, unused)) double digamma_scalar(double x) {
  constexpr double pi = 3.141592653589793;
  if (x == 0) return __builtin_copysign(__builtin_inf(), -x);
  double reflection = 0;
  if (x < 0) {
    double fraction = x - __builtin_trunc(x);
    if (fraction == 0) return __builtin_nan("");
    reflection = -pi / __builtin_tan(pi * fraction);
    x = 1 - x;
  }
  double shift = 0;
  for (; x < 10; x += 1) shift -= 1 / x;
  double w = 1 / (x * x);
  double series = w / 12;
  series = w * (691.0 / 32760 - series);
  series = w * (1.0 / 132 - series);
  series = w * (1.0 / 240 - series);
  series = w * (1.0 / 252 - series);
  series = w * (1.0 / 120 - series);
  series = w * (1.0 / 12 - series);
  return __builtin_log(x) - 0.5 / x - series + shift + reflection;
}

static __attribute__((noinline, unused)) double zeta_of_positive(double x, double q) {
  static const double constants[] = {
      12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183791606e9, 7.47242496e10, -2.950130727918164224e12,
      1.1646782814350067249e14, -4.5979787224074726105e15, 1.8152105401943546773e17, -7.1661652561756670113e18};
  double term = 0, total = __builtin_pow(q, -x);
  for (int i = 0; i < 9; ++i) {
    q += 1;
    term = __builtin_pow(q, -x);
    total += term;
    if (__builtin_fabs(term) < 0x1p-53 * __builtin_fabs(total)) return total;
  }
  total += term * q / (x - 1) - 0.5 * term;
  double factor = 1;
  for (int k = 0; k < 12; ++k) {
    factor *= x + 2 * k;
    term /= q;
    double step = factor * term / constants[k];
    total += step;
    if (__builtin_fabs(step) < 0x1p-53 * __builtin_fabs(total)) break;
    factor *= x + 2 * k + 1;
    term /= q;
  }
  return total;
}
// A negative q lies some steps below its fraction f. Their terms are, but for (-1)^x, the sum from 1 - f less that from
// 1 - q.
static __attribute__((noinline, unused)) double zeta_scalar(double x, double q) {
  if (x != x || q != q) return x + q;
  if (x == 1) return __builtin_inf();
  if (x < 1) return __builtin_nan("");
  if (q > 0) return zeta_of_positive(x, q);
  double whole = __builtin_floor(q), fraction = q - whole;
  if (q == whole) return __builtin_inf();
  if (x != __builtin_floor(x)) return __builtin_nan("");
  double steps = zeta_of_positive(x, 1 - fraction) - zeta_of_positive(x, 1 - q);
  bool even = __builtin_floor(x * 0.5) * 2 == x;
  return zeta_of_positive(x, fraction) + (even ? steps : -steps);
}

constexpr int longest_series = 2000;

static __attribute__((noinline, unused)) double gamma_series_scalar(double a, double x) {
  if (a != a || x != x) return a + x;
  double term = 1, total = 1;
  for (int k = 1; k <= longest_series && __builtin_fabs(term) > 0x1p-53 * __builtin_fabs(total); ++k) {
    term *= x / (a + k);
    total += term;
  }
  return total;
}

// Lentz's method: d and c are the ratios of neighbouring denominators and numerators.
static __attribute__((noinline, unused)) double gamma_fraction_scalar(double a, double x) {
  double b = x + 1 - a, d = 1 / b, c = __builtin_inf(), value = d, factor = 0;
  for (int k = 1; k <= longest_series && __builtin_fabs(factor - 1) > 0x1p-52; ++k) {
    double step = k * (a - k);
    b += 2;
    d = 1 / (b + step * d);
    c = b + step / c;
    factor = c * d;
    value *= factor;
  }
  return value;
}

// log gamma(x) to 36 bits for x >= 0. Up to 3 a polynomial of y = x, x + 1 or x + 2 in [1.5, 3), divided by the zeros
// at 1 and 2, less the logarithm of the factors between; from 3 on Stirling's series. Polynomials by interpolation.
template <class D>
LITZ_FN D lgamma_for_float(D x) {
  if constexpr (is_wide<D>) {
    return {lgamma_for_float(x.lo), lgamma_for_float(x.hi)};
  } else {
    D one = splat<D>(1), half = splat<D>(0.5);
    auto large = x >= splat<D>(3), once = x < splat<D>(1.5), twice = x < half;
    D factors = blend<D>(twice, x * (x + one), x);
    D log = log2_of_float(factors) * splat<D>(0.6931471805599453);
    D y = blend<D>(twice, x + splat<D>(2), blend<D>(once, x + one, x));
    D p = polynomial(y - splat<D>(2.25), 0.3995894876556691, -0.08588084743664103, 0.025268354911257413,
                     -0.008464030678904727, 0.0030411210402680943, -0.0011409064465251386, 0.0004406231511720012,
                     -0.0001741897972434351, 6.972409474173289e-05, -2.6768443692300025e-05, 1.0923592781527434e-05,
                     -6.575660129111064e-06, 2.731630764055267e-06);
    D small = (y - one) * (y - splat<D>(2)) * p - blend<D>(once, log, D{});
    D over = one / x;
    D tail = polynomial(over * over, 0.08333333330240195, -0.002777763776343079, 0.0007926112796567787,
                        -0.0005671814041535567, 0.0005045318717343812);
    D stirling = mul_add(x - half, log - one, mul_add(tail, over, splat<D>(0.41893853320467274)));
    return blend<D>(large, stirling, small);
  }
}

template <class V>
LITZ_FN V lgamma_each(V x) {
  for (int i = 0; i < lane_count<V>; ++i) x[i] = elem<V>(lgamma_scalar(x[i]));
  return x;
}
template <class V>
LITZ_FN V lgamma_lanes(V x) {
  if constexpr (!is_f32<V>) {
    return lgamma_each(x);
  } else {
    typedef typename vector_of<double, lane_count<V>>::type D;
    auto negative = x < V{};
    V r = convert_lanes<V>(lgamma_for_float(convert_lanes<D>(x)));
    return none_of(negative) ? r : blend<V>(negative, lgamma_each(x), r);
  }
}
template <class V>
LITZ_FN V digamma_lanes(V x) {
  for (int i = 0; i < lane_count<V>; ++i) x[i] = elem<V>(digamma_scalar(x[i]));
  return x;
}

template <class V>
LITZ_FN V zeta_lanes(V x, V q) {
  for (int i = 0; i < lane_count<V>; ++i) x[i] = elem<V>(zeta_scalar(x[i], q[i]));
  return x;
}

template <class V>
LITZ_FN V gamma_series_lanes(V a, V x) {
  for (int i = 0; i < lane_count<V>; ++i) x[i] = elem<V>(gamma_series_scalar(a[i], x[i]));
  return x;
}

template <class V>
LITZ_FN V gamma_fraction_lanes(V a, V x) {
  for (int i = 0; i < lane_count<V>; ++i) x[i] = elem<V>(gamma_fraction_scalar(a[i], x[i]));
  return x;
}

LITZ_MATH_UNARY(lgamma)
LITZ_MATH_UNARY(digamma)
LITZ_MATH_BINARY(zeta)
LITZ_MATH_BINARY(gamma_series)
LITZ_MATH_BINARY(gamma_fraction)

}  // namespace litz

#endif
