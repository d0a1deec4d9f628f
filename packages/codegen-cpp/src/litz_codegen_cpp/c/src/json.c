/* JSON (RFC 8259) as a tree. Documents that are damaged, deep or have a zero character are refused. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define DEEPEST 64

typedef struct block {
  struct block* next;
} block;
struct json_document {
  json* root;
  block* blocks; /* all memory of the tree */
};
typedef struct reader {
  const char *at, *end;
  json_document* document;
  const char* fault;
} reader;

static void* take(reader* in, size_t bytes) {
  block* made = malloc(sizeof(block) + bytes);
  if (!made) {
    in->fault = "no memory";
    return NULL;
  }
  made->next = in->document->blocks;
  in->document->blocks = made;
  return memset(made + 1, 0, bytes);
}

static void skip_space(reader* in) {
  while (in->at < in->end && (*in->at == ' ' || *in->at == '\n' || *in->at == '\r' || *in->at == '\t')) ++in->at;
}

static int next_is(reader* in, char wanted) {
  skip_space(in);
  if (in->at < in->end && *in->at == wanted) {
    ++in->at;
    return 1;
  }
  return 0;
}

static int hex_digits(reader* in, uint32_t* value) {
  if (in->end - in->at < 4) return 0;
  *value = 0;
  for (int i = 0; i < 4; ++i) {
    const char c = *in->at++;
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return 0;
    *value = *value * 16 + (uint32_t)digit;
  }
  return 1;
}

/* One escape, after its backslash, as UTF-8; returns the end of it, or null. */
static char* unescape(reader* in, char* out) {
  static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
  const char c = *in->at++;
  const char* known = memchr(names, c, sizeof names - 1);
  uint32_t code, low;
  if (known) {
    *out = meant[known - names];
    return out + 1;
  }
  if (c != 'u' || !hex_digits(in, &code) || !code) return NULL;
  if (code >= 0xd800 && code < 0xdc00) {
    if (in->end - in->at < 6 || *in->at++ != '\\' || *in->at++ != 'u' || !hex_digits(in, &low)) return NULL;
    if (low < 0xdc00 || low > 0xdfff) return NULL;
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  } else if (code >= 0xdc00 && code <= 0xdfff) {
    return NULL;
  }
  const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  static const uint8_t first[] = {0, 0xc0, 0xe0, 0xf0};
  *out++ = (char)(first[more] | code >> 6 * more);
  for (int i = more - 1; i >= 0; --i) *out++ = (char)(0x80 | (code >> 6 * i & 0x3f));
  return out;
}

static const char* read_string(reader* in) {
  const char* end = in->at;
  while (end < in->end && *end != '"') end += *end == '\\' ? 2 : 1;
  if (end >= in->end) {
    in->fault = "a string has no end";
    return NULL;
  }
  char* text = take(in, (size_t)(end - in->at) + 1); /* no escape is shorter than what it stands for */
  if (!text) return NULL;
  for (char* out = text; in->at < end;) {
    const char c = *in->at++;
    if ((uint8_t)c < 32) out = NULL;
    else if (c == '\\') out = unescape(in, out);
    else *out++ = c;
    if (!out) {
      in->fault = "a string has a character that is not allowed";
      return NULL;
    }
  }
  in->at = end + 1;
  return text;
}

static int read_word(reader* in, const char* word) {
  const size_t length = strlen(word);
  if ((size_t)(in->end - in->at) < length || memcmp(in->at, word, length)) return 0;
  in->at += length;
  return 1;
}

static size_t read_digits(reader* in, double* value) {
  size_t count = 0;
  for (; in->at < in->end && *in->at >= '0' && *in->at <= '9'; ++in->at, ++count) *value = *value * 10 + (*in->at - '0');
  return count;
}

/* Only integers have a value: nothing reads others, and strtod depends on the locale of the process. */
static void read_number(reader* in, json* value) {
  double unused = 0;
  const int negative = in->at < in->end && *in->at == '-';
  const char* first = in->at += negative;
  value->kind = JSON_NUMBER;
  size_t digits = read_digits(in, &value->number);
  int known = digits && (digits == 1 || *first != '0');
  if (negative) value->number = -value->number;
  if (known && in->at < in->end && *in->at == '.') {
    ++in->at;
    value->number = NAN;
    known = read_digits(in, &unused) > 0;
  }
  if (known && in->at < in->end && (*in->at == 'e' || *in->at == 'E')) {
    ++in->at;
    value->number = NAN;
    if (in->at < in->end && (*in->at == '+' || *in->at == '-')) ++in->at;
    known = read_digits(in, &unused) > 0;
  }
  if (!known) in->fault = "something is no value";
}

static json* read_value(reader* in, int depth);

static void read_items(reader* in, json* whole, char close, int depth) {
  json** last = &whole->first;
  if (next_is(in, close)) return;
  do {
    const char* key = NULL;
    if (whole->kind == JSON_OBJECT) {
      if (!next_is(in, '"') || !(key = read_string(in)) || !next_is(in, ':')) {
        if (!in->fault) in->fault = "a member of an object has no name";
        return;
      }
    }
    json* item = read_value(in, depth + 1);
    if (!item) return;
    item->key = key;
    *last = item;
    last = &item->next;
    ++whole->count;
  } while (next_is(in, ','));
  if (!next_is(in, close)) in->fault = "an array or object has no end";
}

static json* read_value(reader* in, int depth) {
  json* value = depth < DEEPEST ? take(in, sizeof(json)) : NULL;
  if (!value) {
    if (!in->fault) in->fault = "it is nested too deeply";
    return NULL;
  }
  if (next_is(in, '{')) {
    value->kind = JSON_OBJECT;
    read_items(in, value, '}', depth);
  } else if (next_is(in, '[')) {
    value->kind = JSON_ARRAY;
    read_items(in, value, ']', depth);
  } else if (next_is(in, '"')) {
    value->kind = JSON_STRING;
    value->text = read_string(in);
  } else if (read_word(in, "true")) {
    value->kind = JSON_BOOL;
    value->number = 1;
  } else if (read_word(in, "false")) {
    value->kind = JSON_BOOL;
  } else if (!read_word(in, "null")) {
    read_number(in, value);
  }
  return in->fault ? NULL : value;
}

litz_code json_parse(const char* text, size_t bytes, const char* what, json_document** document, litz_error* error) {
  *document = calloc(1, sizeof **document);
  if (!*document) return litz_fail(error, LITZ_ERROR_MEMORY, "no memory for %s", what);
  reader in = {text, text + bytes, *document, NULL};
  (*document)->root = read_value(&in, 0);
  skip_space(&in);
  if (!in.fault && in.at != in.end) in.fault = "it has text after its end";
  if (!in.fault) return LITZ_OK;
  json_free(*document);
  *document = NULL;
  return litz_fail(error, LITZ_ERROR_FORMAT, "%s is no JSON: %s", what, in.fault);
}

void json_free(json_document* document) {
  if (!document) return;
  for (block *each = document->blocks, *next; each; each = next) {
    next = each->next;
    free(each);
  }
  free(document);
}

const json* json_root(const json_document* document) { return document->root; }

const json* json_member(const json* object, const char* key) {
  if (!object || object->kind != JSON_OBJECT) return NULL;
  for (const json* each = object->first; each; each = each->next)
    if (!strcmp(each->key, key)) return each;
  return NULL;
}

const char* json_text(const json* object, const char* key) {
  const json* found = json_member(object, key);
  return found && found->kind == JSON_STRING ? found->text : NULL;
}

int json_size(const json* value, size_t* size) {
  if (!value || value->kind != JSON_NUMBER || !(value->number >= 0 && value->number <= 9007199254740992.0)) return 0;
  *size = (size_t)value->number;
  return (double)*size == value->number;
}
