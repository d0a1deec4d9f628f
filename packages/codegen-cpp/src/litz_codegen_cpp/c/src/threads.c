/* A team of threads that kernels run on, by the functions of litz_runtime_table: GOMP's regions and barriers.
 *
 * One call has the team at a time; calls of other threads meanwhile run on those threads alone. Threads that wait look at
 * a counter for some microseconds, since kernels follow each other quickly, and then sleep. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

#define SPINS 4000
#define MOST_THREADS 1024

typedef struct gate { /* counts up; threads wait until it differs from what they saw */
  _Atomic unsigned count;
  pthread_mutex_t lock;
  pthread_cond_t moved;
} gate;

struct team {
  int threads;
  pthread_t* members; /* threads - 1 */
  atomic_flag taken;
  gate begin, end, barrier;
  _Atomic int stop, running, arrived;
  void (*body)(void*);
  void* data;
  int width; /* threads of the region that runs */
};

typedef struct seat {
  team* of;
  int number;
} seat;

static _Thread_local team* own_team;  /* of the call that this thread makes, or of its region */
static _Thread_local int own_number, own_width = 1;

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

static void gate_init(gate* at) {
  atomic_init(&at->count, 0);
  pthread_mutex_init(&at->lock, NULL);
  pthread_cond_init(&at->moved, NULL);
}

static void gate_open(gate* at) {
  pthread_mutex_lock(&at->lock);
  atomic_fetch_add_explicit(&at->count, 1, memory_order_release);
  pthread_cond_broadcast(&at->moved);
  pthread_mutex_unlock(&at->lock);
}

static void gate_wait(gate* at, unsigned seen) {
  for (int i = 0; i < SPINS; ++i) {
    if (atomic_load_explicit(&at->count, memory_order_acquire) != seen) return;
    relax();
  }
  pthread_mutex_lock(&at->lock);
  while (atomic_load_explicit(&at->count, memory_order_acquire) == seen) pthread_cond_wait(&at->moved, &at->lock);
  pthread_mutex_unlock(&at->lock);
}

static void* member_main(void* of_seat) {
  seat mine = *(seat*)of_seat;
  team* of = mine.of;
  free(of_seat);
  own_team = of;
  own_number = mine.number;
  for (unsigned seen = 0;; ++seen) {
    gate_wait(&of->begin, seen);
    if (atomic_load(&of->stop)) return NULL;
    if (mine.number < of->width) {
      own_width = of->width;
      of->body(of->data);
      own_width = 1;
    }
    /* Every member answers every region, so that none misses the next. */
    if (atomic_fetch_sub(&of->running, 1) == 1) gate_open(&of->end);
  }
}

static int available_cpus(void) {
  cpu_set_t set;
  if (!sched_getaffinity(0, sizeof set, &set)) return CPU_COUNT(&set);
  const long count = sysconf(_SC_NPROCESSORS_ONLN);
  return count > 0 ? (int)count : 1;
}

team* team_create(int threads) {
  team* of = calloc(1, sizeof *of);
  if (!of) return NULL;
  const int wanted = threads > 0 ? threads : available_cpus();
  of->threads = 1;
  atomic_flag_clear(&of->taken);
  gate_init(&of->begin);
  gate_init(&of->end);
  gate_init(&of->barrier);
  const int most = wanted < MOST_THREADS ? wanted : MOST_THREADS;
  of->members = calloc((size_t)most, sizeof *of->members);
  /* Signals go to the program's own threads: those of a team inherit a mask of all but faults, which are their own. */
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
  sigset_t others, before;
  sigfillset(&others);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; ++i) sigdelset(&others, faults[i]);
  pthread_sigmask(SIG_SETMASK, &others, &before);
  /* A team that gets fewer threads than it wants is smaller, and not an error. */
  while (of->members && of->threads < most) {
    seat* mine = malloc(sizeof *mine);
    if (!mine) break;
    *mine = (seat){of, of->threads};
    if (pthread_create(&of->members[of->threads - 1], NULL, member_main, mine)) {
      free(mine);
      break;
    }
    ++of->threads;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return of;
}

void team_free(team* of) {
  if (!of) return;
  atomic_store(&of->stop, 1);
  gate_open(&of->begin);
  for (int i = 0; i < of->threads - 1; ++i) pthread_join(of->members[i], NULL);
  free(of->members);
  free(of);
}

static void run_region(void (*body)(void*), void* data, unsigned threads, unsigned flags) {
  (void)flags;
  team* of = own_team;
  const int width = of && (int)threads < of->threads ? (int)threads : of ? of->threads : 1;
  if (width <= 1 || own_width > 1) { /* also a region inside of a region */
    const int number = own_number, outer = own_width;
    own_number = 0;
    own_width = 1;
    body(data);
    own_number = number;
    own_width = outer;
    return;
  }
  of->body = body;
  of->data = data;
  of->width = width;
  const unsigned seen = atomic_load(&of->end.count);
  atomic_store(&of->running, of->threads - 1);
  gate_open(&of->begin);
  own_width = width;
  body(data);
  own_width = 1;
  gate_wait(&of->end, seen);
}

static int thread_number(void) { return own_width > 1 ? own_number : 0; }
static int threads_in_region(void) { return own_width; }
static int most_threads(void) { return own_team ? own_team->threads : 1; }

static void wait_for_all(void) {
  if (own_width <= 1) return;
  team* of = own_team;
  const unsigned seen = atomic_load(&of->barrier.count);
  if (atomic_fetch_add(&of->arrived, 1) == own_width - 1) {
    atomic_store(&of->arrived, 0);
    gate_open(&of->barrier);
  } else {
    gate_wait(&of->barrier, seen);
  }
}

litz_runtime team_table(const team* of) {
  return (litz_runtime){run_region, thread_number, threads_in_region, most_threads, wait_for_all, of->threads, 0, 0, NULL};
}

int team_enter(team* of) {
  const int entered = of->threads > 1 && !atomic_flag_test_and_set(&of->taken);
  own_team = entered ? of : NULL;
  own_number = 0;
  return entered;
}

void team_leave(team* of, int entered) {
  own_team = NULL;
  if (entered) atomic_flag_clear(&of->taken);
}
