/* SPDX-License-Identifier: Apache-2.0
 *
 * standalone: a driver for fuzz entries where libFuzzer is not at hand (gcc). Replays every seed,
 * then runs random mutations of them for SLUICE_FUZZ_SECONDS (default 10), from SLUICE_FUZZ_SEED
 * (default: the time). Blind, unlike libFuzzer: it knows no coverage. When the entry dies, its
 * input is written to FOUND/crash-<pid>, which is replayed like a seed from then on. usage: entry
 * FOUND SEEDS...     (folders or files)
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"

#define MAX_SEEDS       20000
#define MAX_INPUT_BYTES 65536

typedef struct seed {
    uint8_t *ptr; /* owned */
    size_t len;
} seed;

static seed seeds[MAX_SEEDS];
static size_t seed_count;
static uint64_t word;

/* Of the input that runs now, for the moment of death. */
static const uint8_t *now_ptr;
static size_t now_len;
static char crash_path[1024];

/* Only calls that a signal handler may make. */
static void save_input(void)
{
    int fd = open(crash_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return;
    bool fine = write(fd, now_ptr, now_len) == (ssize_t)now_len;
    close(fd);
    static const char text[] = "\ninput saved to ";
    fine = fine && write(STDERR_FILENO, text, sizeof(text) - 1) > 0 &&
           write(STDERR_FILENO, crash_path, strlen(crash_path)) > 0 &&
           write(STDERR_FILENO, "\n", 1) > 0;
    if (!fine)
        _exit(70);
}

static void on_signal(int number)
{
    save_input();
    signal(number, SIG_DFL);
    raise(number);
}

/* Given by the sanitizers' runtime when there is one. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void watch_for_death(const char *found)
{
    snprintf(crash_path, sizeof(crash_path), "%s/crash-%ld", found, (long)getpid());
    signal(SIGABRT, on_signal);
    signal(SIGALRM, on_signal); // a hang
    if (__sanitizer_set_death_callback != NULL)
        __sanitizer_set_death_callback(save_input);
}

static void run(const uint8_t *ptr, size_t len)
{
    uint8_t *copy = malloc(len > 0 ? len : 1);
    if (copy == NULL)
        abort();
    if (len > 0)
        memcpy(copy, ptr, len);
    now_ptr = copy;
    now_len = len;
    (void)LLVMFuzzerTestOneInput(copy, len);
    free(copy);
}

/* ---- seeds ---- */

static void add_file(const char *path)
{
    FILE *in = fopen(path, "rb");
    if (in == NULL || seed_count == MAX_SEEDS) {
        fprintf(stderr, "cannot read %s, or more than %d seeds\n", path, MAX_SEEDS);
        exit(2);
    }
    uint8_t *ptr = malloc(MAX_INPUT_BYTES);
    if (ptr == NULL)
        abort();
    size_t len = fread(ptr, 1, MAX_INPUT_BYTES, in);
    fclose(in);
    uint8_t *fit = realloc(ptr, len > 0 ? len : 1);
    seeds[seed_count++] = (seed){fit != NULL ? fit : ptr, len};
}

static void add_path(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        fprintf(stderr, "no seeds at %s\n", path);
        exit(2);
    }
    if (!S_ISDIR(st.st_mode)) {
        add_file(path);
        return;
    }
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char full[1024];
        snprintf(full, sizeof(full), "%s/%s", path, entries[i]->d_name);
        if (stat(full, &st) == 0 && S_ISREG(st.st_mode))
            add_file(full);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
}

/* ---- mutation ---- */

static uint32_t below(uint32_t limit)
{
    word ^= word << 13;
    word ^= word >> 7;
    word ^= word << 17;
    return (uint32_t)((word >> 20) % limit);
}

static size_t remove_run(uint8_t *buf, size_t len, size_t at)
{
    size_t run_len = 1 + below(8);
    if (run_len > len - at)
        run_len = len - at;
    memmove(buf + at, buf + at + run_len, len - at - run_len);
    return len - run_len;
}

static size_t insert_run(uint8_t *buf, size_t len, size_t at)
{
    size_t run_len = 1 + below(8);
    if (len + run_len > MAX_INPUT_BYTES)
        return len;
    memmove(buf + at + run_len, buf + at, len - at);
    uint8_t fill = (uint8_t)below(256);
    for (size_t i = 0; i < run_len; i++)
        buf[at + i] = below(2) ? fill : (uint8_t)below(256);
    return len + run_len;
}

/* A piece of another seed over or into this one. */
static size_t splice_seed(uint8_t *buf, size_t len, size_t at)
{
    const seed *sd = &seeds[below((uint32_t)seed_count)];
    if (sd->len == 0)
        return len;
    size_t from = below((uint32_t)sd->len);
    size_t run_len = 1 + below((uint32_t)(sd->len - from));
    if (at + run_len > MAX_INPUT_BYTES)
        return len;
    memcpy(buf + at, sd->ptr + from, run_len);
    return at + run_len > len ? at + run_len : len;
}

static size_t mutate(uint8_t *buf, size_t len)
{
    static const uint8_t telling[] = {0x00, 0x01, 0x7F, 0x80, 0xFF, 0xFE, '"',
                                      '\\', '/',  '+',  '#',  '$',  '{',  '\n'};
    size_t at = len > 0 ? below((uint32_t)len) : 0;
    switch (below(8)) {
    case 0:
        if (len > 0)
            buf[at] ^= (uint8_t)(1u << below(8));
        return len;
    case 1:
        if (len > 0)
            buf[at] = (uint8_t)below(256);
        return len;
    case 2:
        if (len > 0)
            buf[at] = telling[below(sizeof(telling))];
        return len;
    case 3:
        return len > 0 ? remove_run(buf, len, at) : len;
    case 4:
        return insert_run(buf, len, at);
    case 5:
        return splice_seed(buf, len, at);
    case 6:
        if (len > 0)
            buf[at] = (uint8_t)(buf[at] + 1 - 2 * below(2));
        return len;
    default:
        return at; // cut
    }
}

static unsigned long setting(const char *name, unsigned long otherwise)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != 0 ? strtoul(text, NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s FOUND SEEDS...\n", argv[0]);
        return 2;
    }
    watch_for_death(argv[1]);
    for (int i = 1; i < argc; i++)
        add_path(argv[i]);
    if (seed_count == 0) {
        fprintf(stderr, "no seeds\n");
        return 2;
    }
    unsigned long seconds = setting("SLUICE_FUZZ_SECONDS", 10);
    unsigned long start = setting("SLUICE_FUZZ_SEED", (unsigned long)time(NULL));
    word = start * 0x9E3779B97F4A7C15ull | 1;
    printf("%zu seeds, %lu seconds, SLUICE_FUZZ_SEED=%lu\n", seed_count, seconds, start);
    fflush(stdout);
    for (size_t i = 0; i < seed_count; i++)
        run(seeds[i].ptr, seeds[i].len);
    static uint8_t buf[MAX_INPUT_BYTES];
    uint64_t runs = 0;
    time_t end = time(NULL) + (time_t)seconds;
    while (time(NULL) < end) {
        alarm(20);
        for (unsigned n = 0; n < 500; n++, runs++) {
            const seed *sd = &seeds[below((uint32_t)seed_count)];
            size_t len = sd->len;
            if (len > 0)
                memcpy(buf, sd->ptr, len);
            for (unsigned k = 1 + below(4); k > 0; k--)
                len = mutate(buf, len);
            run(buf, len);
        }
    }
    alarm(0);
    printf("%llu mutations, no fault\n", (unsigned long long)runs);
    for (size_t i = 0; i < seed_count; i++)
        free(seeds[i].ptr);
    return 0;
}
