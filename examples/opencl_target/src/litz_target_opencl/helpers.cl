// What OpenCL C and its functions lack. A source gets those blocks whose function it names.

static long floor_div_i(long a, long b) {
  if (b == 0) return 0;
  if (b == -1) return 0 - (ulong)a;  // the smallest integer divided by -1 traps
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static long remainder_i(long a, long b) {
  if (b == 0 || b == -1) return 0;
  const long rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static long least(long a, long b) { return a < b ? a : b; }

static long greatest(long a, long b) { return a > b ? a : b; }

static ulong power(ulong base, ulong exponent) {
  ulong result = 1;
  for (; exponent; exponent >>= 1, base *= base)
    if (exponent & 1) result *= base;
  return result;
}

static double floor_div_f(double a, double b) {
  if (b == 0) return a / b;
  const double rest = fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  return quotient == 0 ? copysign(0.0, a / b) : rint(quotient);
}

static double remainder_f(double a, double b) {
  const double rest = fmod(a, b);
  return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
}

static int to_i32(double x) { return x > -2147483649.0 && x < 2147483648.0 ? (int)x : INT_MIN; }

static long to_i64(double x) { return x >= -0x1p63 && x < 0x1p63 ? (long)x : LONG_MIN; }

static ulong to_u64(double x) {
  if (x >= 0x1p64) return 0;
  if (x >= 0x1p63) return (ulong)x;
  return (ulong)(x >= -0x1p63 ? (long)x : LONG_MIN);
}

static double erfinv(double x) {
  const double pi = 3.14159265358979323846, a = 0.147, size = fabs(x);
  if (!(size < 1)) return size == 1 ? copysign((double)INFINITY, x) : NAN;
  const double log_term = log1p(-size * size), half_term = 2 / (pi * a) + log_term / 2;
  // Winitzki's approximation, then steps by Newton and Halley
  double y = sqrt(fmax(sqrt(half_term * half_term - log_term / a) - half_term, 0.0));
  for (int k = 0; k < 4; k++) {
    const double error = size < 0.5 ? size - erf(y) : erfc(y) - (1 - size);
    const double step = error * (sqrt(pi) / 2) * exp(y * y);
    y += step / (1 - y * step);
  }
  return copysign(y, x);
}

static double digamma(double x) {  // Abramowitz & Stegun 6.3: reflection, recurrence, asymptotic series
  const double pi = 3.14159265358979323846;
  if (x == 0) return copysign((double)INFINITY, -x);
  double result = 0;
  if (x < 0) {
    const double fraction = x - trunc(x);
    if (fraction == 0) return NAN;
    result = -pi / tan(pi * fraction);
    x = 1 - x;
  }
  for (; x < 10; x++) result -= 1 / x;
  const double s = 1 / (x * x);
  const double tail = s * (1.0 / 240 - s * (1.0 / 132 - s * (691.0 / 32760 - s / 12)));
  return result + log(x) - 0.5 / x - s * (1.0 / 12 - s * (1.0 / 120 - s * (1.0 / 252 - tail)));
}

static ulong gcd(ulong a, ulong b) {
  while (b != 0) {
    const ulong rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

static double zeta(double x, double q) {  // the first terms, then Euler and Maclaurin's formula
  const double parts[] = {                // (2k)! over Bernoulli's numbers
      12, -720, 30240, -1209600, 47900160, -1.8924375803183791606e9, 7.47242496e10,
      -2.950130727918164224e12, 1.1646782814350067249e14, -4.5979787224074726105e15, 1.8152105401943546773e17,
      -7.1661652561756670113e18};
  if (x != x || q != q || x < 1) return NAN;
  if (x == 1 || (q <= 0 && q == floor(q))) return INFINITY;
  if (q <= 0 && x != floor(x)) return NAN;
  double total = 0;
  for (; q < 20; q++) total += pow(q, -x);
  const double next = pow(q, -x);
  total += next * q / (x - 1) + next / 2;
  double factor = x * next / q;
  for (int k = 0; k < 12; k++) {
    total += factor / parts[k];
    factor *= (x + 2 * k + 1) * (x + 2 * k + 2) / (q * q);
  }
  return total;
}

static double gamma_series(double a, double x) {
  double term = a == a && x == x ? 1 : NAN, total = term;
  for (int k = 1; k <= 2000 && fabs(term) > 0x1p-53 * fabs(total); k++) total += term *= x / (a + k);
  return total;
}

static double gamma_fraction(double a, double x) {  // Lentz's method
  double b = x + 1 - a, d = 1 / b, c = INFINITY, value = d, factor = 0;
  for (int k = 1; k <= 2000 && fabs(factor - 1) > 0x1p-52; k++) {
    const double step = k * (a - k);
    b += 2;
    d = 1 / (b + step * d);
    c = b + step / c;
    value *= factor = c * d;
  }
  return value;
}

static double three_term(double n, double first, double a, double b, double c, double d, double e) {
  if (!(n > -1 && n < 0x1p63)) return 0;
  if (n < 1) return 1;
  double before = 1, value = first;
  for (long k = 1; k < (long)n && value == value; k++) {
    const double next = fma(fma(a, (double)k, b), value, -(c + d * k) * before) / (e * k + 1);
    before = value;
    value = next;
  }
  return value;
}

static float three_termf(float n, float first, float a, float b, float c, float d, float e) {
  if (!(n > -1 && n < 0x1p63f)) return 0;
  if (n < 1) return 1;
  float before = 1, value = first;
  for (long k = 1; k < (long)n && value == value; k++) {
    const float next = (double)fma(fma(a, (float)k, b), value, -(c + d * k) * before) / (e * k + 1);
    before = value;
    value = next;
  }
  return value;
}

static uint4 philox(ulong seed, ulong counter) {  // Philox4x32-10 (Salmon et al., 2011)
  uint2 key = (uint2)((uint)seed, (uint)(seed >> 32));
  uint4 words = (uint4)((uint)counter, (uint)(counter >> 32), 0, 0);
  for (int round = 0; round < 10; round++, key += (uint2)(0x9E3779B9, 0xBB67AE85)) {
    const uint low = 0xD2511F53 * words.x, high = mul_hi(0xD2511F53, words.x);
    const uint first = mul_hi(0xCD9E8D57, words.z) ^ words.y ^ key.x;
    words = (uint4)(first, 0xCD9E8D57 * words.z, high ^ words.w ^ key.y, low);
  }
  return words;
}

static double unit_interval(uint low, uint high) { return (((ulong)high << 32 | low) >> 11) * 0x1p-53; }

static ulong random_bits(ulong seed, ulong counter) { return as_ulong(philox(seed, counter).xy); }

static float random_uniformf(ulong seed, ulong counter) { return (philox(seed, counter).x >> 8) * 0x1p-24f; }

static double random_uniform(ulong seed, ulong counter) {
  const uint4 words = philox(seed, counter);
  return unit_interval(words.x, words.y);
}

static float random_normalf(ulong seed, ulong counter) {  // Box and Muller
  const uint4 words = philox(seed, counter);
  return sqrt(-2 * log1p((words.x >> 8) * -0x1p-24)) * cospi((words.y >> 8) * 0x1p-23);
}

static double random_normal(ulong seed, ulong counter) {
  const uint4 words = philox(seed, counter);
  return sqrt(-2 * log1p(-unit_interval(words.x, words.y))) * cospi(2 * unit_interval(words.z, words.w));
}
