// All of the vector maths; a kernel does better to include the families that it uses.
#ifndef LITZ_MATH_H
#define LITZ_MATH_H
#include "math_divide.h"
#include "math_erf.h"
#include "math_exp.h"
#include "math_gamma.h"
#include "math_hyperbolic.h"
#include "math_log.h"
#include "math_power.h"
#include "math_recurrence.h"
#include "math_trig.h"
#endif
