/* How long MPI's all_reduce of floats takes: a barrier before each operation, the slowest rank's time, the median.
 *
 * usage: mpirun -n RANKS all_reduce_mpi BYTES...      prints one line for each size: bytes, median in microseconds
 *
 * Buffers come from malloc, hold what every rank can check, and are touched before anything is timed. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { WARM_UP = 5, FEWEST_ROUNDS = 7, MOST_ROUNDS = 1000 };

/* Seconds of operations after which a size has had enough rounds. */
static const double BUDGET = 1.0;

static int ascending(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static double seconds_of_one(const float *input, float *output, int count) {
    double slowest, mine;
    MPI_Barrier(MPI_COMM_WORLD);
    mine = MPI_Wtime();
    MPI_Allreduce(input, output, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    mine = MPI_Wtime() - mine;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

/* All ranks know the same times, so all stop after the same round. */
static double median_seconds(const float *input, float *output, size_t bytes) {
    static double seconds[MOST_ROUNDS];
    int rounds = 0, count = (int)(bytes / sizeof *input);
    double total = 0;
    for (int i = 0; i < WARM_UP && total < BUDGET; i++) total += seconds_of_one(input, output, count);
    for (total = 0; rounds < MOST_ROUNDS && (rounds < FEWEST_ROUNDS || total < BUDGET); rounds++)
        total += seconds[rounds] = seconds_of_one(input, output, count);
    qsort(seconds, rounds, sizeof *seconds, ascending);
    return seconds[rounds / 2];
}

/* Wrong elements in the output when every rank's element i is (i + rank) % 8. */
static size_t wrong(const float *output, size_t count, int ranks) {
    size_t bad = 0;
    for (size_t i = 0; i < count; i++) {
        float expected = 0;
        for (int rank = 0; rank < ranks; rank++) expected += (float)((i + rank) % 8);
        bad += output[i] != expected;
    }
    return bad;
}

int main(int argc, char **argv) {
    int rank, ranks, status = 0;
    size_t most = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 1; i < argc; i++) {
        size_t bytes = strtoull(argv[i], NULL, 0);
        if (bytes > most) most = bytes;
    }
    float *input = malloc(most + 1), *output = malloc(most + 1);
    if (!input || !output) MPI_Abort(MPI_COMM_WORLD, 1);
    for (size_t i = 0; i < most / sizeof *input; i++) input[i] = (float)((i + rank) % 8), output[i] = -1;
    for (int i = 1; i < argc; i++) {
        size_t bytes = strtoull(argv[i], NULL, 0);
        double median = median_seconds(input, output, bytes);
        if (wrong(output, bytes / sizeof *output, ranks)) status = 1;
        if (rank == 0) printf("%zu %.3f\n", bytes, median * 1e6), fflush(stdout);
    }
    MPI_Finalize();
    return status;
}
