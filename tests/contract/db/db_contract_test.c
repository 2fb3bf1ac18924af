/* SPDX-License-Identifier: Apache-2.0
 *
 * db_contract: the contract of the metadata port (store/db.h), unchanged on both adapters; the word
 * of the adapter is the program's argument.
 */
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "db_fixture.h"
#include "loop/thread.h"
#include "store/db_migrations.h"

#define PAIRS    "CREATE TABLE pairs (k TEXT NOT NULL PRIMARY KEY, v TEXT)"
#define INSERT   "INSERT INTO pairs (k, v) VALUES ($1, $2)"
#define COUNT    "SELECT count(*) FROM pairs"
#define BIG      (4u << 20)
#define MANY     400
#define ASKERS   4
#define PER_LOOP 200

static int setup(void **state)
{
    db_fixture *fx = fx_new();
    fx_open(fx);
    fx_do(fx, PAIRS);
    *state = fx;
    return 0;
}

static int setup_closed(void **state)
{
    *state = fx_new();
    return 0;
}

static int teardown(void **state)
{
    fx_free(*state);
    return 0;
}

/* ---- statements and values */

static void test_db_gives_back_what_was_stored(void **state)
{
    db_fixture *fx = *state;
    fx_do(fx, "CREATE TABLE kinds (i BIGINT, t TEXT, b BYTEA, f BOOLEAN, d DOUBLE PRECISION)");
    static const uint8_t bytes[] = {0, 1, 0, '\\', '\'', 0xff, 0};
    const char *text = "a'b\"c\\d \n \xc3\xa9 \xf0\x9f\x98\x80 $1 %s";
    const sl_db_value row[] = {SL_DB_P_INT(INT64_MIN), SL_DB_P_TEXT(sl_slice_str(text)),
                               SL_DB_P_BYTES(sl_slice_of(bytes, sizeof(bytes))), SL_DB_P_BOOL(true),
                               SL_DB_P_DOUBLE(0.1)};
    const db_answer *an =
        fx_ask(fx, &(sl_db_stmt){"INSERT INTO kinds VALUES ($1, $2, $3, $4, $5)", row, 5}, 1, 0);
    SL_TEST_OK(an->err);
    assert_int_equal(an->results[0].affected, 1);
    an = fx_text(fx, SL_DB_READ, "SELECT * FROM kinds", NULL, NULL, NULL);
    const sl_db_result *res = &an->results[0];
    assert_int_equal(res->row_count, 1);
    assert_int_equal(res->column_count, 5);
    assert_int_equal(res->affected, 0);
    assert_true(sl_db_get_int(res, 0, 0) == INT64_MIN);
    assert_true(sl_slice_equal(sl_db_get_slice(res, 0, 1), sl_slice_str(text)));
    assert_int_equal(sl_db_cell(res, 0, 2)->type, SL_DB_BYTES);
    assert_true(sl_slice_equal(sl_db_get_slice(res, 0, 2), sl_slice_of(bytes, sizeof(bytes))));
    assert_true(sl_db_get_bool(res, 0, 3));
    assert_true(sl_db_get_double(res, 0, 4) == 0.1);
}

static void test_db_keeps_null_apart_from_empty(void **state)
{
    db_fixture *fx = *state;
    fx_do(fx, "CREATE TABLE kinds (t TEXT, b BYTEA, n BIGINT)");
    const sl_db_value nulls[] = {SL_DB_P_NULL, SL_DB_P_NULL, SL_DB_P_NULL};
    const sl_db_value empties[] = {SL_DB_P_TEXT(sl_slice_str("")),
                                   SL_DB_P_BYTES(sl_slice_of(NULL, 0)), SL_DB_P_INT(0)};
    const sl_db_stmt stmts[] = {{"INSERT INTO kinds VALUES ($1, $2, $3)", nulls, 3},
                                {"INSERT INTO kinds VALUES ($1, $2, $3)", empties, 3},
                                {"SELECT * FROM kinds WHERE n IS NULL", NULL, 0},
                                {"SELECT * FROM kinds WHERE n = 0", NULL, 0}};
    const db_answer *an = fx_ask(fx, stmts, 4, 0);
    SL_TEST_OK(an->err);
    for (size_t i = 0; i < 3; i++) {
        assert_true(sl_db_is_null(&an->results[2], 0, i));
        assert_false(sl_db_is_null(&an->results[3], 0, i));
    }
    assert_int_equal(sl_db_cell(&an->results[3], 0, 0)->type, SL_DB_TEXT);
    assert_int_equal(sl_db_cell(&an->results[3], 0, 1)->type, SL_DB_BYTES);
}

static void test_db_stores_big_values(void **state)
{
    db_fixture *fx = *state;
    fx_do(fx, "CREATE TABLE big (b BYTEA)");
    uint8_t *bytes = sl_alloc(BIG);
    for (size_t i = 0; i < BIG; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 251);
    const sl_db_value row[] = {SL_DB_P_BYTES(sl_slice_of(bytes, BIG))};
    SL_TEST_OK(fx_ask(fx, &(sl_db_stmt){"INSERT INTO big VALUES ($1)", row, 1}, 1, 0)->err);
    const db_answer *an = fx_text(fx, SL_DB_READ, "SELECT b FROM big", NULL, NULL, NULL);
    SL_TEST_OK(an->err);
    assert_true(sl_slice_equal(sl_db_get_slice(&an->results[0], 0, 0), sl_slice_of(bytes, BIG)));
    sl_free(bytes);
}

static void test_db_refuses_results_over_the_limit(void **state)
{
    db_fixture *fx = *state;
    fx_close(fx);
    fx->options.max_result_bytes = 65536;
    fx_open(fx);
    char *text = sl_alloc(40001);
    memset(text, 'x', 40000);
    text[40000] = 0;
    SL_TEST_OK(fx_text(fx, 0, INSERT, "a", text, NULL)->err);
    SL_TEST_OK(fx_text(fx, SL_DB_READ, "SELECT * FROM pairs", NULL, NULL, NULL)->err);
    // what a change gives back counts too, and then the change did not happen
    const char *twice = "INSERT INTO pairs (k, v) VALUES ($1, $2), ('c', $2) RETURNING v";
    SL_TEST_ERR(fx_text(fx, 0, twice, "b", text, NULL)->err, SL_ETOOBIG);
    assert_int_equal(fx_int(fx, COUNT), 1);
    SL_TEST_OK(fx_text(fx, 0, INSERT, "b", text, NULL)->err);
    SL_TEST_ERR(fx_text(fx, SL_DB_READ, "SELECT * FROM pairs", NULL, NULL, NULL)->err, SL_ETOOBIG);
    assert_int_equal(fx_int(fx, COUNT), 2);
    sl_free(text);
}

static void test_db_takes_a_parameter_twice_and_out_of_order(void **state)
{
    db_fixture *fx = *state;
    SL_TEST_OK(
        fx_text(fx, 0, "INSERT INTO pairs (v, k) VALUES ($2, $1)", "key", "value", NULL)->err);
    const db_answer *an = fx_text(
        fx, SL_DB_READ, "SELECT v FROM pairs WHERE k = $1 OR k = $2 OR v = $1", "key", "x", NULL);
    assert_int_equal(an->results[0].row_count, 1);
    SL_TEST_SLICE(sl_db_get_slice(&an->results[0], 0, 0), "value");
}

static void test_db_never_runs_text_of_parameters(void **state)
{
    db_fixture *fx = *state;
    const char *evil = "x'; DROP TABLE pairs; --";
    SL_TEST_OK(fx_text(fx, 0, INSERT, evil, evil, NULL)->err);
    const db_answer *an =
        fx_text(fx, SL_DB_READ, "SELECT v FROM pairs WHERE k = $1", evil, NULL, NULL);
    assert_true(sl_slice_equal(sl_db_get_slice(&an->results[0], 0, 0), sl_slice_str(evil)));
}

static void test_db_upserts_and_returns(void **state)
{
    db_fixture *fx = *state;
    const char *upsert = INSERT " ON CONFLICT (k) DO UPDATE SET v = excluded.v RETURNING v";
    for (int i = 0; i < 2; i++) {
        const db_answer *an = fx_text(fx, 0, upsert, "k", i == 0 ? "one" : "two", NULL);
        SL_TEST_OK(an->err);
        assert_int_equal(an->results[0].affected, 1);
        assert_true(sl_slice_equal(sl_db_get_slice(&an->results[0], 0, 0),
                                   sl_slice_str(i == 0 ? "one" : "two")));
    }
    assert_int_equal(fx_int(fx, COUNT), 1);
}

/* ---- errors */

static void test_db_names_a_unique_violation(void **state)
{
    db_fixture *fx = *state;
    SL_TEST_OK(fx_text(fx, 0, INSERT, "k", "v", NULL)->err);
    const db_answer *an = fx_text(fx, 0, INSERT, "k", "w", NULL);
    SL_TEST_ERR(an->err, SL_EEXIST);
    assert_int_equal(an->failed_at, 0);
    assert_true(an->why[0] != 0);
    assert_int_equal(an->result_count, 0);
}

static void test_db_names_wrong_statements(void **state)
{
    db_fixture *fx = *state;
    static const char *const WRONG[] = {
        "SELEC 1", "SELECT * FROM nowhere", "SELECT 1; SELECT 2",
        "INSERT INTO pairs (k) VALUES (NULL)", // a constraint, not a unique one
    };
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(WRONG[0]); i++)
        SL_TEST_ERR(fx_text(fx, 0, WRONG[i], NULL, NULL, NULL)->err, SL_EINVAL);
    SL_TEST_ERR(fx_text(fx, 0, INSERT, "too few", NULL, NULL)->err, SL_EINVAL);
    SL_TEST_ERR(fx_text(fx, 0, INSERT, "too", "many", "of them")->err, SL_EINVAL);
    fx_do(fx, "DELETE FROM pairs");
    const char *why;
    assert_true(sl_db_is_healthy(fx->db, &why));
}

static void never(void *arg, const sl_db_done *done)
{
    (void)done;
    atomic_fetch_add((atomic_int *)arg, 1);
}

static void test_db_refuses_bad_requests_at_once(void **state)
{
    db_fixture *fx = *state;
    atomic_int called = 0;
    const sl_db_value nul[] = {SL_DB_P_TEXT(sl_slice_of("a\0b", 3)),
                               SL_DB_P_TEXT(sl_slice_str("x"))};
    const sl_db_value latin[] = {SL_DB_P_TEXT(sl_slice_str("\xe9")),
                                 SL_DB_P_TEXT(sl_slice_str("x"))};
    sl_db_stmt many[SL_DB_MAX_STATEMENTS + 1];
    for (size_t i = 0; i < SL_DB_MAX_STATEMENTS + 1; i++)
        many[i] = (sl_db_stmt){.sql = "SELECT 1"};
    SL_TEST_ERR(sl_db_exec(fx->db, fx->lp, many, 0, 0, never, &called), SL_EINVAL);
    SL_TEST_ERR(sl_db_exec(fx->db, fx->lp, many, SL_DB_MAX_STATEMENTS + 1, 0, never, &called),
                SL_EINVAL);
    SL_TEST_ERR(sl_db_exec(fx->db, fx->lp, &(sl_db_stmt){INSERT, nul, 2}, 1, 0, never, &called),
                SL_EINVAL);
    SL_TEST_ERR(sl_db_exec(fx->db, fx->lp, &(sl_db_stmt){INSERT, latin, 2}, 1, 0, never, &called),
                SL_EINVAL);
    SL_TEST_OK(fx_ask(fx, many, SL_DB_MAX_STATEMENTS, 0)->err);
    assert_int_equal(called, 0);
}

/* ---- transactions */

static void test_db_transaction_is_all_or_nothing(void **state)
{
    db_fixture *fx = *state;
    const sl_db_value a[] = {SL_DB_P_TEXT(sl_slice_str("a")), SL_DB_P_TEXT(sl_slice_str("1"))};
    const sl_db_value b[] = {SL_DB_P_TEXT(sl_slice_str("b")), SL_DB_P_TEXT(sl_slice_str("2"))};
    const sl_db_stmt bad[] = {{INSERT, a, 2}, {INSERT, b, 2}, {INSERT, a, 2}};
    const db_answer *an = fx_ask(fx, bad, 3, 0);
    SL_TEST_ERR(an->err, SL_EEXIST);
    assert_int_equal(an->failed_at, 2);
    assert_int_equal(fx_int(fx, COUNT), 0);
    an = fx_ask(fx, bad, 2, 0);
    SL_TEST_OK(an->err);
    assert_int_equal(an->result_count, 2);
    assert_int_equal(fx_int(fx, COUNT), 2);
}

static void test_db_transaction_sees_itself(void **state)
{
    db_fixture *fx = *state;
    const sl_db_value a[] = {SL_DB_P_TEXT(sl_slice_str("a")), SL_DB_P_TEXT(sl_slice_str("1"))};
    const sl_db_stmt stmts[] = {{INSERT, a, 2},
                                {"UPDATE pairs SET v = '2'", NULL, 0},
                                {"SELECT v FROM pairs", NULL, 0},
                                {"DELETE FROM pairs WHERE k = 'nothing'", NULL, 0}};
    const db_answer *an = fx_ask(fx, stmts, 4, 0);
    SL_TEST_OK(an->err);
    assert_int_equal(an->results[1].affected, 1);
    SL_TEST_SLICE(sl_db_get_slice(&an->results[2], 0, 0), "2");
    assert_int_equal(an->results[3].affected, 0);
}

typedef struct outcome {
    db_fixture *fx;
    size_t want; /* its number in the order of asking */
    atomic_size_t *next;
    sl_err err;
    bool in_order;
} outcome;

static void on_outcome(void *arg, const sl_db_done *done)
{
    outcome *oc = arg;
    oc->err = done->err;
    oc->in_order = atomic_fetch_add(oc->next, 1) == oc->want;
    fx_count(oc->fx);
}

/* Every third fails; those around it share its transaction on SQLite and must not notice. */
static void test_db_failure_of_one_leaves_the_others_alone(void **state)
{
    db_fixture *fx = *state;
    SL_TEST_OK(fx_text(fx, 0, INSERT, "taken", "x", NULL)->err);
    static outcome oc[MANY];
    static atomic_size_t next;
    atomic_store(&next, 0);
    size_t before = fx->answers;
    for (size_t i = 0; i < MANY; i++) {
        char key[16];
        snprintf(key, sizeof(key), "%zu", i);
        oc[i] = (outcome){.fx = fx, .want = i, .next = &next};
        const char *name = i % 3 == 0 ? "taken" : key;
        const sl_db_value row[] = {SL_DB_P_TEXT(sl_slice_str(name)),
                                   SL_DB_P_TEXT(sl_slice_str("v"))};
        SL_TEST_OK(
            sl_db_exec(fx->db, fx->lp, &(sl_db_stmt){INSERT, row, 2}, 1, 0, on_outcome, &oc[i]));
    }
    fx_wait(fx, before + MANY);
    size_t stored = 1;
    for (size_t i = 0; i < MANY; i++) {
        SL_TEST_ERR(oc[i].err, i % 3 == 0 ? SL_EEXIST : SL_OK);
        assert_true(oc[i].in_order);
        stored += i % 3 != 0;
    }
    assert_int_equal(fx_int(fx, COUNT), stored);
}

/* ---- order and askers */

static void test_db_writes_of_one_asker_keep_their_order(void **state)
{
    db_fixture *fx = *state;
    SL_TEST_OK(fx_text(fx, 0, INSERT, "k", "", NULL)->err);
    static outcome oc[MANY];
    static atomic_size_t next;
    atomic_store(&next, 0);
    size_t before = fx->answers;
    // each one works only directly after the one before it
    for (size_t i = 0; i < MANY; i++) {
        char was[16] = "", is[16];
        snprintf(is, sizeof(is), "%zu", i + 1);
        if (i > 0)
            snprintf(was, sizeof(was), "%zu", i);
        oc[i] = (outcome){.fx = fx, .want = i, .next = &next};
        const sl_db_value step[] = {SL_DB_P_TEXT(sl_slice_str(was)),
                                    SL_DB_P_TEXT(sl_slice_str(is))};
        SL_TEST_OK(
            sl_db_exec(fx->db, fx->lp,
                       &(sl_db_stmt){"UPDATE pairs SET v = $2 WHERE k = 'k' AND v = $1", step, 2},
                       1, 0, on_outcome, &oc[i]));
    }
    fx_wait(fx, before + MANY);
    for (size_t i = 0; i < MANY; i++)
        assert_true(oc[i].err == SL_OK && oc[i].in_order);
    const db_answer *an = fx_text(fx, SL_DB_READ, "SELECT v FROM pairs", NULL, NULL, NULL);
    char last[16];
    snprintf(last, sizeof(last), "%d", MANY);
    assert_true(sl_slice_equal(sl_db_get_slice(&an->results[0], 0, 0), sl_slice_str(last)));
}

static void test_db_never_completes_before_the_call_returns(void **state)
{
    db_fixture *fx = *state;
    sl_loop *manual;
    SL_TEST_OK(sl_loop_new_manual("hand", &fx->ck, &manual));
    atomic_int called = 0;
    SL_TEST_OK(sl_db_exec(fx->db, manual, &(sl_db_stmt){.sql = "SELECT 1"}, 1, SL_DB_READ, never,
                          &called));
    fx_int(fx, COUNT); // the request before it is through by now, or nearly
    assert_int_equal(called, 0);
    for (double until = fx_seconds() + 60; called == 0 && fx_seconds() < until;)
        sl_loop_turn(manual);
    assert_int_equal(called, 1);
    fx_close(fx); // no thread is inside a post any more
    sl_loop_free(&manual);
}

typedef struct asker {
    db_fixture *fx;
    sl_loop *lp;
    sl_thread *th;
    unsigned id;
    outcome oc[PER_LOOP];
    atomic_size_t next;
} asker;

static void ask_many(void *arg)
{
    asker *as = arg;
    for (unsigned i = 0; i < PER_LOOP; i++) {
        char key[32];
        snprintf(key, sizeof(key), "%u-%u", as->id, i);
        as->oc[i] = (outcome){.fx = as->fx, .want = i, .next = &as->next};
        const sl_db_value row[] = {SL_DB_P_TEXT(sl_slice_str(key)),
                                   SL_DB_P_TEXT(sl_slice_str("v"))};
        const sl_db_stmt both[] = {{INSERT, row, 2},
                                   {"UPDATE pairs SET v = 'w' WHERE k = $1", row, 1}};
        if (sl_db_exec(as->fx->db, as->lp, both, 2, 0, on_outcome, &as->oc[i]) != SL_OK)
            return; // the count will be missed
        if (i % 10 == 0 && sl_db_exec(as->fx->db, as->lp, &(sl_db_stmt){.sql = COUNT}, 1,
                                      SL_DB_READ, NULL, NULL) != SL_OK)
            return;
    }
}

static void test_db_serves_many_askers_at_once(void **state)
{
    db_fixture *fx = *state;
    asker *as = sl_calloc(ASKERS, sizeof(*as));
    size_t before = fx->answers;
    for (unsigned i = 0; i < ASKERS; i++) {
        as[i].fx = fx;
        as[i].id = i;
        SL_TEST_OK(sl_loop_new("asker-n", &fx->ck, &as[i].lp));
        SL_TEST_OK(sl_loop_start(as[i].lp));
        SL_TEST_OK(sl_thread_start("asks", ask_many, &as[i], &as[i].th));
    }
    for (unsigned i = 0; i < ASKERS; i++)
        sl_thread_join(&as[i].th);
    fx_wait(fx, before + ASKERS * PER_LOOP);
    fx_close(fx); // no thread is inside a post to a loop any more
    for (unsigned i = 0; i < ASKERS; i++) {
        for (unsigned k = 0; k < PER_LOOP; k++) {
            SL_TEST_OK(as[i].oc[k].err);
            assert_true(as[i].oc[k].in_order);
        }
        sl_loop_stop(as[i].lp);
        sl_loop_join(as[i].lp);
        sl_loop_free(&as[i].lp);
    }
    sl_free(as);
    fx_open(fx);
    assert_int_equal(fx_int(fx, "SELECT count(*) FROM pairs WHERE v = 'w'"), ASKERS * PER_LOOP);
}

static void test_db_read_sees_what_was_complete(void **state)
{
    db_fixture *fx = *state;
    for (int i = 1; i <= 50; i++) {
        char key[16];
        snprintf(key, sizeof(key), "%d", i);
        SL_TEST_OK(fx_text(fx, 0, INSERT, key, "v", NULL)->err);
        assert_int_equal(fx_int(fx, COUNT), i);
    }
}

static void test_db_reads_of_one_request_see_one_state(void **state)
{
    db_fixture *fx = *state;
    const sl_db_stmt twice[] = {{.sql = COUNT}, {.sql = COUNT}};
    size_t before = fx->answers;
    static outcome oc[MANY];
    static atomic_size_t next;
    for (size_t i = 0; i < MANY; i++) {
        char key[16];
        snprintf(key, sizeof(key), "%zu", i);
        oc[i] = (outcome){.fx = fx, .next = &next};
        const sl_db_value row[] = {SL_DB_P_TEXT(sl_slice_str(key)), SL_DB_P_NULL};
        SL_TEST_OK(
            sl_db_exec(fx->db, fx->lp, &(sl_db_stmt){INSERT, row, 2}, 1, 0, on_outcome, &oc[i]));
    }
    for (int i = 0; i < 20; i++) {
        const db_answer *an = fx_ask(fx, twice, 2, SL_DB_READ);
        SL_TEST_OK(an->err);
        assert_true(sl_db_get_int(&an->results[0], 0, 0) == sl_db_get_int(&an->results[1], 0, 0));
    }
    fx_wait(fx, before + MANY);
}

static void test_db_read_that_writes_is_refused_in_a_list(void **state)
{
    db_fixture *fx = *state;
    const sl_db_stmt stmts[] = {{.sql = COUNT}, {.sql = "INSERT INTO pairs (k) VALUES ('r')"}};
    SL_TEST_ERR(fx_ask(fx, stmts, 2, SL_DB_READ)->err, SL_EDENIED);
    assert_int_equal(fx_int(fx, COUNT), 0);
}

/* ---- bounds, time, end */

static void test_db_refuses_over_the_bound_and_goes_on(void **state)
{
    db_fixture *fx = *state;
    fx_close(fx);
    fx->options.max_queued = 10;
    fx_open(fx);
    static outcome oc[5000];
    static atomic_size_t next;
    size_t taken = 0, refused = 0, before = fx->answers;
    for (size_t i = 0; i < 5000; i++) {
        char key[16];
        snprintf(key, sizeof(key), "%zu", i);
        oc[i] = (outcome){.fx = fx, .next = &next};
        const sl_db_value row[] = {SL_DB_P_TEXT(sl_slice_str(key)), SL_DB_P_NULL};
        sl_err err =
            sl_db_exec(fx->db, fx->lp, &(sl_db_stmt){INSERT, row, 2}, 1, 0, on_outcome, &oc[i]);
        if (err == SL_OK)
            taken++;
        else
            SL_TEST_ERR(err, SL_ELIMIT);
        refused += err != SL_OK;
    }
    fx_wait(fx, before + taken);
    assert_true(refused > 0);
    assert_int_equal(sl_db_stat(fx->db, SL_DB_STAT_REFUSED), refused);
    assert_int_equal(fx_int(fx, COUNT), taken);
    // a request that could never fit
    uint8_t *bytes = sl_calloc(1, 66u << 20);
    const sl_db_value row[] = {SL_DB_P_BYTES(sl_slice_of(bytes, 66u << 20))};
    SL_TEST_ERR(sl_db_exec(fx->db, fx->lp, &(sl_db_stmt){"SELECT $1", row, 1}, 1, 0, NULL, NULL),
                SL_ELIMIT);
    sl_free(bytes);
    assert_int_equal(sl_db_stat(fx->db, SL_DB_STAT_QUEUED), 0);
}

#define SLOW                                                                                       \
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000000)"         \
    " SELECT count(*) FROM n"

static void test_db_ends_a_slow_statement(void **state)
{
    db_fixture *fx = *state;
    fx_close(fx);
    fx->options.statement_ms = 300;
    fx_open(fx);
    SL_TEST_ERR(fx_text(fx, SL_DB_READ, SLOW, NULL, NULL, NULL)->err, SL_ETIMEDOUT);
    // a write that is undone, and takes nothing of the others with it
    size_t before = fx->answers;
    static outcome oc[3];
    static atomic_size_t next;
    atomic_store(&next, 0);
    const char *const sql[] = {"INSERT INTO pairs (k) VALUES ('before')",
                               "INSERT INTO pairs (k) SELECT 'slow' || (" SLOW ")",
                               "INSERT INTO pairs (k) VALUES ('behind')"};
    for (size_t i = 0; i < 3; i++) {
        oc[i] = (outcome){.fx = fx, .want = i, .next = &next};
        SL_TEST_OK(
            sl_db_exec(fx->db, fx->lp, &(sl_db_stmt){.sql = sql[i]}, 1, 0, on_outcome, &oc[i]));
    }
    fx_wait(fx, before + 3);
    SL_TEST_OK(oc[0].err);
    SL_TEST_ERR(oc[1].err, SL_ETIMEDOUT);
    SL_TEST_OK(oc[2].err);
    assert_int_equal(fx_int(fx, COUNT), 2);
    const char *why;
    assert_true(sl_db_is_healthy(fx->db, &why));
}

static void test_db_close_completes_everything_once(void **state)
{
    db_fixture *fx = *state;
    static outcome oc[MANY];
    static atomic_size_t next;
    size_t before = fx->answers;
    for (size_t i = 0; i < MANY; i++) {
        char key[16];
        snprintf(key, sizeof(key), "%zu", i);
        oc[i] = (outcome){.fx = fx, .next = &next, .err = SL_EIO};
        const sl_db_value row[] = {SL_DB_P_TEXT(sl_slice_str(key)), SL_DB_P_NULL};
        SL_TEST_OK(
            sl_db_exec(fx->db, fx->lp, &(sl_db_stmt){INSERT, row, 2}, 1, 0, on_outcome, &oc[i]));
    }
    fx_close(fx);
    fx_wait(fx, before + MANY);
    size_t stored = 0, closed = 0;
    for (size_t i = 0; i < MANY; i++) {
        stored += oc[i].err == SL_OK;
        closed += oc[i].err == SL_ECLOSED;
    }
    assert_int_equal(stored + closed, MANY);
    fx_open(fx);
    assert_int_equal(fx_int(fx, COUNT), stored);
    assert_int_equal(fx->answers, before + MANY);
}

static void test_db_completion_for_a_stopped_loop_is_dropped(void **state)
{
    db_fixture *fx = *state;
    sl_loop *gone;
    SL_TEST_OK(sl_loop_new("gone", &fx->ck, &gone));
    SL_TEST_OK(sl_loop_start(gone));
    sl_loop_stop(gone);
    sl_loop_join(gone);
    atomic_int called = 0;
    SL_TEST_OK(sl_db_exec(fx->db, gone, &(sl_db_stmt){.sql = "INSERT INTO pairs (k) VALUES ('g')"},
                          1, 0, never, &called));
    while (sl_db_stat(fx->db, SL_DB_STAT_DONE) < 2)
        usleep(1000);
    assert_int_equal(fx_int(fx, COUNT), 1);
    fx_close(fx);
    assert_int_equal(called, 0);
    sl_loop_free(&gone);
}

/* ---- schema */

static void test_db_migrates_from_each_version(void **state)
{
    unsigned newest = sl_db_schema_version();
    assert_true(newest >= 4);
    for (unsigned from = 1; from <= newest; from++) {
        teardown(state);
        setup_closed(state);
        db_fixture *fx = *state;
        fx->options.migrate_to = from;
        fx_open(fx);
        assert_int_equal(fx_int(fx, "SELECT schema_version FROM tb_schema_settings"), from);
        fx_do(fx, "INSERT INTO admin_settings VALUES ('i', 1, 'key', '{\"kept\":true}')");
        fx_close(fx);
        fx->options.migrate_to = 0;
        fx_open(fx);
        assert_int_equal(fx_int(fx, "SELECT schema_version FROM tb_schema_settings"), newest);
        assert_int_equal(fx_int(fx, "SELECT count(*) FROM admin_settings WHERE key = 'key'"), 1);
        assert_int_equal(fx_int(fx, "SELECT count(*) FROM unauthorized_client"), 0);
    }
}

static void test_db_refuses_a_newer_schema_and_leaves_it(void **state)
{
    db_fixture *fx = *state;
    fx_open(fx);
    fx_do(fx, "UPDATE tb_schema_settings SET schema_version = 1000");
    fx_close(fx);
    char *why;
    SL_TEST_ERR(fx_try_open(fx, &why), SL_EUNSUPPORTED);
    assert_non_null(strstr(why, "1000"));
    assert_non_null(strstr(why, "newer"));
    sl_free(why);
}

static void test_db_refuses_the_schema_of_another_product(void **state)
{
    db_fixture *fx = *state;
    fx_open(fx);
    fx_do(fx, "UPDATE tb_schema_settings SET product = 'TBMQ'");
    fx_close(fx);
    char *why;
    SL_TEST_ERR(fx_try_open(fx, &why), SL_EUNSUPPORTED);
    assert_non_null(strstr(why, "TBMQ"));
    sl_free(why);
}

static void test_db_reopens_with_its_data(void **state)
{
    db_fixture *fx = *state;
    SL_TEST_OK(fx_text(fx, 0, INSERT, "k", "v", NULL)->err);
    fx_close(fx);
    fx_open(fx);
    assert_int_equal(fx_int(fx, COUNT), 1);
    assert_int_equal(fx_int(fx, "SELECT count(*) FROM tb_schema_settings"), 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
    if (argc > 1)
        fx_adapter = argv[1];
    const struct CMUnitTest tests[] = {
        CASE(test_db_gives_back_what_was_stored),
        CASE(test_db_keeps_null_apart_from_empty),
        CASE(test_db_stores_big_values),
        CASE(test_db_refuses_results_over_the_limit),
        CASE(test_db_takes_a_parameter_twice_and_out_of_order),
        CASE(test_db_never_runs_text_of_parameters),
        CASE(test_db_upserts_and_returns),
        CASE(test_db_names_a_unique_violation),
        CASE(test_db_names_wrong_statements),
        CASE(test_db_refuses_bad_requests_at_once),
        CASE(test_db_transaction_is_all_or_nothing),
        CASE(test_db_transaction_sees_itself),
        CASE(test_db_failure_of_one_leaves_the_others_alone),
        CASE(test_db_writes_of_one_asker_keep_their_order),
        CASE(test_db_never_completes_before_the_call_returns),
        CASE(test_db_serves_many_askers_at_once),
        CASE(test_db_read_sees_what_was_complete),
        CASE(test_db_reads_of_one_request_see_one_state),
        CASE(test_db_read_that_writes_is_refused_in_a_list),
        CASE(test_db_refuses_over_the_bound_and_goes_on),
        CASE(test_db_ends_a_slow_statement),
        CASE(test_db_close_completes_everything_once),
        CASE(test_db_completion_for_a_stopped_loop_is_dropped),
        CASE(test_db_reopens_with_its_data),
        cmocka_unit_test_setup_teardown(test_db_migrates_from_each_version, setup_closed, teardown),
        cmocka_unit_test_setup_teardown(test_db_refuses_a_newer_schema_and_leaves_it, setup_closed,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_db_refuses_the_schema_of_another_product, setup_closed,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
