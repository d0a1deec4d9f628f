/* Launches of a segment's kernels as one Python function.

   Python's and CUDA's interfaces are declared here, so that no headers are needed: functions of Python's stable
   interface alone, with the layouts that it promises, so that one build serves all versions. */

typedef long long word;
typedef struct object PyObject;
typedef struct state PyThreadState;
typedef PyObject *(*method)(PyObject *, PyObject *const *, long);
typedef struct {
    const char *name;
    method function;
    int flags;
    const char *doc;
} PyMethodDef;

enum { METH_FASTCALL = 0x80, INVALID_CONTEXT = 201, CLUSTER_DIMENSION = 4, ALIGNED = 15 };
enum { MOST_DESCRIPTORS = 8, MOST_DIMENSIONS = 5, NOT_INTERLEAVED = 0, PROMOTED_TO_128_BYTES = 2, FILLED_WITH_ZEROS = 0 };

#define NOTHING ((PyObject *)0)

extern PyObject _Py_NoneStruct, *PyExc_TypeError, *PyExc_ValueError;
PyObject *PyCFunction_NewEx(PyMethodDef *, PyObject *, PyObject *);
PyObject *PyCapsule_New(void *, const char *, void (*)(PyObject *));
void *PyCapsule_GetPointer(PyObject *, const char *);
PyObject *PyTuple_Pack(long, ...);
long PyTuple_Size(PyObject *);
PyObject *PyTuple_GetItem(PyObject *, long);
PyObject *PySequence_Tuple(PyObject *);
long long PyLong_AsLongLong(PyObject *);
PyObject *PyLong_FromLong(long);
double PyFloat_AsDouble(PyObject *);
PyObject *PyErr_Occurred(void);
void PyErr_SetString(PyObject *, const char *);
PyObject *PyErr_NoMemory(void);
PyObject *PyObject_CallFunctionObjArgs(PyObject *, ...);
void Py_IncRef(PyObject *);
void Py_DecRef(PyObject *);
PyThreadState *PyEval_SaveThread(void);
void PyEval_RestoreThread(PyThreadState *);
int PyBytes_AsStringAndSize(PyObject *, char **, long *);
void *malloc(unsigned long);
void free(void *);

/* CUlaunchAttribute and CUlaunchConfig */
struct attribute {
    int id, padding;
    unsigned value[16];
};
struct configuration {
    unsigned grid[3], threads[3], shared_bytes;
    void *stream;
    struct attribute *attributes;
    unsigned count;
};

typedef int (*launch_function)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                               void **, void **);
typedef int (*launch_configured_function)(const struct configuration *, void *, void **, void **);
typedef int (*clear_function)(unsigned long long, unsigned char, unsigned long, void *);
typedef int (*use_context_function)(void *);
typedef int (*describe_function)(void *, int, unsigned, void *, const unsigned long long *, const unsigned long long *,
                                 const unsigned *, const unsigned *, int, int, int, int);

/* What Python describes a segment by: these words, the kernels, two bits for each symbol that calls give (1 where a
   kernel takes it as an integer, 2 as a float), and for each kernel the positions of its buffers, then of its symbols,
   each of these followed by 1 for a float and 0 for an integer, then its tensor descriptors: the position of the
   buffer, the driver's numbers of the element type and of the swizzle, rank, and from the contiguous dimension on the
   extents, the strides of the others in bytes, and the extents of a tile. */
struct segment {
    word launch, launch_configured, clear, use_context, describe, context;
    word kernels, addresses, symbols, largest, computed;
};
struct kernel {
    word handle, threads, shared_bytes, cluster, cleared, buffers, symbols, hidden, descriptors, grid, cleared_bytes;
};

struct call {
    const struct segment *segment;
    word *addresses, *integers, *counts; /* counts: grid and cleared bytes of each kernel, or null */
    double *floats;
    void **block;
    void *stream;
};

static const char NAME[] = "litz segment";

static int launch(const struct call *call, const struct kernel *kernel, word grid, word cleared_bytes) {
    const struct segment *segment = call->segment;
    void *handle = (void *)kernel->handle;
    if (kernel->cluster > 1) {
        struct attribute attribute = {CLUSTER_DIMENSION, 0, {(unsigned)kernel->cluster, 1, 1}};
        struct configuration configuration = {
            {(unsigned)grid, 1, 1}, {(unsigned)kernel->threads, 1, 1}, (unsigned)kernel->shared_bytes,
            call->stream, &attribute, 1};
        return ((launch_configured_function)segment->launch_configured)(&configuration, handle, call->block, 0);
    }
    if (kernel->cleared >= 0) {
        word address = *(word *)call->block[kernel->cleared];
        int code = ((clear_function)segment->clear)(address, 0, cleared_bytes, call->stream);
        if (code) return code;
    }
    return ((launch_function)segment->launch)(handle, (unsigned)grid, 1, 1, (unsigned)kernel->threads, 1, 1,
                                              (unsigned)kernel->shared_bytes, call->stream, call->block, 0);
}

/* CUtensorMap */
struct map {
    unsigned long long words[16];
} __attribute__((aligned(64)));

/* Make the tensor descriptor that `words` describe; return the error code, and the words after them in *next. */
static int describe(const struct call *call, const word *words, struct map *map, const word **next) {
    word rank = words[3];
    unsigned long long extents[MOST_DIMENSIONS], strides[MOST_DIMENSIONS];
    unsigned box[MOST_DIMENSIONS], steps[MOST_DIMENSIONS];
    const word *extent = words + 4, *stride = extent + rank, *tile = stride + rank - 1;
    for (word k = 0; k < rank; k++) {
        extents[k] = extent[k];
        strides[k] = k + 1 < rank ? stride[k] : 0;
        box[k] = tile[k];
        steps[k] = 1;
    }
    *next = tile + rank;
    return ((describe_function)call->segment->describe)(
        map, (int)words[1], (unsigned)rank, (void *)call->addresses[words[0]], extents, strides, box, steps,
        NOT_INTERLEAVED, (int)words[2], PROMOTED_TO_128_BYTES, FILLED_WITH_ZEROS);
}

/* Point the arguments of a kernel at their values; return an error code, and what follows the kernel's words in *next. */
static int prepare(const struct call *call, const struct kernel *kernel, struct map *maps, word *null,
                   const word **next) {
    void **block = call->block;
    int code = 0;
    for (word k = 0; k < kernel->buffers; k++) *block++ = call->addresses + *(*next)++;
    for (word k = 0; k < kernel->symbols; k++, *next += 2)
        *block++ = (*next)[1] ? (void *)(call->floats + (*next)[0]) : (void *)(call->integers + (*next)[0]);
    for (word k = 0; k < kernel->descriptors; k++) {
        /* Triton adds extents and strides, which kernels that load through descriptors do not read. */
        word rank = (*next)[3];
        int found = describe(call, *next, maps + k, next);
        code = code ? code : found;
        *block++ = maps + k;
        for (word each = 0; each < 2 * rank; each++) *block++ = null;
    }
    for (word k = 0; k < kernel->hidden; k++) *block++ = null;
    return code;
}

/* Launch all kernels; return the error code of the one with the number *failed, or 0. */
static int launch_all(const struct call *call, word *failed) {
    const struct segment *segment = call->segment;
    const struct kernel *kernel = (const struct kernel *)(segment + 1);
    const word *next = (const word *)(kernel + segment->kernels) + segment->symbols;
    word null = 0;
    struct map maps[MOST_DESCRIPTORS];
    for (word number = 0; number < segment->kernels; number++, kernel++) {
        const word *own = next;
        word grid = call->counts ? call->counts[2 * number] : kernel->grid;
        word cleared_bytes = call->counts ? call->counts[2 * number + 1] : kernel->cleared_bytes;
        int code = prepare(call, kernel, maps, &null, &next);
        if (!grid) continue;
        if (!code) code = launch(call, kernel, grid, cleared_bytes);
        if (code == INVALID_CONTEXT) {
            /* The first launch of a thread in which torch has not used the device yet. */
            ((use_context_function)segment->use_context)((void *)segment->context);
            next = own;
            code = prepare(call, kernel, maps, &null, &next);
            if (!code) code = launch(call, kernel, grid, cleared_bytes);
        }
        if (code) {
            *failed = number;
            return code;
        }
    }
    return 0;
}

/* Return the tuple of a sequence with `count` items, or null with an exception set. */
static PyObject *items(PyObject *given, word count) {
    PyObject *tuple = PySequence_Tuple(given);
    if (tuple && PyTuple_Size(tuple) != count) {
        PyErr_SetString(PyExc_ValueError, "a segment is called with another number of values than it takes");
        Py_DecRef(tuple);
        return 0;
    }
    return tuple;
}

/* Read integers; 0 with an exception set where there are none. */
static int read_integers(PyObject *given, word count, word *values) {
    PyObject *tuple = items(given, count);
    if (!tuple) return 0;
    int valid = 1;
    for (word k = 0; valid && k < count; k++) {
        values[k] = PyLong_AsLongLong(PyTuple_GetItem(tuple, k));
        valid = values[k] != -1 || !PyErr_Occurred();
    }
    Py_DecRef(tuple);
    return valid;
}

/* Read symbols as their kinds say; 0 with an exception set where one is no such number. */
static int read_symbols(PyObject *given, const struct call *call) {
    const struct segment *segment = call->segment;
    const word *kinds = (const word *)((const struct kernel *)(segment + 1) + segment->kernels);
    PyObject *tuple = items(given, segment->symbols);
    if (!tuple) return 0;
    int valid = 1;
    for (word k = 0; valid && k < segment->symbols; k++) {
        PyObject *item = PyTuple_GetItem(tuple, k);
        if (kinds[k] & 1) {
            call->integers[k] = PyLong_AsLongLong(item);
            valid = call->integers[k] != -1 || !PyErr_Occurred();
        }
        if (valid && kinds[k] & 2) {
            call->floats[k] = PyFloat_AsDouble(item);
            valid = call->floats[k] != -1.0 || !PyErr_Occurred();
        }
    }
    Py_DecRef(tuple);
    return valid;
}

/* Launch in the memory of `call`. `own` is (segment, stream_of, device, unaligned, failed). */
static PyObject *run_in(struct call *call, PyObject *own, PyObject *const *arguments, long count) {
    const struct segment *segment = call->segment;
    if (!read_integers(arguments[0], segment->addresses, call->addresses)) return 0;
    word bits = 0;
    for (word k = 0; k < segment->addresses; k++) bits |= call->addresses[k];
    if (bits & ALIGNED)
        return PyObject_CallFunctionObjArgs(PyTuple_GetItem(own, 3), arguments[0], count > 1 ? arguments[1] : NOTHING,
                                            NOTHING);
    if (segment->symbols && !read_symbols(arguments[1], call)) return 0;
    if (segment->computed) {
        if (!read_integers(arguments[2], 2 * segment->kernels, call->counts)) return 0;
    } else {
        call->counts = 0;
    }
    PyObject *stream = PyObject_CallFunctionObjArgs(PyTuple_GetItem(own, 1), PyTuple_GetItem(own, 2), NOTHING);
    if (!stream) return 0;
    word handle = PyLong_AsLongLong(stream);
    Py_DecRef(stream);
    if (handle == -1 && PyErr_Occurred()) return 0;
    call->stream = (void *)handle;
    word failed = 0;
    PyThreadState *state = PyEval_SaveThread();
    int code = launch_all(call, &failed);
    PyEval_RestoreThread(state);
    if (!code) {
        Py_IncRef(&_Py_NoneStruct);
        return &_Py_NoneStruct;
    }
    PyObject *numbers[2] = {PyLong_FromLong(failed), PyLong_FromLong(code)};
    PyObject *result = 0;
    if (numbers[0] && numbers[1])
        result = PyObject_CallFunctionObjArgs(PyTuple_GetItem(own, 4), numbers[0], numbers[1], NOTHING);
    for (int k = 0; k < 2; k++)
        if (numbers[k]) Py_DecRef(numbers[k]);
    return result;
}

/* segment(addresses, symbols=(), counts=()): launch the kernels on torch's current stream. */
static PyObject *run(PyObject *own, PyObject *const *arguments, long count) {
    PyObject *described = PyTuple_GetItem(own, 0);
    const struct segment *segment = described ? PyCapsule_GetPointer(described, NAME) : 0;
    if (!segment) return 0;
    if (count > 3 || count < 1 + (segment->symbols > 0) + (segment->computed > 0)) {
        PyErr_SetString(PyExc_TypeError, "a segment takes addresses, symbols and counts");
        return 0;
    }
    word kernels = segment->kernels, symbols = segment->symbols;
    word size = segment->addresses + 2 * symbols + 2 * kernels + segment->largest;
    word few[512], *memory = few;
    if (size > 512 && !(memory = malloc(size * sizeof(word)))) return PyErr_NoMemory();
    struct call call;
    call.segment = segment;
    call.addresses = memory;
    call.integers = call.addresses + segment->addresses;
    call.floats = (double *)(call.integers + symbols);
    call.counts = (word *)(call.floats + symbols);
    call.block = (void **)(call.counts + 2 * kernels);
    PyObject *result = run_in(&call, own, arguments, count);
    if (memory != few) free(memory);
    return result;
}

static void drop(PyObject *capsule) { free(PyCapsule_GetPointer(capsule, NAME)); }

static PyMethodDef DEFINITION = {"segment", run, METH_FASTCALL, 0};

/* Return the function of a segment, described by bytes. `stream_of` returns the handle of the current stream of a
   device; `unaligned` is called instead of launches on addresses that are no multiples of 16, `failed` with the number
   of a kernel and the driver's error code. Null with an exception set. */
PyObject *litz_segment(PyObject *description, PyObject *stream_of, PyObject *device, PyObject *unaligned,
                       PyObject *failed) {
    char *bytes;
    long length;
    if (PyBytes_AsStringAndSize(description, &bytes, &length)) return 0;
    char *segment = malloc(length);
    if (!segment) return PyErr_NoMemory();
    for (long k = 0; k < length; k++) segment[k] = bytes[k];
    PyObject *capsule = PyCapsule_New(segment, NAME, drop);
    if (!capsule) {
        free(segment);
        return 0;
    }
    PyObject *own = PyTuple_Pack(5, capsule, stream_of, device, unaligned, failed);
    Py_DecRef(capsule);
    if (!own) return 0;
    PyObject *function = PyCFunction_NewEx(&DEFINITION, own, 0);
    Py_DecRef(own);
    return function;
}
