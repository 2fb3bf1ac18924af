/* SPDX-License-Identifier: Apache-2.0
 *
 * db_fixture: see db_fixture.h.
 */
#include "db_fixture.h"

#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"

#define WAIT_S 60

const char *fx_adapter = "sqlite";

bool fx_is_postgres(void)
{
    return strcmp(fx_adapter, "postgres") == 0;
}

double fx_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static const char *server_url(void)
{
    const char *url = getenv("SLUICE_TEST_POSTGRES_URI");
    assert_non_null(url);
    return url;
}

/* A schema of its own: the option of the JDBC driver for it is translated on the way. */
static void make_schema(db_fixture *fx)
{
    static unsigned made;
    char name[48], sql[96];
    snprintf(name, sizeof(name), "t%d_%u", (int)getpid(), made++);
    snprintf(sql, sizeof(sql), "CREATE SCHEMA %s", name);
    fx->options.url = server_url();
    fx->options.migrate_to = 1;
    fx_open(fx);
    fx_do(fx, sql);
    fx_close(fx);
    fx->options.migrate_to = 0;
    size_t size = strlen(server_url()) + sizeof(name) + 32;
    fx->url = sl_alloc(size);
    snprintf(fx->url, size, "jdbc:%s?currentSchema=%s", server_url(), name);
    fx->options.url = fx->url;
}

db_fixture *fx_new(void)
{
    db_fixture *fx = sl_calloc(1, sizeof(*fx));
    pthread_mutex_init(&fx->lock, NULL);
    pthread_cond_init(&fx->changed, NULL);
    sl_clock_init(&fx->ck);
    SL_TEST_OK(sl_loop_new("asker", &fx->ck, &fx->lp));
    SL_TEST_OK(sl_loop_start(fx->lp));
    snprintf(fx->dir, sizeof(fx->dir), "/tmp/sl-db-XXXXXX");
    assert_non_null(mkdtemp(fx->dir));
    fx->options = (sl_db_options){.dir = fx->dir,
                                  .fsync = true,
                                  .user = "postgres",
                                  .password = "not used: the URL has one",
                                  .connections = 4,
                                  .start_wait_ms = 20000};
    if (fx_is_postgres())
        make_schema(fx);
    return fx;
}

void fx_free(db_fixture *fx)
{
    fx_close(fx);
    sl_loop_stop(fx->lp);
    sl_loop_join(fx->lp);
    sl_loop_free(&fx->lp);
    char command[96];
    snprintf(command, sizeof(command), "rm -rf %s", fx->dir);
    assert_int_equal(system(command), 0);
    for (size_t i = 0; i < fx->last.result_count; i++)
        sl_free((void *)fx->last.results[i].cells);
    sl_free(fx->url);
    pthread_cond_destroy(&fx->changed);
    pthread_mutex_destroy(&fx->lock);
    sl_free(fx);
}

sl_err fx_try_open(db_fixture *fx, char **why)
{
    *why = NULL;
    return sl_db_open(fx_is_postgres() ? &sl_db_postgres_ops : &sl_db_sqlite_ops, &fx->options,
                      &fx->db, why);
}

void fx_open(db_fixture *fx)
{
    char *why = NULL;
    sl_err err = fx_try_open(fx, &why);
    if (err != SL_OK)
        print_error("open: %s\n", why == NULL ? "" : why);
    SL_TEST_OK(err);
}

void fx_close(db_fixture *fx)
{
    sl_db_close(&fx->db);
}

void fx_wait_health(db_fixture *fx, bool healthy)
{
    const char *why = NULL;
    for (double until = fx_seconds() + WAIT_S; sl_db_is_healthy(fx->db, &why) != healthy;) {
        assert_true(fx_seconds() < until);
        usleep(5000);
    }
}

/* ---- answers */

static void copy_result(sl_db_result *to, const sl_db_result *from)
{
    *to = *from;
    size_t cells = from->row_count * from->column_count, bytes = 0;
    for (size_t i = 0; i < cells; i++)
        bytes += from->cells[i].bytes.len;
    sl_db_value *copy = sl_alloc(cells * sizeof(*copy) + bytes + 1);
    uint8_t *at = (uint8_t *)(copy + cells);
    for (size_t i = 0; i < cells; i++) {
        copy[i] = from->cells[i];
        if (copy[i].bytes.len > 0)
            memcpy(at, copy[i].bytes.ptr, copy[i].bytes.len);
        copy[i].bytes.ptr = at;
        at += copy[i].bytes.len;
    }
    to->cells = copy;
}

void fx_count(db_fixture *fx)
{
    pthread_mutex_lock(&fx->lock);
    fx->answers++;
    pthread_cond_broadcast(&fx->changed);
    pthread_mutex_unlock(&fx->lock);
}

static void wait_until_at_least(db_fixture *fx, const size_t *counter, size_t wanted)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    int rc = 0;
    pthread_mutex_lock(&fx->lock);
    while (*counter < wanted && rc == 0)
        rc = pthread_cond_timedwait(&fx->changed, &fx->lock, &until);
    pthread_mutex_unlock(&fx->lock);
    assert_int_equal(rc, 0);
}

void fx_wait(db_fixture *fx, size_t answers)
{
    wait_until_at_least(fx, &fx->answers, answers);
}

static void on_answer(void *arg, const sl_db_done *done)
{
    db_fixture *fx = arg;
    db_answer *an = &fx->last;
    an->err = done->err;
    an->failed_at = done->failed_at;
    snprintf(an->why, sizeof(an->why), "%s", done->why);
    an->on_loop = sl_loop_is_current(fx->lp);
    an->result_count = done->result_count;
    for (size_t i = 0; i < done->result_count; i++)
        copy_result(&an->results[i], &done->results[i]);
    pthread_mutex_lock(&fx->lock);
    fx->asked_answers++;
    pthread_cond_broadcast(&fx->changed);
    pthread_mutex_unlock(&fx->lock);
}

const db_answer *fx_ask(db_fixture *fx, const sl_db_stmt *stmts, size_t count, unsigned flags)
{
    for (size_t i = 0; i < fx->last.result_count; i++)
        sl_free((void *)fx->last.results[i].cells);
    fx->last.result_count = 0;
    size_t want = ++fx->asked;
    SL_TEST_OK(sl_db_exec(fx->db, fx->lp, stmts, count, flags, on_answer, fx));
    wait_until_at_least(fx, &fx->asked_answers, want);
    assert_true(fx->last.on_loop);
    return &fx->last;
}

const db_answer *fx_text(db_fixture *fx, unsigned flags, const char *sql, const char *one,
                         const char *two, const char *three)
{
    const char *texts[] = {one, two, three};
    sl_db_value params[3];
    size_t count = 0;
    while (count < 3 && texts[count] != NULL) {
        params[count] = SL_DB_P_TEXT(sl_slice_str(texts[count]));
        count++;
    }
    return fx_ask(fx, &(sl_db_stmt){sql, params, count}, 1, flags);
}

void fx_do(db_fixture *fx, const char *sql)
{
    const db_answer *an = fx_text(fx, 0, sql, NULL, NULL, NULL);
    if (an->err != SL_OK)
        print_error("%s: %s\n", sql, an->why);
    SL_TEST_OK(an->err);
}

int64_t fx_int(db_fixture *fx, const char *sql)
{
    const db_answer *an = fx_text(fx, SL_DB_READ, sql, NULL, NULL, NULL);
    SL_TEST_OK(an->err);
    assert_int_equal(an->results[0].row_count, 1);
    return sl_db_get_int(&an->results[0], 0, 0);
}

void fx_server(const char *command)
{
    const char *dir = getenv("SLUICE_TEST_POSTGRES_DIR");
    const char *port = getenv("SLUICE_TEST_POSTGRES_PORT");
    if (dir == NULL || port == NULL) {
        print_message("the server is somebody else's: it is not stopped or frozen\n");
        skip();
        return; // skip() does not return; the analyser does not know
    }
    char line[512];
    snprintf(line, sizeof(line), "tests/support/services/postgres.sh %s %s %s >/dev/null", command,
             dir, strcmp(command, "start") == 0 ? port : "");
    int status = system(line);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
