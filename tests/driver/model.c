/* What a GPU draws, and the integral of that over time. */
#define _GNU_SOURCE
#include "model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double AVERAGED_OVER_S = 0.5;

struct demand {
    int contexts;
    double compute;
    double memory;
};

static struct demand total(const struct gpu *gpu) {
    struct demand sum = {0, 0.0, 0.0};
    for (int i = 0; i < LOADS; i++) {
        if (gpu->loads[i].pid == 0)
            continue;
        sum.contexts++;
        sum.compute += gpu->loads[i].compute;
        sum.memory += gpu->loads[i].memory;
    }
    sum.compute = fmin(1.0, sum.compute);
    sum.memory = fmin(1.0, sum.memory);
    return sum;
}

/*  P(f, g) = floor + x V(x)^2 (leak + context [somebody is there] + compute C) + memory y M^e
 *
 *  f, g   graphics and memory clock; x = f / highest f, y = g / highest g
 *  C, M   compute and memory loads of all processes together, each at most 1
 *  V(x)   lowest_volts up to the knee, then straight up to 1 at x = 1
 *  e      above 1: two processes that contend for the memory draw more together than one after the other
 */
static void draw(const struct gpu *gpu, struct demand demand, struct point *point) {
    const struct coefficients *k = &gpu->coefficients;
    double x = (double)point->graphics_mhz / gpu->graphics_clock_mhz[0][0];
    double y = (double)point->memory_mhz / gpu->memory_clock_mhz[0];
    double volts = k->lowest_volts + (1.0 - k->lowest_volts) * fmax(0.0, (x - k->knee) / (1.0 - k->knee));
    double switched_w = k->leak_w + (demand.contexts ? k->context_w : 0.0) + k->compute_w * demand.compute;
    point->memory_w = k->memory_w * y * pow(demand.memory, k->memory_exponent);
    point->power_w = k->floor_w + x * volts * volts * switched_w + point->memory_w;
}

/* The place of the highest clock that is not above `mhz`, of clocks that fall. */
static uint32_t place(const uint32_t *clocks_mhz, uint32_t count, uint32_t mhz) {
    for (uint32_t i = 0; i < count; i++)
        if (clocks_mhz[i] <= mhz)
            return i;
    return count - 1;
}

static uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* The clock that is asked for: the highest that the lock lets through, or, when idle, the lowest. */
static uint32_t wanted(const uint32_t lock_mhz[2], uint32_t lowest_mhz, uint32_t highest_mhz, int idle) {
    if (lock_mhz[1] == 0)
        return idle ? lowest_mhz : highest_mhz;
    return idle ? lock_mhz[0] : smaller(lock_mhz[1], highest_mhz);
}

static int has(const uint32_t mask[MASK_WORDS], uint32_t number) { return mask[number / 32] >> number % 32 & 1; }

void enforce(const struct gpu *gpu, uint32_t enforced[MASK_WORDS]) {
    memset(enforced, 0, MASK_WORDS * sizeof *enforced);
    for (uint32_t i = 0; i < gpu->profiles; i++) {
        const struct profile *own = &gpu->profile[i];
        int stays = has(gpu->requested_profiles, own->number);
        for (uint32_t j = 0; stays && j < gpu->profiles; j++) {
            const struct profile *other = &gpu->profile[j];
            if (other != own && has(gpu->requested_profiles, other->number) && other->priority < own->priority &&
                (has(own->conflicts, other->number) || has(other->conflicts, own->number)))
                stays = 0;
        }
        if (stays)
            enforced[own->number / 32] |= 1u << own->number % 32;
    }
}

/* The highest graphics clock that the enforced profiles let through; 0: any. */
static uint32_t profile_ceiling_mhz(const struct gpu *gpu) {
    uint32_t enforced[MASK_WORDS], lowest_mhz = 0;
    enforce(gpu, enforced);
    for (uint32_t i = 0; i < gpu->profiles; i++) {
        uint32_t mhz = has(enforced, gpu->profile[i].number) ? gpu->profile[i].ceiling_mhz : 0;
        if (mhz && (lowest_mhz == 0 || mhz < lowest_mhz))
            lowest_mhz = mhz;
    }
    return lowest_mhz;
}

struct point operate(const struct gpu *gpu) {
    struct demand demand = total(gpu);
    struct point point = {0};
    int idle = demand.contexts == 0;

    const uint32_t *memory_mhz = gpu->memory_clock_mhz;
    uint32_t slowest = gpu->memory_clocks - 1;
    uint32_t highest_mhz = smaller(memory_mhz[0], gpu->application_mhz[1]);
    if (gpu->loaded_memory_mhz)
        highest_mhz = smaller(highest_mhz, gpu->loaded_memory_mhz);
    uint32_t row = place(memory_mhz, gpu->memory_clocks,
                         wanted(gpu->memory_lock_mhz, memory_mhz[slowest], highest_mhz, idle));
    point.memory_mhz = memory_mhz[row];

    const uint32_t *mhz = gpu->graphics_clock_mhz[row];
    uint32_t count = gpu->graphics_clocks[row];
    uint32_t asked_mhz = wanted(gpu->gpu_lock_mhz, mhz[count - 1], mhz[0], idle);
    if (idle)
        point.reasons |= IDLE;
    if (gpu->application_mhz[0] < asked_mhz) {
        asked_mhz = gpu->application_mhz[0];
        point.reasons |= APPLICATION_CLOCKS;
    }
    if (gpu->ceiling_mhz && gpu->ceiling_mhz < asked_mhz) {
        asked_mhz = gpu->ceiling_mhz;
        point.reasons |= gpu->ceiling_reasons;
    }
    uint32_t ceiling_mhz = profile_ceiling_mhz(gpu);
    if (ceiling_mhz && ceiling_mhz < asked_mhz)
        asked_mhz = ceiling_mhz;
    /* Not even a locked range holds against the limit: the clock falls until the power fits. */
    for (uint32_t i = place(mhz, count, asked_mhz);; i++) {
        point.graphics_mhz = mhz[i];
        draw(gpu, demand, &point);
        if (point.power_w * 1000.0 <= gpu->limit_mw)
            return point;
        point.reasons |= POWER_CAP;
        if (i + 1 == count)
            return point;
    }
}

/* The time up to a moment as the counter sees it: all of a period has passed when the part that it looks at has. */
static double counted_ns(const struct page *page, const struct gpu *gpu, int64_t at_ns) {
    double looked_ns = gpu->sampled_ms * 1e6;
    if (looked_ns == 0.0)
        return (double)at_ns;
    int64_t since_ns = at_ns - page->phase_ns;
    int64_t rest_ns = (since_ns % page->period_ns + page->period_ns) % page->period_ns;
    double whole_ns = (double)(since_ns - rest_ns);
    return whole_ns + fmin(1.0, (double)rest_ns / looked_ns) * (double)page->period_ns;
}

void integrate(const struct page *page, struct gpu *gpu, int64_t to_ns) {
    if (to_ns < gpu->until_ns)
        return;
    double power_w = operate(gpu).power_w;
    int64_t tick_ns = to_ns - ((to_ns - page->phase_ns) % page->period_ns + page->period_ns) % page->period_ns;
    double before_ns = counted_ns(page, gpu, gpu->until_ns);
    if (tick_ns >= gpu->until_ns)
        gpu->published_mj = gpu->energy_mj + power_w * (counted_ns(page, gpu, tick_ns) - before_ns) * 1e-6;
    gpu->energy_mj += power_w * (counted_ns(page, gpu, to_ns) - before_ns) * 1e-6;
    double elapsed_ns = (double)(to_ns - gpu->until_ns);
    gpu->average_w = power_w + (gpu->average_w - power_w) * exp(-elapsed_ns * 1e-9 / AVERAGED_OVER_S);
    gpu->until_ns = to_ns;
}

static struct load *find(struct gpu *gpu, int32_t pid) {
    for (int i = 0; i < LOADS; i++)
        if (gpu->loads[i].pid == pid)
            return &gpu->loads[i];
    return NULL;
}

static void apply(struct gpu *gpu, const struct event *event) {
    struct load *load = find(gpu, event->load.pid);
    switch (event->kind) {
    case EVENT_LOAD:
        if (load == NULL)
            load = find(gpu, 0); /* there is one: the appender counted */
        *load = event->load;
        break;
    case EVENT_END:
        if (load != NULL && event->load.pid != 0)
            memset(load, 0, sizeof *load);
        break;
    case EVENT_CEILING:
        gpu->ceiling_mhz = event->value;
        break;
    case EVENT_TEMPERATURE:
        gpu->temperature_c = event->value;
        break;
    }
}

char process_status(int32_t pid, uint64_t *started_ticks) {
    char path[40], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    const char *rest = strrchr(text, ')'); /* the name before it may hold anything */
    char status;
    unsigned long long ticks;
    if (rest == NULL || sscanf(rest, ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
                               &status, &ticks) != 2)
        return 0;
    *started_ticks = ticks;
    return status == 'Z' || status == 'X' ? 0 : status;
}

/* Whether the process that was started then still runs. */
static int lives(const struct load *load) {
    uint64_t started_ticks;
    return process_status(load->pid, &started_ticks) && started_ticks == load->started_ticks;
}

void settle(struct page *page, int64_t now_ns) {
    for (; page->events_done < page->events_begun; page->events_done++) {
        const struct event *event = &page->events[page->events_done % EVENTS];
        struct gpu *gpu = &page->gpu[event->gpu];
        integrate(page, gpu, event->at_ns);
        apply(gpu, event);
    }
    for (uint32_t i = 0; i < page->gpus; i++) {
        struct gpu *gpu = &page->gpu[i];
        integrate(page, gpu, now_ns);
        for (int j = 0; j < LOADS; j++)
            if (gpu->loads[j].pid != 0 && gpu->loads[j].started_ticks != 0 && !lives(&gpu->loads[j]))
                memset(&gpu->loads[j], 0, sizeof gpu->loads[j]);
    }
}
