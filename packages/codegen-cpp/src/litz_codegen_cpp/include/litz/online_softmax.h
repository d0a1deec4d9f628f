// Online softmax: the maximum, and the sum of exponentials relative to it. See accumulate.h for the interface.
//
//   online_softmax_state<V>         result() the maximum, result1() the sum; V as for exp
//   online_softmax_state<V, true>   for lanes that are collapsed in the end: they share a maximum, which rises less often
//
// Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018).
#ifndef LITZ_ONLINE_SOFTMAX_H
#define LITZ_ONLINE_SOFTMAX_H
#include "accumulate.h"
#include "math_exp.h"

namespace litz {

template <class V, bool Together = false>
struct online_softmax_state {
  V greatest = splat<V>(least_of<elem<V>>()), sum = splat<V>(0);
  // The number that the exponentials are relative to: 0 after -inf alone, where exp(-inf) adds nothing.
  V reference = splat<V>(0);
  LITZ_METHOD void raise_to(V to) {
    V from = reference;
    greatest = to;
    reference = blend<V>(to == splat<V>(least_of<elem<V>>()), splat<V>(0), to);
    sum = sum * exp(from - reference);
  }
  LITZ_METHOD void add(V x) {
    if constexpr (is_scalar<V>) {
      if (!(x <= greatest)) raise_to(maximum(greatest, x));
    } else if (any_true(~le(x, greatest))) {
      V to = maximum(greatest, x);
      if constexpr (Together) raise_to(splat<V>(max_lanes(to)));
      else raise_to(to);
    }
    sum = sum + exp(x - reference);
  }
  LITZ_METHOD void add(V x, mask m) { add(select(m, x, splat<V>(least_of<elem<V>>()))); }
  LITZ_METHOD void merge(online_softmax_state s) {
    V to = maximum(greatest, s.greatest);
    raise_to(to);
    s.raise_to(to);
    sum = sum + s.sum;
  }
  LITZ_METHOD V result() const { return greatest; }
  LITZ_METHOD V result1() const { return sum; }
};
template <class V, bool Together>
LITZ_FN online_softmax_state<elem<V>> collapse(const online_softmax_state<V, Together>& s) {
  V to = splat<V>(max_lanes(s.greatest));
  online_softmax_state<V, Together> raised = s;
  raised.raise_to(to);
  online_softmax_state<elem<V>> r;
  r.raise_to(lane(to, 0));
  r.sum = sum_lanes(raised.sum);
  return r;
}

}  // namespace litz

#endif
