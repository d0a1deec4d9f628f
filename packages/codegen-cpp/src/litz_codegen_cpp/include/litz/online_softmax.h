// The maximum of what was added, and the sum of exponentials relative to it, in one go. See accumulate.h for the interface.
//
//   online_softmax_state<V>      result() the maximum, result1() the sum; V as for exp
//
// Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018).
#ifndef LITZ_ONLINE_SOFTMAX_H
#define LITZ_ONLINE_SOFTMAX_H
#include "accumulate.h"
#include "math_exp.h"

namespace litz {

template <class V>
struct online_softmax_state {
  V greatest = splat<V>(least_of<elem<V>>()), sum = splat<V>(0);
  // While nothing but -inf was seen the exponentials are relative to 0, where exp(-inf) adds nothing.
  LITZ_METHOD V reference() const { return blend<V>(greatest == splat<V>(least_of<elem<V>>()), splat<V>(0), greatest); }
  LITZ_METHOD void raise_to(V to) {
    V from = reference();
    greatest = to;
    sum = sum * exp(from - reference());
  }
  LITZ_METHOD void add(V x) {
    V to = maximum(greatest, x);
    if constexpr (is_scalar<V>) {
      if (!(to == greatest)) raise_to(to);
    } else {
      if (any_true(ne(to, greatest))) raise_to(to);
    }
    sum = sum + exp(x - reference());
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
template <class V>
LITZ_FN online_softmax_state<elem<V>> collapse(const online_softmax_state<V>& s) {
  V to = splat<V>(max_lanes(s.greatest));
  online_softmax_state<V> raised = s;
  raised.raise_to(to);
  online_softmax_state<elem<V>> r;
  r.greatest = lane(to, 0);
  r.sum = sum_lanes(raised.sum);
  return r;
}

}  // namespace litz

#endif
