#include <stdarg.h>
#include <stdio.h>

#include "internal.h"

litz_code litz_fail(litz_error* error, litz_code code, const char* format, ...) {
  if (error) {
    va_list arguments;
    va_start(arguments, format);
    error->code = code;
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
  }
  return code;
}
