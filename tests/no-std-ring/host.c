/* The machine below the example: two threads are its contexts. Says the sum, and fails if it is wrong. */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

uint64_t sum_in_two_contexts(uint32_t count);

struct context {
    void (*function)(void *);
    void *state;
};

static void *enter(void *argument)
{
    struct context *context = argument;
    context->function(context->state);
    return NULL;
}

void host_run_both(void (*first)(void *), void *first_state, void (*second)(void *), void *second_state)
{
    struct context other = {first, first_state};
    pthread_t thread;
    if (pthread_create(&thread, NULL, enter, &other))
        abort();
    second(second_state);
    pthread_join(thread, NULL);
}

void host_idle(void)
{
    sched_yield();
}

void host_stop(void)
{
    abort();
}

/* The compiled core names it, and nothing unwinds. */
void rust_eh_personality(void)
{
    abort();
}

int main(void)
{
    const uint32_t count = 10000;
    const uint64_t sum = sum_in_two_contexts(count), expected = (uint64_t)count * (count + 1) / 2;
    printf("sum of %" PRIu32 " readings: %" PRIu64 "\n", count, sum);
    return sum != expected || sum_in_two_contexts(1) != UINT64_MAX;
}
