// The gamma function's relatives. V is vec<float>, vec<double>, float or double.
//
//   V lgamma(V)      log |gamma(x)|; of doubles the C library's, lane by lane
//   V digamma(V)     its derivative; infinite at zero, with the opposite sign, and NaN at negative integers
//   V zeta(V x, V q)  Hurwitz's, in double, lane by lane: nine or ten terms, then Euler and Maclaurin's formula, whose
//                    constants are (2k)! over Bernoulli's numbers. Infinite at x = 1 and at poles, NaN for x below 1
//   V gamma_series(V a, V x), gamma_fraction(V a, V x)  in double: the power series of the lower and Legendre's
//                    fraction of the upper incomplete gamma function, 2000 terms at most
//
// float results are rounded from double. Polynomials by interpolation. Both functions have zeros between negative
// integers, where reflection cancels: near them they are computed again as doubles are.
#ifndef LITZ_MATH_GAMMA_H
#define LITZ_MATH_GAMMA_H
#include "math_log.h"
#include "math_trig.h"
#include "math_wide.h"

// lgamma itself writes to a variable of the process.
extern "C" double lgamma_r(double, int*);

namespace litz {

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
// The least part of a sum that a term counts for; those that follow may add up to hundreds of it.
template <class V>
constexpr double least_term = is_f32<V> ? 0x1p-36 : 0x1p-53;

// A lane's value depends on no other: those that have converged add zeros.
template <class D>
static __attribute__((noinline)) D gamma_series_of_doubles(D a, D x, double least) {
  D term = blend<D>((a != a) | (x != x), a + x, splat<D>(1)), total = term;
  for (int k = 1; k <= longest_series; ++k) {
    auto counts = abs_lanes(term) > splat<D>(least) * abs_lanes(total);
    if (none_of(counts)) break;
    term = blend<D>(counts, term * (x / (a + splat<D>(k))), D{});
    total = total + term;
  }
  return total;
}
// Steed's method: d is the ratio of neighbouring denominators.
template <class D>
static __attribute__((noinline)) D gamma_fraction_of_doubles(D a, D x, double least) {
  D one = splat<D>(1), b = x + one - a, d = one / b, step = d, total = d;
  for (int k = 1; k <= longest_series; ++k) {
    auto counts = abs_lanes(step) > splat<D>(least) * abs_lanes(total);
    if (none_of(counts)) break;
    D partial = splat<D>(k) * (a - splat<D>(k)) * d;
    b = b + splat<D>(2);
    d = one / (b + partial);
    step = blend<D>(counts, -partial * d * step, D{});
    total = total + step;
  }
  return total;
}

// Recurrence up to 10, then the asymptotic series, and reflection (Abramowitz and Stegun 6.3).
template <class D>
static __attribute__((noinline)) D digamma_of_doubles(D x) {
  D one = splat<D>(1), zero = D{}, shift = zero;
  auto negative = x < zero;
  if (!none_of(negative)) {
    D fraction = x - trunc_lanes(x), angle = fraction * splat<D>(3.141592653589793);
    shift = blend<D>(negative, splat<D>(-3.141592653589793) / tan_libm(angle), zero);
    shift = blend<D>(negative & (fraction == zero), splat<D>(__builtin_nan("")), shift);
    x = blend<D>(negative, one - x, x);
  }
  for (auto low = x < splat<D>(10); !none_of(low); low = x < splat<D>(10)) {
    shift = shift - blend<D>(low, one / x, zero);
    x = x + blend<D>(low, one, zero);
  }
  D over = one / x, w = over * over;
  D series = polynomial(w, 1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132, -691.0 / 32760, 1.0 / 12);
  return log_lanes(x) - splat<D>(0.5) * over - w * series + shift;
}

// To 33 bits but near zeros of negative numbers. Up to 3 the distance from the zero of positive numbers times a
// polynomial of y = x - 1, x or x + 1 in [1, 2), and one step of the recurrence; from 3 on the asymptotic series.
template <class D>
LITZ_FN D digamma_for_float(D number) {
  if constexpr (is_wide<D>) {
    return {digamma_for_float(number.lo), digamma_for_float(number.hi)};
  } else {
    D zero = D{}, one = splat<D>(1);
    auto negative = number < zero;
    D x = blend<D>(negative, one - number, number);
    auto large = x >= splat<D>(3), less = x < one, more = x >= splat<D>(2);
    D y = blend<D>(less, x + one, blend<D>(more, x - one, x));
    D over = one / blend<D>(large, x, blend<D>(less, -x, y));
    D p = polynomial(y - splat<D>(1.5), 0.9510558760318328, -0.4236274186325623, 0.2405424824751142,
                     -0.14840521855349975, 0.09498892142362683, -0.061912770922936004, 0.040754593297480844,
                     -0.027101835424346757, 0.01799126155857759, -0.011096228103516554, 0.007385776781953944,
                     -0.00769679044525289, 0.0051290832618366995);
    D small = mul_add(p, y - splat<D>(1.4616321449683622), blend<D>(less | more, over, zero));
    D w = over * over;
    D tail = polynomial(w, 0.08333333302898548, -0.008333195428618415, 0.003957962501202982, -0.003885669332656079,
                        0.004109370910981499);
    D rest = mul_add(w, tail, splat<D>(0.5) * over);
    D value = blend<D>(large, mul_add(log2_of_float(x), splat<D>(0.6931471805599453), -rest), small);
    if (none_of(negative)) return value;
    // pi cot(pi r) is 1 / r times a polynomial of r^2.
    D r = number - round_lanes(number);
    D cotangent = polynomial(r * r, 1.0000000000145584, -3.289868145328495, -2.164644941703079, -2.034763310633378,
                             -2.006185377075308, -2.030581210123039, -1.7512533647654587, -3.3140639823341136,
                             2.000841092358159, -8.003490652556964) / r;
    D reflected = blend<D>(r == zero, splat<D>(__builtin_nan("")), value - cotangent);
    auto close = negative & (abs_lanes(reflected) < splat<D>(0x1p-5));
    if (!none_of(close)) reflected = blend<D>(close, digamma_of_doubles(number), reflected);
    return blend<D>(negative, reflected, value);
  }
}

// log gamma(x) to 36 bits for x >= 0. Up to 3 a polynomial of y = x, x + 1 or x + 2 in [1.5, 3), divided by the zeros
// at 1 and 2, less the logarithm of the factors between; from 3 on Stirling's series.
template <class D>
LITZ_FN D lgamma_of_positive(D x) {
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
template <class D>
static __attribute__((noinline)) D lgamma_of_doubles(D x) {
  int sign;
  for (int i = 0; i < lane_count<D>; ++i) x[i] = lgamma_r(x[i], &sign);
  return x;
}
// log gamma(-a) = log(pi / (a sin(pi a))) - log gamma(a), where sin(pi r) / pi is r times a polynomial of r^2.
template <class D>
LITZ_FN D lgamma_for_float(D x) {
  if constexpr (is_wide<D>) {
    return {lgamma_for_float(x.lo), lgamma_for_float(x.hi)};
  } else {
    D a = abs_lanes(x), value = lgamma_of_positive(a);
    auto negative = x < D{};
    if (none_of(negative)) return value;
    D r = a - round_lanes(a);
    D sine = polynomial(r * r, 0.9999999999999496, -1.6449340668284878, 0.8117424240194722, -0.19075179376007553,
                        0.026147500242204993, -0.0023440357436859674, 0.0001424411546151204);
    D log = log2_of_float(a * abs_lanes(r) * sine) * splat<D>(-0.6931471805599453), reflected = log - value;
    auto close = negative & (abs_lanes(reflected) < splat<D>(0x1p-7) * value);
    if (!none_of(close)) reflected = blend<D>(close, lgamma_of_doubles(blend<D>(close, x, splat<D>(1))), reflected);
    return blend<D>(negative & (a < splat<D>(__builtin_inf())), reflected, value);
  }
}

template <class V>
LITZ_FN V lgamma_lanes(V x) {
  typedef typename vector_of<double, lane_count<V>>::type D;
  if constexpr (is_f32<V>) return convert_lanes<V>(lgamma_for_float(convert_lanes<D>(x)));
  else return lgamma_of_doubles(x);
}
template <class V>
LITZ_FN V digamma_lanes(V x) {
  typedef typename vector_of<double, lane_count<V>>::type D;
  if constexpr (is_f32<V>) return convert_lanes<V>(digamma_for_float(convert_lanes<D>(x)));
  else return digamma_of_doubles(x);
}

template <class V>
LITZ_FN V zeta_lanes(V x, V q) {
  for (int i = 0; i < lane_count<V>; ++i) x[i] = elem<V>(zeta_scalar(x[i], q[i]));
  return x;
}

template <class V>
LITZ_FN V gamma_series_lanes(V a, V x) {
  typedef typename vector_of<double, lane_count<V>>::type D;
  return convert_lanes<V>(gamma_series_of_doubles(convert_lanes<D>(a), convert_lanes<D>(x), least_term<V>));
}
template <class V>
LITZ_FN V gamma_fraction_lanes(V a, V x) {
  typedef typename vector_of<double, lane_count<V>>::type D;
  return convert_lanes<V>(gamma_fraction_of_doubles(convert_lanes<D>(a), convert_lanes<D>(x), least_term<V>));
}

LITZ_MATH_UNARY(lgamma)
LITZ_MATH_UNARY(digamma)
LITZ_MATH_BINARY(zeta)
LITZ_MATH_BINARY(gamma_series)
LITZ_MATH_BINARY(gamma_fraction)

}  // namespace litz

#endif
