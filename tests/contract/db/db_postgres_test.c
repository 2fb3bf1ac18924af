/* SPDX-License-Identifier: Apache-2.0
 *
 * db_postgres: a PostgreSQL that is killed, frozen, away at start, that closes connections or
 * refuses them. No loop ever waits, nothing completes twice, and all of it heals without a restart
 * of ours.
 */
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/logger.h"
#include "db_fixture.h"

#define UPSERT                                                                                     \
    "INSERT INTO pairs (k, v) VALUES ($1, $2) ON CONFLICT (k) DO UPDATE SET v = excluded.v"
#define INSERT "INSERT INTO pairs (k, v) VALUES ($1, $2)"
#define COUNT  "SELECT count(*) FROM pairs"
#define LOAD   4000

static int setup(void **state)
{
    db_fixture *fx = fx_new();
    fx_open(fx);
    fx_do(fx, "CREATE TABLE pairs (k TEXT NOT NULL PRIMARY KEY, v TEXT)");
    *state = fx;
    return 0;
}

/* Whatever a failed test left behind: the next one needs a server. */
static int teardown(void **state)
{
    if (getenv("SLUICE_TEST_POSTGRES_DIR") != NULL) {
        int status = system("tests/support/services/postgres.sh continue "
                            "\"$SLUICE_TEST_POSTGRES_DIR\" 2>/dev/null");
        (void)status; // there may be no server to continue
        fx_server("start");
    }
    fx_free(*state);
    return 0;
}

/* ---- killed under load */

typedef struct wish {
    db_fixture *fx;
    _Atomic int calls;
    sl_err err;
} wish;

static void on_wish(void *arg, const sl_db_done *done)
{
    wish *ws = arg;
    ws->err = done->err;
    atomic_fetch_add(&ws->calls, 1);
    fx_count(ws->fx);
}

static void ask_load(db_fixture *fx, wish *wishes, size_t from, size_t to, bool idempotent)
{
    for (size_t i = from; i < to; i++) {
        char key[16];
        snprintf(key, sizeof(key), "%zu", i);
        wishes[i].fx = fx;
        const sl_db_value row[] = {SL_DB_P_TEXT(sl_slice_str(key)),
                                   SL_DB_P_TEXT(sl_slice_str("v"))};
        SL_TEST_OK(sl_db_exec(fx->db, fx->lp, &(sl_db_stmt){idempotent ? UPSERT : INSERT, row, 2},
                              1, idempotent ? SL_DB_IDEMPOTENT : 0, on_wish, &wishes[i]));
    }
}

static bool is_stored(db_fixture *fx, size_t number)
{
    char key[16];
    snprintf(key, sizeof(key), "%zu", number);
    const db_answer *an =
        fx_text(fx, SL_DB_READ, "SELECT count(*) FROM pairs WHERE k = $1", key, NULL, NULL);
    SL_TEST_OK(an->err);
    return sl_db_get_int(&an->results[0], 0, 0) == 1;
}

static void kill_under_load(db_fixture *fx, bool idempotent)
{
    wish *wishes = sl_calloc(LOAD, sizeof(*wishes));
    ask_load(fx, wishes, 0, LOAD / 2, idempotent);
    fx_wait(fx, 20); // it is in the middle of it
    fx_server("kill");
    ask_load(fx, wishes, LOAD / 2, LOAD, idempotent);
    fx_wait_health(fx, false);
    fx_server("start");
    fx_wait(fx, LOAD);
    fx_wait_health(fx, true);
    size_t unknown = 0, good = 0;
    for (size_t i = 0; i < LOAD; i++) {
        assert_int_equal(wishes[i].calls, 1);
        if (wishes[i].err == SL_OK)
            good++;
        else
            SL_TEST_ERR(wishes[i].err, SL_ECONN); // and nothing else
        unknown += wishes[i].err == SL_ECONN;
    }
    // one write of a loop is under way at a time: at most that one is in doubt
    assert_true(unknown <= (idempotent ? 0 : 1));
    int64_t stored = fx_int(fx, COUNT);
    assert_true(stored == (int64_t)good || stored == (int64_t)(good + unknown));
    for (size_t i = 0; i < LOAD; i += 37)
        assert_true(is_stored(fx, i) || wishes[i].err != SL_OK);
    sl_free(wishes);
}

static void test_postgres_killed_under_load_loses_nothing(void **state)
{
    kill_under_load(*state, true);
}

static void test_postgres_killed_never_runs_a_write_twice(void **state)
{
    kill_under_load(*state, false); // a second run would be a unique violation
}

/* ---- frozen */

typedef struct ticker {
    sl_timer timer;
    _Atomic unsigned ticks;
    _Atomic int64_t worst_ms; /* between two of them */
    sl_mono_ms last;
    sl_loop *lp;
    sl_clock *ck;
} ticker;

static void on_tick(void *arg)
{
    ticker *tk = arg;
    sl_mono_ms now = sl_clock_mono(tk->ck);
    if (tk->last != 0 && now - tk->last > atomic_load(&tk->worst_ms))
        atomic_store(&tk->worst_ms, now - tk->last);
    tk->last = now;
    atomic_fetch_add(&tk->ticks, 1);
}

static void start_ticks(void *arg)
{
    ticker *tk = arg;
    sl_timer_init(&tk->timer, tk->lp, on_tick, tk);
    sl_timer_start(&tk->timer, 5, 5);
}

static void stop_ticks(void *arg)
{
    sl_timer_fini(&((ticker *)arg)->timer);
}

typedef struct burst {
    db_fixture *fx;
    wish *wishes;
    sl_err err;
} burst;

/* On the loop: asking must not wait either. */
static void ask_on_loop(void *arg)
{
    burst *bt = arg;
    for (size_t i = 0; i < 500 && bt->err == SL_OK; i++) {
        bt->wishes[i].fx = bt->fx;
        bt->err = sl_db_exec(bt->fx->db, bt->fx->lp, &(sl_db_stmt){.sql = COUNT}, 1,
                             i % 2 == 0 ? SL_DB_READ : 0, on_wish, &bt->wishes[i]);
    }
}

static void test_postgres_frozen_stops_no_loop(void **state)
{
    db_fixture *fx = *state;
    fx_close(fx);
    fx->options.wait_ms = 4000;
    fx->options.statement_ms = 3000;
    fx->options.connect_ms = 1000;
    fx_open(fx);
    ticker tk = {.lp = fx->lp, .ck = &fx->ck};
    assert_true(sl_loop_call_wait(fx->lp, start_ticks, &tk));
    fx_server("freeze");
    wish *wishes = sl_calloc(500, sizeof(*wishes));
    burst bt = {.fx = fx, .wishes = wishes};
    assert_true(sl_loop_call_wait(fx->lp, ask_on_loop, &bt));
    SL_TEST_OK(bt.err);
    fx_wait_health(fx, false);
    fx_wait(fx, 500); // all of them come home though nobody serves them
    size_t expired = 0;
    for (size_t i = 0; i < 500; i++) {
        assert_int_equal(wishes[i].calls, 1);
        assert_true(wishes[i].err == SL_EAGAIN || wishes[i].err == SL_ECONN);
        expired += wishes[i].err == SL_EAGAIN;
    }
    assert_true(expired > 480);
    assert_true(sl_db_stat(fx->db, SL_DB_STAT_EXPIRED) > 480);
    assert_true(tk.ticks > 100);
    assert_true(tk.worst_ms < 1000); // seconds of frozen server never showed on the loop
    fx_server("continue");
    fx_wait_health(fx, true);
    SL_TEST_OK(fx_text(fx, 0, UPSERT, "after", "v", NULL)->err);
    assert_true(sl_loop_call_wait(fx->lp, stop_ticks, &tk));
    sl_free(wishes);
}

/* ---- away at start */

static void test_postgres_away_at_start_is_waited_for(void **state)
{
    db_fixture *fx = *state;
    fx_close(fx);
    fx_server("stop");
    fx_open(fx);
    const char *why = NULL;
    assert_false(sl_db_is_healthy(fx->db, &why));
    assert_non_null(strstr(why, "PostgreSQL"));
    wish *wishes = sl_calloc(100, sizeof(*wishes));
    ask_load(fx, wishes, 0, 100, true);
    fx_server("start");
    fx_wait(fx, 100);
    for (size_t i = 0; i < 100; i++)
        SL_TEST_OK(wishes[i].err);
    assert_true(sl_db_is_healthy(fx->db, &why));
    sl_free(wishes);
}

static void test_postgres_away_lets_requests_go_after_their_time(void **state)
{
    db_fixture *fx = *state;
    fx_close(fx);
    fx_server("stop");
    fx->options.wait_ms = 300;
    fx_open(fx);
    const db_answer *an = fx_text(fx, 0, UPSERT, "k", "v", NULL);
    SL_TEST_ERR(an->err, SL_EAGAIN);
    assert_true(an->why[0] != 0);
    fx_server("start");
    fx_wait_health(fx, true);
    assert_int_equal(fx_int(fx, COUNT), 0); // given up is never run later
}

static void test_postgres_close_does_not_wait_for_a_server_that_is_away(void **state)
{
    db_fixture *fx = *state;
    wish *wishes = sl_calloc(100, sizeof(*wishes));
    fx_server("freeze");
    ask_load(fx, wishes, 0, 100, true);
    double start = fx_seconds();
    fx_close(fx);
    assert_true(fx_seconds() - start < 20); // the grace is two seconds, statements could have 30
    fx_wait(fx, 100);
    for (size_t i = 0; i < 100; i++)
        assert_true(wishes[i].calls == 1 && wishes[i].err != SL_OK);
    sl_free(wishes);
}

/* ---- connections and rights */

static void test_postgres_replaces_connections_that_the_server_closed(void **state)
{
    db_fixture *fx = *state;
    for (int round = 0; round < 5; round++) {
        SL_TEST_OK(fx_text(fx, SL_DB_IDEMPOTENT, UPSERT, "k", "v", NULL)->err);
        const db_answer *an =
            fx_text(fx, SL_DB_IDEMPOTENT,
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'sluice-broker' AND pid <> pg_backend_pid()",
                    NULL, NULL, NULL);
        SL_TEST_OK(an->err);
        SL_TEST_OK(fx_text(fx, SL_DB_IDEMPOTENT, UPSERT, "k", "w", NULL)->err);
        assert_int_equal(fx_int(fx, COUNT), 1);
    }
    fx_wait_health(fx, true);
}

typedef struct seen_lines {
    char text[32768];
    size_t len;
    pthread_mutex_t lock;
} seen_lines;

static void remember(void *arg, const char *line)
{
    seen_lines *sn = arg;
    pthread_mutex_lock(&sn->lock);
    size_t room = sizeof(sn->text) - sn->len;
    int len = snprintf(sn->text + sn->len, room, "%s\n", line);
    sn->len += len < 0 ? 0 : ((size_t)len < room ? (size_t)len : room - 1);
    pthread_mutex_unlock(&sn->lock);
}

/* Opens with another user, password or database in the URL; *why is the health word. */
static void open_with(db_fixture *fx, const char *from, const char *to, seen_lines *sn,
                      const char **why)
{
    fx_close(fx);
    char *url = sl_alloc(strlen(fx->url) + strlen(to) + 1);
    const char *at = strstr(fx->url, from);
    assert_non_null(at);
    snprintf(url, strlen(fx->url) + strlen(to) + 1, "%.*s%s%s", (int)(at - fx->url), fx->url, to,
             at + strlen(from));
    fx->options.url = url;
    pthread_mutex_init(&sn->lock, NULL);
    sl_logger_set_sink(remember, sn);
    char *text = NULL;
    sl_err err = fx_try_open(fx, &text);
    sl_free(text);
    SL_TEST_OK(err); // it may be mended while we wait
    assert_false(sl_db_is_healthy(fx->db, why));
    fx_close(fx);
    sl_logger_set_sink(NULL, NULL);
    sl_free(url);
    fx->options.url = fx->url;
    fx_open(fx);
}

static void test_postgres_refused_password_is_said_without_it(void **state)
{
    db_fixture *fx = *state;
    static seen_lines sn;
    const char *why = NULL;
    open_with(fx, "postgres:", "postgres:wrong%2Dsecret", &sn, &why);
    assert_non_null(strstr(why, "password"));
    assert_non_null(strstr(sn.text, "DB-UNAVAILABLE"));
    assert_null(strstr(sn.text, "wrong-secret"));
    assert_null(strstr(sn.text, "wrong%2Dsecret"));
    assert_null(strstr(sn.text, "p%26ss"));
    assert_null(strstr(sn.text, "p&ss"));
}

static void test_postgres_missing_database_is_named(void **state)
{
    db_fixture *fx = *state;
    static seen_lines sn;
    const char *why = NULL;
    open_with(fx, "/postgres?", "/no_such_db?", &sn, &why);
    assert_non_null(strstr(why, "no database of that name"));
    assert_non_null(strstr(sn.text, "no_such_db"));
    assert_null(strstr(sn.text, "p%26ss"));
}

static void test_postgres_bad_url_is_refused_without_quoting_it(void **state)
{
    db_fixture *fx = *state;
    fx_close(fx);
    static const char *const BAD[] = {"mysql://u:hidden@h/db", "postgresql://u:hid%zz@h/db",
                                      "postgresql://u:hidden@h:port:2/db", ""};
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        fx->options.url = BAD[i];
        char *why = NULL;
        SL_TEST_ERR(fx_try_open(fx, &why), SL_EINVAL);
        assert_non_null(strstr(why, "SPRING_DATASOURCE_URL"));
        assert_null(strstr(why, "hid"));
        sl_free(why);
    }
    fx->options.url = fx->url;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    fx_adapter = "postgres";
    const struct CMUnitTest tests[] = {
        CASE(test_postgres_killed_under_load_loses_nothing),
        CASE(test_postgres_killed_never_runs_a_write_twice),
        CASE(test_postgres_frozen_stops_no_loop),
        CASE(test_postgres_away_at_start_is_waited_for),
        CASE(test_postgres_away_lets_requests_go_after_their_time),
        CASE(test_postgres_close_does_not_wait_for_a_server_that_is_away),
        CASE(test_postgres_replaces_connections_that_the_server_closed),
        CASE(test_postgres_refused_password_is_said_without_it),
        CASE(test_postgres_missing_database_is_named),
        CASE(test_postgres_bad_url_is_refused_without_quoting_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
