#ifndef SHARED_H
#define SHARED_H

#include "state.h"

/* NVML's numbers for what can go wrong; only those that this driver gives by itself. */
typedef enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    FUNCTION_NOT_FOUND = 13,
    GPU_IS_LOST = 15,
    RESET_REQUIRED = 16,
    LIB_RM_VERSION_MISMATCH = 18,
    ARGUMENT_VERSION_MISMATCH = 25,
    UNKNOWN = 999
} result_t;

enum { NO_GPU = -1 };

/* The state as one call sees and changes it. Between `enter` and `leave`, or `attach` and `leave`, the caller holds the
 * lock; `leave` must be called whatever was returned. */
extern struct page *page;

/* How the call's fault wants it to go on: 0 or one of FAULT_IGNORE, FAULT_STALE, FAULT_RESET, FAULT_HANG. */
extern uint32_t struck;

/* Map the state that FAKE_NVML_STATE names and count one more user. */
result_t attach(const char *function);

/* Lock the state, settle it, and say with what result the call must end before it does anything. */
result_t enter(int gpu, const char *function);

/* The result of the fault, if any, that this function or field meets now. */
result_t strike(int gpu, const char *function);

/* Whether this GPU has fallen off the bus: a fault makes the look-up of its handle end so. No call is counted. */
int is_lost(int gpu);

/* Keep in mind that a setter was called. */
void record(int gpu, const char *function, uint32_t first, uint32_t second, result_t result);

/* Make the changes valid, unlock, and give `result` back. */
result_t leave(result_t result);

/* One user less. */
result_t detach(void);

#endif
