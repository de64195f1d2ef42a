/* Opening, locking and changing the shared state, and the faults that a test asked for. */
#define _GNU_SOURCE
#include "shared.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "model.h"

struct page *page;
uint32_t struck;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char path[PATH_MAX];
static struct state *state;
static unsigned users;
static int locked = -1;

static int64_t now_ns(void) {
    struct timespec now;
    if (page->is_virtual)
        return page->virtual_ns;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* An open file of its own for every lock: a forked child would share its parent's, and threads would share one. */
static int lock(const char *file) {
    locked = open(file, O_RDWR | O_CLOEXEC);
    if (locked < 0)
        return 0;
    while (flock(locked, LOCK_EX) != 0)
        if (errno != EINTR)
            return 0;
    return 1;
}

static void begin(void) {
    uint32_t which = __atomic_load_n(&state->header.which, __ATOMIC_ACQUIRE) & 1;
    page = &state->pages[which ^ 1];
    memcpy(page, &state->pages[which], sizeof *page);
    settle(page, now_ns());
}

/* Old mappings stay: they are few, and their end would be one more thing that can go wrong. */
static result_t map(void) {
    const char *named = getenv("FAKE_NVML_STATE");
    char found[PATH_MAX];
    struct stat status;
    if (named == NULL || realpath(named, found) == NULL || !lock(found))
        return DRIVER_NOT_LOADED;
    if (fstat(locked, &status) != 0 || status.st_size != (off_t)sizeof(struct state))
        return LIB_RM_VERSION_MISMATCH;
    struct state *mapped = mmap(NULL, sizeof *mapped, PROT_READ | PROT_WRITE, MAP_SHARED, locked, 0);
    if (mapped == MAP_FAILED)
        return UNKNOWN;
    if (mapped->header.magic != MAGIC || mapped->header.version != VERSION)
        return LIB_RM_VERSION_MISMATCH;
    state = mapped;
    strcpy(path, found);
    return SUCCESS;
}

result_t attach(const char *function) {
    pthread_mutex_lock(&mutex);
    result_t result = map();
    if (result != SUCCESS)
        return result;
    begin();
    result = strike(NO_GPU, function);
    if (result == SUCCESS)
        users++;
    return result;
}

result_t enter(int gpu, const char *function) {
    pthread_mutex_lock(&mutex);
    if (users == 0)
        return UNINITIALIZED;
    if (!lock(path))
        return UNKNOWN;
    begin();
    if (gpu >= (int)page->gpus)
        return INVALID_ARGUMENT;
    return strike(gpu, function);
}

result_t strike(int gpu, const char *function) {
    struck = 0;
    for (int i = 0; i < FAULTS; i++) {
        struct fault *fault = &page->faults[i];
        if (fault->kind == 0 || (fault->gpu >= 0 && fault->gpu != gpu))
            continue;
        if (fnmatch(fault->functions, function, FNM_EXTMATCH) != 0)
            continue;
        if (++fault->calls < fault->first || (fault->times && fault->struck == fault->times))
            continue;
        fault->struck++;
        if (fault->kind == FAULT_RETURN)
            return (result_t)fault->code;
        struck = fault->kind;
    }
    return SUCCESS;
}

int is_lost(int gpu) {
    for (int i = 0; i < FAULTS; i++) {
        const struct fault *fault = &page->faults[i];
        if (fault->kind != FAULT_RETURN || fault->code != GPU_IS_LOST || (fault->gpu >= 0 && fault->gpu != gpu))
            continue;
        if (fault->calls + 1 < fault->first || (fault->times && fault->struck == fault->times))
            continue;
        if (fnmatch(fault->functions, "nvmlDeviceGetHandleByIndex_v2", FNM_EXTMATCH) == 0)
            return 1;
    }
    return 0;
}

void record(int gpu, const char *function, uint32_t first, uint32_t second, result_t result) {
    if (page == NULL || gpu < 0)
        return;
    struct call *call = &page->calls[page->calls_made++ % CALLS];
    memset(call, 0, sizeof *call);
    strncpy(call->function, function, sizeof call->function - 1);
    call->at_ns = now_ns();
    call->pid = getpid();
    call->gpu = (uint32_t)gpu;
    call->values[0] = first;
    call->values[1] = second;
    call->result = result;
}

result_t leave(result_t result) {
    if (page != NULL)
        __atomic_store_n(&state->header.which, (uint32_t)(page - state->pages), __ATOMIC_RELEASE);
    page = NULL;
    if (locked >= 0) {
        flock(locked, LOCK_UN); /* closing is not enough where a fork has copied the descriptor */
        close(locked);
        locked = -1;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

result_t detach(void) {
    pthread_mutex_lock(&mutex);
    result_t result = users > 0 ? SUCCESS : UNINITIALIZED;
    if (users > 0)
        users--;
    pthread_mutex_unlock(&mutex);
    return result;
}
