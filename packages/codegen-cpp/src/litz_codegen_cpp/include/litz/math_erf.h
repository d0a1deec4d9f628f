// The error function's family. V is vec<float>, vec<double>, float or double.
//
//   V erf(V), erfc(V), erfinv(V)
//
// float: erf by two polynomials, minimax by Lawson-weighted least squares, of x^2 up to 1 and of |x| - 2.46 up to 3.92,
// beyond which the result rounds to 1; where a register holds a table (AVX-512), by one of sixteen, which is shorter.
// Under 1.5 ulp. erfc and erfinv in double, under 0.6 ulp.
// double: erf and erfc by polynomials from Chebyshev nodes in 60 digits, under 2 ulp; where products are not fused they
// are the C library's, lane by lane. erfinv takes Halley's steps from Winitzki's closed form, lane by lane.
#ifndef LITZ_MATH_ERF_H
#define LITZ_MATH_ERF_H
#include "math_exp.h"
#include "math_wide.h"

namespace litz {

LITZ_LIBM_UNARY(erf)
LITZ_LIBM_UNARY(erfc)

// erf(x) / x - 1 for doubles up to 1, z = x^2.
template <class V>
LITZ_FN V erf_ratio(V z) {
  return polynomial(z, 0.12837916709551259, -0.37612638903183748, 0.11283791670954879, -0.026866170645076792,
                    0.0052239776248180145, -8.54832698083379e-4, 1.205533111164271e-4, -1.4925595266831182e-05,
                    1.6461000484121368e-06, -1.6350312701054695e-07, 1.4659775274047436e-08, -1.1372848856791674e-09,
                    5.9571761477489113e-11);
}
// erfc of doubles a from 3/4 on is exp(g - a^2) / d, for d = a + 3 and a polynomial g = slope t + h of t = (a - 3) / d.
// What rounding takes from a^2, d and t goes into the exponent; beyond 28 the result rounds to 0.
template <class V>
LITZ_FN V erfc_tail(V a) {
  V one = splat<V>(1), three = splat<V>(3), limit = splat<V>(28), slope = splat<V>(-0.82252213401940655);
  a = blend<V>(limit < a, limit, a);
  V d = a + three, b = d - a, lost = (a - (d - b)) + (three - b);
  V inverse = one / d, over = a - three, t = over * inverse;
  V t_lost = (mul_add(-t, d, over) + mul_add(-t, lost, a - (over + three))) * inverse;
  V h = mul_add(polynomial(t, 0.21128598913594979, -0.022541182217700146, -0.020113320406226383, 0.011957869713491874,
                           -8.3967000959788866e-05, -0.0028001963687057023, 9.273607553506772e-4,
                           4.5062353004772033e-4, -3.7525143132113647e-4, -2.1724553714359297e-05,
                           1.0671276848315511e-4, -1.9471074785113839e-05, -2.3856089154932785e-05,
                           1.0261572095980248e-05, 3.8823069545747268e-06, -3.3475462343568956e-06,
                           -2.1962164323768653e-07, 7.9853495538082233e-07, -1.2452964367387714e-07,
                           -1.140419303272856e-07, 4.0420279177161282e-08),
                t * t, splat<V>(0.071396427246942437));
  V z = a * a, n = round_lanes((mul_add(t, slope, h) - z) * splat<V>(1.4426950408889634));
  V r = mul_add(t, slope, mul_add(n, splat<V>(-6.93147180369123816490e-01), -z));
  V small = mul_add(t_lost, slope, mul_add(-lost, inverse, -mul_add(a, a, -z)));
  r = r + (h + mul_add(n, splat<V>(-1.90821492927058770002e-10), small));
  V p = mul_add(mul_add(exp_tail(r), r, one), r, one);
  V y = p * inverse;
  y = mul_add(mul_add(-y, d, p), inverse, y);
  return scale_by_power(y, n);
}

#if defined(LITZ_BY_NAME)
// Sixteen intervals of 1/4, chosen by the last four bits of |x| + 1.5 2^21: a value at a centre that is a float, plus
// (1 + p) t for the distance t from the centre. From 3.875 on 1.
struct erf_by_table {
  template <class V>
  LITZ_METHOD V operator()(V x) const {
    const V centre = {0, 0.250105292f, 0.500057459f, 0.750109434f, 0.999800563f, 1.24963355f, 1.49984682f, 1.75008726f,
                      1.99986267f, 2.24989414f, 2.49960423f, 2.75011754f, 3.00069356f, 3.25038576f, 3.50095367f,
                      3.74290609f};
    const V value = {0, 0.276437998f, 0.52055037f, 0.711225986f, 0.842617989f, 0.922813416f, 0.966086924f, 0.986676276f,
                     0.995319426f, 0.998536527f, 0.999592185f, 0.999899447f, 0.999978006f, 0.999995708f, 0.999999285f,
                     0.999999881f};
    const V c0 = {0.128379166f, 0.0599583127f, -0.121267915f, -0.357174456f, -0.58472693f, -0.763262153f, -0.881015062f,
                  -0.947241127f, -0.979321659f, -0.992854297f, -0.997817397f, -0.999414086f, -0.9998613f, -0.999970913f,
                  -0.999994636f, -0.999999046f};
    const V c1 = {0, -0.265098095f, -0.439412743f, -0.48218745f, -0.415190607f, -0.295837194f, -0.178460672f,
                  -0.0923333317f, -0.0413538776f, -0.0160768982f, -0.00545541989f, -0.00161116279f, -0.000416063878f,
                  -9.46177679e-05f, -1.87713886e-05f, -3.07205596e-06f};
    const V c2 = {-0.376122713f, -0.309116304f, -0.146422267f, 0.0268531758f, 0.138312742f, 0.167544022f, 0.138779521f,
                  0.0901410058f, 0.0482421443f, 0.0217327047f, 0.00836377311f, 0.00275879656f, 0.000786148245f,
                  0.000195348999f, 4.20291071e-05f, 1.06726366e-05f};
    const V c3 = {0, 0.126234129f, 0.182107523f, 0.150133878f, 0.0693419129f, -0.00565876765f, -0.0442106575f,
                  -0.0479240902f, -0.0344444625f, -0.0191454384f, -0.0086890813f, -0.00328888348f, -0.00105530396f,
                  -0.000291129836f, -6.88500804e-05f, -1.00249526e-05f};
    const V c4 = {0.112210386f, 0.0797339678f, 0.00742523558f, -0.0528868102f, -0.068890065f, -0.0471177138f,
                  -0.0149613563f, 0.00650708284f, 0.0130230142f, 0.0106447777f, 0.00612897146f, 0.00276820967f,
                  0.00102366635f, 0.000317023019f, 8.31828074e-05f, 1.88298145e-05f};
    V a = lesser(splat<V>(0x1.effffep1f), abs_lanes(x)), place = a + splat<V>(0x1.8p21f);
    V t = a - table_lanes(centre, place), p = table_lanes(c4, place);
    p = mul_add(p, t, table_lanes(c3, place));
    p = mul_add(p, t, table_lanes(c2, place));
    p = mul_add(p, t, table_lanes(c1, place));
    p = mul_add(p, t, table_lanes(c0, place));
    return copysign_lanes(table_lanes(value, place) + mul_add(p, t, t), x);
  }
};
#endif

template <class V>
LITZ_FN V erf_lanes(V x) {
#if defined(LITZ_BY_NAME)
  if constexpr (is_f32<V>) return in_register<erf_by_table>(x);
#endif
  if constexpr (!is_f32<V> && !LITZ_HAS_FMA) {
    return erf_libm(x);
  } else if constexpr (!is_f32<V>) {
    V one = splat<V>(1), a = abs_lanes(x);
    V y = mul_add(x, erf_ratio(x * x), x);
    auto far = a >= one;
    return none_of(far) ? y : blend<V>(far, copysign_lanes(one - erfc_tail(a), x), y);
  } else {
    V a = abs_lanes(x), z = x * x;
    V near = polynomial(z, 0.12837917f, -0.37612626f, 0.11283585f, -0.026853811f, 0.0051883277f, -8.0101925e-4f,
                        7.8538576e-5f);
    V limit = splat<V>(3.92f);
    V u = blend<V>(limit < a, limit, a) - splat<V>(2.46f);
    V far = polynomial(u, 0.99949664f, 0.0026562405f, -0.0065345219f, 0.0098324129f, -0.0099141682f, 0.0067997118f,
                       -0.0029372263f, 4.5906164e-4f, 3.5598472e-4f, -2.9940478e-4f, 7.5760501e-5f, 2.4626359e-5f,
                       -1.7306889e-5f, 1.0639747e-7f, 1.0908163e-6f);
    if constexpr (!LITZ_HAS_FMA) far = blend<V>(limit < a, splat<V>(1), far);  // where 1 - ndtr vanishes, exactly
    return blend<V>(a < splat<V>(1), mul_add(x, near, x), copysign_lanes(far, x));
  }
}

// exp(-a^2) times a polynomial of (a - 3) / (a + 3), for a = |x|; beyond 11 it rounds to 0. To 29 bits.
template <class D>
LITZ_FN D erfc_for_float(D x) {
  if constexpr (is_wide<D>) {
    return {erfc_for_float(x.lo), erfc_for_float(x.hi)};
  } else {
    D three = splat<D>(3), far = splat<D>(11), a = abs_lanes(x);
    a = blend<D>(far < a, far, a);
    D p = polynomial((a - three) / (a + three), 0.17900115126009872, -0.32623356382429242, 0.24560379807033389,
                     -0.15011578170806758, 0.071665855793164202, -0.024394238033941328, 0.0042689194884603602,
                     7.1578635160576083e-4, -5.9462667246964476e-4, 2.8757630904661111e-05, 5.5863855661713091e-05);
    D y = p * exp2_for_float(a * a * splat<D>(-1.4426950408889634));
    return blend<D>(x < D{}, splat<D>(2) - y, y);
  }
}
template <class V>
LITZ_FN V erfc_lanes(V x) {
  if constexpr (!is_f32<V> && !LITZ_HAS_FMA) {
    return erfc_libm(x);
  } else if constexpr (!is_f32<V>) {
    V half_one = splat<V>(0.5), a = abs_lanes(x);
    V y = half_one - mul_add(x, erf_ratio(x * x), x - half_one);
    auto far = a >= splat<V>(0.75);
    if (none_of(far)) return y;
    V tail = erfc_tail(a);
    return blend<V>(far, blend<V>(x < V{}, splat<V>(2) - tail, tail), y);
  } else {
    typedef typename vector_of<double, lane_count<V>>::type D;
    return blend<V>(x == x, convert_lanes<V>(erfc_for_float(convert_lanes<D>(x))), x);
  }
}

// x times a polynomial of l = -log2(1 - x^2), or of its root where |x| is above 0.996. To 29 bits.
template <class D>
LITZ_FN D erfinv_for_float(D x) {
  if constexpr (is_wide<D>) {
    return {erfinv_for_float(x.lo), erfinv_for_float(x.hi)};
  } else {
    D l = -log2_of_float(splat<D>(1) - x * x);
    D p = polynomial(l - splat<D>(3.5), 1.4831393528317021, 0.17137196050859502, -0.0018699731574795834,
                     -4.3878529920635595e-4, 5.0746375624095804e-05, -5.4261777237697592e-07, -4.0789985455031465e-07,
                     3.4997030021975782e-08, 1.3383459398862204e-09, -3.3854332819343749e-10, 6.3178702852666141e-12);
    auto far = l > splat<D>(7);
    if (!none_of(far)) {
      D q = polynomial(sqrt_lanes(l) - splat<D>(3.6), 2.8301687783427023, 0.83390507602211328, 0.0065917898182780059,
                       -0.004447117954731585, 0.002756242025758639, -0.0014384031789576846, 4.9370189627956623e-4,
                       -2.8906100202430457e-05, -6.7319535946515138e-05, 2.9603909842673405e-05,
                       -3.5521157204151775e-06);
      p = blend<D>(far, q, p);
    }
    return x * p;
  }
}

static __attribute__((noinline, unused)) double erfinv_scalar(double x) {
  double a = __builtin_fabs(x);
  if (!(a < 1)) return a == 1 ? __builtin_copysign(__builtin_inf(), x) : __builtin_nan("");
  double tail = 1 - a, w = -__builtin_log(tail * (1 + a));
  // Winitzki's closed form is a start that is good to a few digits all the way to the ends.
  double b = 4.330746750799873 - w / 2;
  double y = __builtin_sqrt(__builtin_sqrt(b * b + w / 0.147) - b);
  for (int i = 0; i < 4; ++i) {
    double error = a < 0.5 ? a - __builtin_erf(y) : __builtin_erfc(y) - tail;
    double step = error * 0.886226925452758 * __builtin_exp(y * y);
    y += step / (1 - y * step);
  }
  return __builtin_copysign(y, x);
}

template <class V>
LITZ_FN V erfinv_lanes(V x) {
  if constexpr (!is_f32<V>) {
    for (int i = 0; i < lane_count<V>; ++i) x[i] = erfinv_scalar(x[i]);
    return x;
  } else {
    typedef typename vector_of<double, lane_count<V>>::type D;
    V one = splat<V>(1), a = abs_lanes(x);
    V y = convert_lanes<V>(erfinv_for_float(convert_lanes<D>(x)));
    y = blend<V>(a == one, copysign_lanes(splat<V>(__builtin_inff()), x), y);
    return blend<V>(a > one, splat<V>(__builtin_nanf("")), y);
  }
}

LITZ_MATH_UNARY(erf)
LITZ_MATH_UNARY(erfc)
LITZ_MATH_UNARY(erfinv)

}  // namespace litz

#endif
