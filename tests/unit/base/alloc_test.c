/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of base/alloc and base/assert: memory that is always there, and the ends of a process.
 */
#include "sl_test.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/assert.h"

// Runs fn in a child whose stderr comes back in text; returns its wait status.
static int run_child(void (*fn)(void), char *text, size_t room)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        dup2(fds[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL); // cmocka catches it, the child must really die
        fn();
        _exit(0);
    }
    close(fds[1]);
    size_t len = 0;
    ssize_t got;
    while (len + 1 < room && (got = read(fds[0], text + len, room - 1 - len)) > 0)
        len += (size_t)got;
    text[len] = '\0';
    close(fds[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void fail_an_assertion(void)
{
    int answer = 41;
    SL_ASSERT(answer == 42);
}

static void pass_an_assertion(void)
{
    int answer = 42;
    SL_ASSERT(answer == 42);
}

static void check_wrong_magic(void)
{
    struct {
        unsigned magic;
    } object = {1};
    SL_CHECK(&object, 2);
}

static void overflow_a_product(void)
{
    volatile size_t count = SIZE_MAX / 2;
    sl_free(sl_calloc(count, 4));
}

static void test_assert_names_expression_and_dies(void **state)
{
    (void)state;
    char text[4096];
    int status = run_child(fail_an_assertion, text, sizeof(text));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "answer == 42"));
    assert_non_null(strstr(text, "alloc_test.c"));
    assert_int_equal(run_child(pass_an_assertion, text, sizeof(text)), 0);
    assert_string_equal(text, "");
}

static void test_check_refuses_wrong_magic(void **state)
{
    (void)state;
    char text[4096];
    int status = run_child(check_wrong_magic, text, sizeof(text));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void test_calloc_overflow_aborts(void **state)
{
    (void)state;
    char text[4096];
    int status = run_child(overflow_a_product, text, sizeof(text));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "OUT-OF-MEMORY"));
}

static void test_zero_bytes_give_distinct_pointers(void **state)
{
    (void)state;
    void *left = sl_alloc(0);
    void *right = sl_calloc(0, 8);
    assert_non_null(left);
    assert_non_null(right);
    assert_ptr_not_equal(left, right);
    sl_free(left);
    sl_free(right);
    sl_free(NULL);
}

static void test_calloc_is_zeroed_and_realloc_keeps(void **state)
{
    (void)state;
    unsigned char *ptr = sl_calloc(100, 3);
    for (size_t i = 0; i < 300; i++)
        assert_int_equal(ptr[i], 0);
    memset(ptr, 7, 300);
    ptr = sl_realloc(ptr, 100000);
    for (size_t i = 0; i < 300; i++)
        assert_int_equal(ptr[i], 7);
    sl_free(ptr);
}

static void test_strndup_copies_bytes_and_ends_them(void **state)
{
    (void)state;
    char *copy = sl_strndup("a\0bc", 3);
    assert_memory_equal(copy, "a\0b\0", 4);
    sl_free(copy);
    copy = sl_strndup(NULL, 0);
    assert_string_equal(copy, "");
    sl_free(copy);
    copy = sl_strdup("text");
    assert_string_equal(copy, "text");
    sl_free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_assert_names_expression_and_dies),
        cmocka_unit_test(test_check_refuses_wrong_magic),
        cmocka_unit_test(test_calloc_overflow_aborts),
        cmocka_unit_test(test_zero_bytes_give_distinct_pointers),
        cmocka_unit_test(test_calloc_is_zeroed_and_realloc_keeps),
        cmocka_unit_test(test_strndup_copies_bytes_and_ends_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
