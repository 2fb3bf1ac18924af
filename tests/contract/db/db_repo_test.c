/* SPDX-License-Identifier: Apache-2.0
 *
 * db_repo: the repositories (store/repo_*.h) and the node's identity, on both adapters; the word of
 * the adapter is the program's argument.
 */
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/logger.h"
#include "db_fixture.h"
#include "store/node.h"
#include "store/repo_credentials.h"
#include "store/repo_session_ctx.h"
#include "store/repo_settings.h"
#include "store/repo_unauthorized.h"

#define S(text) sl_slice_str(text)

/* What came back last; slices are joined into text, since they live for the callback only. */
typedef struct heard {
    db_fixture *fx;
    size_t answers;
    sl_err err;
    size_t count, total;
    int64_t time;
    char text[512];
} heard;

static int setup(void **state)
{
    heard *hd = sl_calloc(1, sizeof(*hd));
    hd->fx = fx_new();
    fx_open(hd->fx);
    *state = hd;
    return 0;
}

static int teardown(void **state)
{
    heard *hd = *state;
    fx_free(hd->fx);
    sl_free(hd);
    return 0;
}

static void note(heard *hd, sl_slice text)
{
    size_t len = strlen(hd->text);
    snprintf(hd->text + len, sizeof(hd->text) - len, "%.*s|", (int)text.len,
             (const char *)text.ptr);
}

static void begin(heard *hd, sl_err err)
{
    hd->err = err;
    hd->count = hd->total = 0;
    hd->time = 0;
    hd->text[0] = 0;
}

static void on_done(void *arg, sl_err err)
{
    begin(arg, err);
    fx_count(((heard *)arg)->fx);
}

static void on_setting(void *arg, sl_err err, const sl_setting *st)
{
    heard *hd = arg;
    begin(hd, err);
    if (st != NULL) {
        hd->time = st->created;
        note(hd, st->key);
        note(hd, st->json);
    }
    fx_count(hd->fx);
}

static void on_credentials(void *arg, sl_err err, const sl_credentials *rows, size_t count,
                           size_t total)
{
    heard *hd = arg;
    begin(hd, err);
    hd->count = count;
    hd->total = total;
    for (size_t i = 0; i < count; i++) {
        hd->time = rows[i].created;
        note(hd, rows[i].name);
        note(hd, rows[i].credentials_id);
        note(hd, rows[i].value);
    }
    fx_count(hd->fx);
}

static void on_app_ctx(void *arg, sl_err err, const sl_app_ctx *ctx)
{
    heard *hd = arg;
    begin(hd, err);
    if (ctx != NULL) {
        hd->time = ctx->updated;
        note(hd, ctx->client_id);
        note(hd, ctx->publishes);
        note(hd, ctx->pubrels);
    }
    fx_count(hd->fx);
}

static void on_qos2_ctx(void *arg, sl_err err, const sl_qos2_ctx *ctx)
{
    heard *hd = arg;
    begin(hd, err);
    if (ctx != NULL) {
        hd->time = ctx->updated;
        note(hd, ctx->client_id);
        note(hd, ctx->packet_ids);
    }
    fx_count(hd->fx);
}

static void on_unauthorized(void *arg, sl_err err, const sl_unauthorized *rows, size_t count,
                            size_t total)
{
    heard *hd = arg;
    begin(hd, err);
    hd->count = count;
    hd->total = total;
    for (size_t i = 0; i < count; i++) {
        hd->time = rows[i].at;
        note(hd, rows[i].client_id);
        note(hd, rows[i].user);
        note(hd, rows[i].reason);
        note(hd, rows[i].password_given ? S("password") : S(""));
        note(hd, rows[i].tls ? S("tls") : S(""));
    }
    fx_count(hd->fx);
}

/* The question was taken, its answer is waited for and is this error. */
#define ANSWER(hd, call, want)                                                                     \
    do {                                                                                           \
        SL_TEST_OK(call);                                                                          \
        fx_wait((hd)->fx, ++(hd)->answers);                                                        \
        SL_TEST_ERR((hd)->err, want);                                                              \
    } while (0)

static void test_settings_keep_their_creation_time(void **state)
{
    heard *hd = *state;
    sl_db *db = hd->fx->db;
    sl_loop *lp = hd->fx->lp;
    ANSWER(hd, sl_settings_get(db, lp, S("mail"), on_setting, hd), SL_ENOTFOUND);
    ANSWER(hd, sl_settings_put(db, lp, S("mail"), S("{\"a\":1}"), 1000, on_done, hd), SL_OK);
    ANSWER(hd, sl_settings_put(db, lp, S("mail"), S("{\"a\":2}"), 2000, on_done, hd), SL_OK);
    ANSWER(hd, sl_settings_get(db, lp, S("mail"), on_setting, hd), SL_OK);
    assert_string_equal(hd->text, "mail|{\"a\":2}|");
    assert_int_equal(hd->time, 1000);
    ANSWER(hd, sl_settings_remove(db, lp, S("mail"), on_done, hd), SL_OK);
    ANSWER(hd, sl_settings_remove(db, lp, S("mail"), on_done, hd), SL_ENOTFOUND);
}

static void test_settings_ensure_gives_the_first_one(void **state)
{
    heard *hd = *state;
    sl_db *db = hd->fx->db;
    sl_loop *lp = hd->fx->lp;
    ANSWER(hd, sl_settings_ensure(db, lp, S("k"), S("1"), 1000, on_setting, hd), SL_OK);
    assert_string_equal(hd->text, "k|1|");
    ANSWER(hd, sl_settings_ensure(db, lp, S("k"), S("2"), 2000, on_setting, hd), SL_OK);
    assert_string_equal(hd->text, "k|1|");
    assert_int_equal(hd->time, 1000);
}

static sl_credentials made(const char *id, const char *name, const char *key, sl_wall_ms created)
{
    return (sl_credentials){.id = S(id),
                            .created = created,
                            .name = S(name),
                            .client_type = S("DEVICE"),
                            .credentials_id = S(key),
                            .credentials_type = S("MQTT_BASIC"),
                            .value = S("{\"v\":1}")};
}

static void test_credentials_are_unique_by_their_key(void **state)
{
    heard *hd = *state;
    sl_db *db = hd->fx->db;
    sl_loop *lp = hd->fx->lp;
    sl_credentials one = made("id-1", "one", "username|a", 1), two = made("id-2", "two", "b", 2);
    ANSWER(hd, sl_credentials_insert(db, lp, &one, on_done, hd), SL_OK);
    ANSWER(hd, sl_credentials_insert(db, lp, &one, on_done, hd), SL_EEXIST);
    two.credentials_id = one.credentials_id;
    ANSWER(hd, sl_credentials_insert(db, lp, &two, on_done, hd), SL_EEXIST);
    two.credentials_id = S("b");
    ANSWER(hd, sl_credentials_update(db, lp, &two, on_done, hd), SL_ENOTFOUND);
    ANSWER(hd, sl_credentials_insert(db, lp, &two, on_done, hd), SL_OK);
    two.credentials_id = one.credentials_id;
    ANSWER(hd, sl_credentials_update(db, lp, &two, on_done, hd), SL_EEXIST);
    two.credentials_id = S("c");
    two.value = S("");
    two.created = 999; // kept as it was
    ANSWER(hd, sl_credentials_update(db, lp, &two, on_done, hd), SL_OK);
    ANSWER(hd, sl_credentials_get(db, lp, S("id-2"), on_credentials, hd), SL_OK);
    assert_string_equal(hd->text, "two|c||");
    assert_int_equal(hd->time, 2);
    ANSWER(hd, sl_credentials_remove(db, lp, S("id-2"), on_done, hd), SL_OK);
    ANSWER(hd, sl_credentials_remove(db, lp, S("id-2"), on_done, hd), SL_ENOTFOUND);
    ANSWER(hd, sl_credentials_get(db, lp, S("id-2"), on_credentials, hd), SL_OK);
    assert_int_equal(hd->count, 0);
}

static void test_credentials_are_found_by_any_of_the_keys(void **state)
{
    heard *hd = *state;
    sl_db *db = hd->fx->db;
    sl_loop *lp = hd->fx->lp;
    for (int i = 0; i < 10; i++) {
        char id[16], key[16];
        snprintf(id, sizeof(id), "id-%d", i);
        snprintf(key, sizeof(key), "key-%d", i);
        sl_credentials cr = made(id, id, key, i);
        ANSWER(hd, sl_credentials_insert(db, lp, &cr, on_done, hd), SL_OK);
    }
    const sl_slice keys[] = {S("key-3"), S("key-8"), S("nobody"), S("KEY-1")};
    ANSWER(hd, sl_credentials_find(db, lp, keys, 4, on_credentials, hd), SL_OK);
    assert_int_equal(hd->count, 2);
    ANSWER(hd, sl_credentials_find(db, lp, keys, 1, on_credentials, hd), SL_OK);
    assert_string_equal(hd->text, "id-3|key-3|{\"v\":1}|");
    SL_TEST_ERR(sl_credentials_find(db, lp, keys, 0, on_credentials, hd), SL_EINVAL);
    SL_TEST_ERR(sl_credentials_find(db, lp, keys, 9, on_credentials, hd), SL_EINVAL);
}

static void test_credentials_are_listed_in_pages(void **state)
{
    heard *hd = *state;
    sl_db *db = hd->fx->db;
    sl_loop *lp = hd->fx->lp;
    static const char *const NAMES[] = {"Alpha", "beta", "100%",       "1000",
                                        "a_b",   "aXb",  "back\\slash"};
    for (int i = 0; i < 7; i++) {
        char id[16];
        snprintf(id, sizeof(id), "%d", i);
        sl_credentials cr = made(id, NAMES[i], id, i);
        ANSWER(hd, sl_credentials_insert(db, lp, &cr, on_done, hd), SL_OK);
    }
    sl_repo_page page = {.limit = 3};
    ANSWER(hd, sl_credentials_list(db, lp, &page, on_credentials, hd), SL_OK);
    assert_int_equal(hd->count, 3);
    assert_int_equal(hd->total, 7);
    assert_int_equal(strncmp(hd->text, "back\\slash|", 11), 0); // the newest first
    page.offset = 6;
    ANSWER(hd, sl_credentials_list(db, lp, &page, on_credentials, hd), SL_OK);
    assert_int_equal(hd->count, 1);
    assert_int_equal(strncmp(hd->text, "Alpha|", 6), 0);
    static const struct {
        const char *search;
        size_t total;
    } SEARCHES[] = {{"LPH", 1}, {"a", 5}, {"0%", 1}, {"a_", 1}, {"k\\s", 1}, {"nobody", 0}};
    for (size_t i = 0; i < sizeof(SEARCHES) / sizeof(SEARCHES[0]); i++) {
        page = (sl_repo_page){.search = S(SEARCHES[i].search), .limit = 100};
        ANSWER(hd, sl_credentials_list(db, lp, &page, on_credentials, hd), SL_OK);
        assert_int_equal(hd->total, SEARCHES[i].total);
        assert_int_equal(hd->count, SEARCHES[i].total);
    }
    page.limit = 0;
    SL_TEST_ERR(sl_credentials_list(db, lp, &page, on_credentials, hd), SL_EINVAL);
    page.limit = SL_REPO_MAX_PAGE + 1;
    SL_TEST_ERR(sl_credentials_list(db, lp, &page, on_credentials, hd), SL_EINVAL);
}

/* Client ids as case C72 has them: whatever they hold, rows never mix. */
static const char *const ODD_IDS[] = {"../../x", "a/b",  "a b", "\xc3\xa9", "\xf0\x9f\x98\x80",
                                      "{}",      "a}b",  "%00", ".",        "..",
                                      "a\nb",    "' --", "$1",  "%",        "_"};
#define ODD_COUNT (sizeof(ODD_IDS) / sizeof(ODD_IDS[0]))

static void test_session_contexts_of_odd_clients_never_mix(void **state)
{
    heard *hd = *state;
    sl_db *db = hd->fx->db;
    sl_loop *lp = hd->fx->lp;
    for (size_t i = 0; i < ODD_COUNT; i++) {
        char json[16];
        snprintf(json, sizeof(json), "[%zu]", i);
        sl_app_ctx app = {
            .client_id = S(ODD_IDS[i]), .updated = 1, .publishes = S("[]"), .pubrels = S("[]")};
        sl_qos2_ctx qos2 = {
            .client_id = S(ODD_IDS[i]), .updated = (sl_wall_ms)i, .packet_ids = S(json)};
        ANSWER(hd, sl_app_ctx_put(db, lp, &app, on_done, hd), SL_OK);
        app.updated = (sl_wall_ms)i + 10;
        app.pubrels = S(json);
        ANSWER(hd, sl_app_ctx_put(db, lp, &app, on_done, hd), SL_OK);
        ANSWER(hd, sl_qos2_ctx_put(db, lp, &qos2, on_done, hd), SL_OK);
    }
    for (size_t i = 0; i < ODD_COUNT; i++) {
        char want[64];
        ANSWER(hd, sl_app_ctx_get(db, lp, S(ODD_IDS[i]), on_app_ctx, hd), SL_OK);
        snprintf(want, sizeof(want), "%s|[]|[%zu]|", ODD_IDS[i], i);
        assert_string_equal(hd->text, want);
        assert_int_equal(hd->time, i + 10);
        ANSWER(hd, sl_qos2_ctx_get(db, lp, S(ODD_IDS[i]), on_qos2_ctx, hd), SL_OK);
        snprintf(want, sizeof(want), "%s|[%zu]|", ODD_IDS[i], i);
        assert_string_equal(hd->text, want);
    }
    ANSWER(hd, sl_app_ctx_remove(db, lp, S("%"), on_done, hd), SL_OK);
    ANSWER(hd, sl_app_ctx_get(db, lp, S("%"), on_app_ctx, hd), SL_ENOTFOUND);
    ANSWER(hd, sl_app_ctx_get(db, lp, S("_"), on_app_ctx, hd), SL_OK);
    ANSWER(hd, sl_qos2_ctx_remove(db, lp, S("_"), on_done, hd), SL_OK);
    ANSWER(hd, sl_qos2_ctx_remove(db, lp, S("_"), on_done, hd), SL_ENOTFOUND);
    ANSWER(hd, sl_qos2_ctx_get(db, lp, S("%"), on_qos2_ctx, hd), SL_OK);
}

static void test_unauthorized_keeps_the_newest_of_a_client(void **state)
{
    heard *hd = *state;
    sl_db *db = hd->fx->db;
    sl_loop *lp = hd->fx->lp;
    sl_repo_page all = {.limit = 10};
    sl_unauthorized un = {.client_id = S("c1"),
                          .ip = S("127.0.0.1"),
                          .at = 2000,
                          .user = S("u"),
                          .password_given = true,
                          .reason = S("wrong password")};
    ANSWER(hd, sl_unauthorized_put(db, lp, &un, on_done, hd), SL_OK);
    un.at = 1000; // of another node, late
    un.reason = S("older");
    ANSWER(hd, sl_unauthorized_put(db, lp, &un, on_done, hd), SL_OK);
    ANSWER(hd, sl_unauthorized_list(db, lp, &all, on_unauthorized, hd), SL_OK);
    assert_string_equal(hd->text, "c1|u|wrong password|password||");
    un = (sl_unauthorized){
        .client_id = S("c1"), .ip = S("::1"), .at = 3000, .tls = true, .reason = S("new")};
    ANSWER(hd, sl_unauthorized_put(db, lp, &un, on_done, hd), SL_OK);
    un.client_id = S("C2");
    un.at = 4000;
    ANSWER(hd, sl_unauthorized_put(db, lp, &un, on_done, hd), SL_OK);
    ANSWER(hd, sl_unauthorized_list(db, lp, &all, on_unauthorized, hd), SL_OK);
    assert_string_equal(hd->text, "C2||new||tls|c1||new||tls|");
    assert_int_equal(hd->total, 2);
    all.search = S("c2");
    ANSWER(hd, sl_unauthorized_list(db, lp, &all, on_unauthorized, hd), SL_OK);
    assert_int_equal(hd->total, 1);
    ANSWER(hd, sl_unauthorized_expire(db, lp, 4000, on_done, hd), SL_OK);
    all.search = S("");
    ANSWER(hd, sl_unauthorized_list(db, lp, &all, on_unauthorized, hd), SL_OK);
    assert_string_equal(hd->text, "C2||new||tls|");
    ANSWER(hd, sl_unauthorized_remove(db, lp, S("C2"), on_done, hd), SL_OK);
    ANSWER(hd, sl_unauthorized_remove(db, lp, S("C2"), on_done, hd), SL_ENOTFOUND);
}

static void test_repo_makes_different_ids(void **state)
{
    (void)state;
    char ids[100][SL_REPO_ID_BYTES];
    for (size_t i = 0; i < 100; i++) {
        sl_repo_new_id(ids[i]);
        assert_int_equal(strlen(ids[i]), 36);
        assert_int_equal(ids[i][14], '4');
        assert_int_equal(strspn(ids[i], "0123456789abcdef-"), 36);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(ids[i], ids[k]);
    }
}

/* ---- the node */

typedef struct node_lines {
    _Atomic int renamed, known;
} node_lines;

static void on_line(void *arg, const char *line)
{
    node_lines *nl = arg;
    if (strstr(line, "NODE-RENAMED") != NULL)
        atomic_fetch_add(&nl->renamed, 1);
    else if (strstr(line, "NODE-IDENTITY ") != NULL)
        atomic_fetch_add(&nl->known, 1);
}

/* One life of a node; who the metadata says it is. */
static void live(heard *hd, node_lines *nl, const char *service_id, char known_as[64],
                 sl_wall_ms *created)
{
    sl_node_identity *nd = NULL;
    char *why = NULL;
    SL_TEST_OK(sl_node_identity_new(hd->fx->db, hd->fx->lp, &hd->fx->ck, hd->fx->dir, service_id,
                                    &nd, &why));
    int before = nl->renamed + nl->known;
    for (double until = fx_seconds() + 30; nl->renamed + nl->known == before;) {
        assert_true(fx_seconds() < until);
        usleep(1000);
    }
    fx_close(hd->fx);
    sl_loop_stop(hd->fx->lp);
    sl_loop_join(hd->fx->lp);
    const char *name;
    assert_true(sl_node_identity_known(nd, &name, created));
    snprintf(known_as, 64, "%s", name);
    sl_loop_free(&hd->fx->lp);
    sl_node_identity_free(&nd);
    SL_TEST_OK(sl_loop_new("asker", &hd->fx->ck, &hd->fx->lp));
    SL_TEST_OK(sl_loop_start(hd->fx->lp));
    fx_open(hd->fx);
}

static void test_node_keeps_its_name_and_birth(void **state)
{
    heard *hd = *state;
    static node_lines nl;
    char first[64], again[64], other[64];
    sl_wall_ms born, still, same;
    sl_logger_set_sink(on_line, &nl);
    live(hd, &nl, "node \"a\"", first, &born);
    assert_int_equal(nl.known, 1);
    live(hd, &nl, "node \"a\"", again, &still);
    assert_int_equal(nl.known, 2);
    assert_int_equal(nl.renamed, 0);
    live(hd, &nl, "node-b", other, &same);
    sl_logger_set_sink(NULL, NULL);
    assert_int_equal(nl.renamed, 1);
    assert_string_equal(first, "node \"a\"");
    assert_string_equal(again, first);
    assert_string_equal(other, first);
    assert_true(born > 0 && still == born && same == born);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
    if (argc > 1)
        fx_adapter = argv[1];
    const struct CMUnitTest tests[] = {
        CASE(test_settings_keep_their_creation_time),
        CASE(test_settings_ensure_gives_the_first_one),
        CASE(test_credentials_are_unique_by_their_key),
        CASE(test_credentials_are_found_by_any_of_the_keys),
        CASE(test_credentials_are_listed_in_pages),
        CASE(test_session_contexts_of_odd_clients_never_mix),
        CASE(test_unauthorized_keeps_the_newest_of_a_client),
        CASE(test_node_keeps_its_name_and_birth),
        cmocka_unit_test(test_repo_makes_different_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
