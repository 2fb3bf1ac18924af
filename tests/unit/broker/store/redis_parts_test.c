/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of the Redis inbox that do no I/O: slots, replies, keys, settings.
 */
#include "sl_test.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "store/inbox_redis.h"
#include "store/inbox_redis_conf.h"
#include "store/inbox_redis_keys.h"
#include "store/redis_slot.h"

static uint16_t slot(const char *key)
{
    return sl_redis_slot(sl_slice_str(key));
}

static void test_slot_is_what_a_cluster_says(void **state)
{
    (void)state;
    assert_int_equal(slot("123456789"), 0x31C3);
    assert_int_equal(slot("foo"), 12182);
    assert_int_equal(slot("bar"), 5061);
    assert_int_equal(slot(""), 0);
    assert_int_equal(slot("{user1000}.following"), slot("user1000"));
    assert_int_equal(slot("foo{bar}{zap}"), slot("bar"));
    assert_int_equal(slot("foo{{bar}}zap"), slot("{bar"));
    assert_int_not_equal(slot("foo{}{bar}"), slot("bar")); // an empty tag is none
    assert_int_not_equal(slot("foo{bar"), slot("bar"));
    assert_int_equal(sl_redis_slot(sl_slice_of("a{b\0c}", 6)),
                     sl_redis_slot(sl_slice_of("b\0c", 3)));
}

static void test_reply_is_built_with_all_its_parts(void **state)
{
    (void)state;
    static const char bytes[] =
        "*5\r\n:-7\r\n$-1\r\n+fine\r\n-ERR bad\r\n*2\r\n$3\r\na\0b\r\n*0\r\n";
    sl_redis_reader *rd = sl_redis_reader_new();
    sl_redis_reply *reply = NULL;
    for (size_t i = 0; i < sizeof(bytes) - 1; i++) {
        SL_TEST_OK(sl_redis_reader_next(rd, &reply));
        assert_null(reply);
        SL_TEST_OK(sl_redis_reader_feed(rd, bytes + i, 1));
    }
    SL_TEST_OK(sl_redis_reader_next(rd, &reply));
    assert_non_null(reply);
    assert_int_equal(reply->count, 5);
    assert_int_equal(sl_redis_item(reply, 0)->integer, -7);
    assert_int_equal(sl_redis_item(reply, 1)->kind, SL_REDIS_NIL);
    SL_TEST_SLICE(sl_redis_item(reply, 2)->text, "fine");
    assert_int_equal(sl_redis_item(reply, 3)->kind, SL_REDIS_ERROR);
    assert_true(sl_redis_is_error(sl_redis_item(reply, 3), "ERR"));
    assert_false(sl_redis_is_error(sl_redis_item(reply, 3), "ER"));
    assert_false(sl_redis_is_error(sl_redis_item(reply, 2), "fine"));
    SL_TEST_SLICE(sl_redis_item(sl_redis_item(reply, 4), 0)->text, "a\0b");
    assert_int_equal(sl_redis_item(sl_redis_item(reply, 4), 1)->count, 0);
    assert_null(sl_redis_item(reply, 5));
    assert_null(sl_redis_item(NULL, 0));
    sl_redis_reply_free(&reply);
    assert_null(reply);
    sl_redis_reply_free(&reply);
    sl_redis_reader_free(&rd);
}

static void test_reply_that_is_none_is_an_error(void **state)
{
    (void)state;
    const char *const bad[] = {"hello\r\n", "*2\r\n:1\r\n?\r\n", "*1048577\r\n"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        sl_redis_reader *rd = sl_redis_reader_new();
        sl_redis_reply *reply = NULL;
        SL_TEST_OK(sl_redis_reader_feed(rd, bad[i], strlen(bad[i])));
        SL_TEST_ERR(sl_redis_reader_next(rd, &reply), SL_ECORRUPT);
        assert_null(reply);
        sl_redis_reader_free(&rd);
    }
}

static void test_reply_has_a_largest_size(void **state)
{
    (void)state;
    sl_redis_reader *rd = sl_redis_reader_new();
    /* A string whose end never comes; the length alone is looked at before a byte is. */
    SL_TEST_OK(sl_redis_reader_feed(rd, "$9\r\n1", 5));
    SL_TEST_ERR(sl_redis_reader_feed(rd, "", SL_REDIS_MAX_REPLY_BYTES - 4), SL_ETOOBIG);
    SL_TEST_OK(sl_redis_reader_feed(rd, "23456789\r\n$9", 12));
    sl_redis_reply *reply = NULL;
    SL_TEST_OK(sl_redis_reader_next(rd, &reply));
    SL_TEST_SLICE(reply->text, "123456789");
    sl_redis_reply_free(&reply);
    SL_TEST_ERR(sl_redis_reader_feed(rd, "", SL_REDIS_MAX_REPLY_BYTES - 1), SL_ETOOBIG);
    sl_redis_reader_free(&rd);
}

static void test_command_holds_any_bytes(void **state)
{
    (void)state;
    const sl_slice argv[] = {sl_slice_str("SET"), sl_slice_of("a\0\r\n", 4), {0}};
    size_t len = 0;
    char *bytes = sl_redis_format(argv, 3, &len);
    const char want[] = "*3\r\n$3\r\nSET\r\n$4\r\na\0\r\n\r\n$0\r\n\r\n";
    assert_int_equal(len, sizeof(want) - 1);
    assert_memory_equal(bytes, want, len);
    sl_redis_bytes_free(&bytes);
    assert_null(bytes);
}

static void test_keys_of_a_client_share_a_slot_and_no_other_has_them(void **state)
{
    (void)state;
    const char *const ids[] = {"a",           "{}",     "}",     "}}", "a}b",
                               "a}_messages", "%7D",    "%257D", "%",  "{",
                               "a_messages",  "_inbox", "{a}",   "}{", "\xc3\xa9"};
    enum { COUNT = sizeof(ids) / sizeof(ids[0]) };
    inbox_redis_keys keys[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        inbox_redis_keys *ks = &keys[i];
        inbox_redis_keys_init(ks, "p:", sl_slice_str(ids[i]));
        char body[128];
        int n = snprintf(body, sizeof(body), "%.*s_65535", (int)ks->messages.len,
                         (const char *)ks->messages.ptr);
        uint16_t at = sl_redis_slot(ks->messages);
        assert_int_equal(sl_redis_slot(ks->inbox), at);
        assert_int_equal(sl_redis_slot(ks->last_packet_id), at);
        assert_int_equal(sl_redis_slot(sl_slice_of(body, (size_t)n)), at);
        for (size_t k = 0; k < i; k++) {
            const sl_slice mine[] = {ks->messages, ks->inbox, ks->last_packet_id};
            const sl_slice others[] = {keys[k].messages, keys[k].inbox, keys[k].last_packet_id};
            for (size_t m = 0; m < 9; m++)
                assert_false(sl_slice_equal(mine[m % 3], others[m / 3]));
        }
    }
    SL_TEST_SLICE(keys[0].messages, "p:{a}_messages");
    SL_TEST_SLICE(keys[0].inbox, "p:{a}_inbox");
    SL_TEST_SLICE(keys[0].last_packet_id, "p:{a}_last_packet_id");
    SL_TEST_SLICE(keys[4].messages, "p:{a%7Db}_messages");
    SL_TEST_SLICE(keys[6].messages, "p:{%257D}_messages");
    for (size_t i = 0; i < COUNT; i++)
        inbox_redis_keys_fini(&keys[i]);
}

static const sl_conf_row rows[] = {SL_INBOX_REDIS_CONF_ROWS};

/* pairs of key and value, ended by NULL */
static sl_err load(const char *const *pairs, sl_inbox_redis_options **out, char **why)
{
    sl_conf *cf = sl_conf_new(rows, sizeof(rows) / sizeof(rows[0]));
    for (; pairs[0] != NULL; pairs += 2)
        SL_TEST_OK(sl_conf_set(cf, pairs[0], pairs[1], why));
    const sl_inbox_ops *ops = NULL;
    sl_err err = sl_inbox_redis_load(cf, out, &ops, why);
    if (err == SL_OK) { // only numbers and addresses outlive the configuration
        assert_ptr_equal(ops, &sl_inbox_redis_ops);
        (*out)->master = (*out)->username = (*out)->password = (*out)->prefix = NULL;
    }
    sl_conf_free(&cf);
    return err;
}

static void test_settings_give_the_addresses(void **state)
{
    (void)state;
    char *why = NULL;
    sl_inbox_redis_options *ro = NULL;
    SL_TEST_OK(load((const char *[]){NULL}, &ro, &why));
    assert_int_equal(ro->mode, SL_REDIS_STANDALONE);
    assert_int_equal(ro->seed_count, 1);
    assert_string_equal(ro->seeds[0].host, "localhost");
    assert_int_equal(ro->seeds[0].port, 6379);
    sl_inbox_redis_options_free(&ro);
    SL_TEST_OK(load((const char *[]){"redis.connection.type", "cluster", "redis.cluster.nodes",
                                     "a:1, [::1]:2,,c:65535", NULL},
                    &ro, &why));
    assert_int_equal(ro->mode, SL_REDIS_CLUSTER);
    assert_int_equal(ro->seed_count, 3);
    assert_string_equal(ro->seeds[1].host, "::1");
    assert_int_equal(ro->seeds[2].port, 65535);
    sl_inbox_redis_options_free(&ro);
    SL_TEST_OK(
        load((const char *[]){"redis.connection.type", "sentinel", "redis.sentinel.sentinels",
                              "s:26379", "redis.sentinel.master", "m", NULL},
             &ro, &why));
    assert_int_equal(ro->mode, SL_REDIS_SENTINEL);
    sl_inbox_redis_options_free(&ro);
    assert_null(why);
}

static void test_settings_that_cannot_be_are_named(void **state)
{
    (void)state;
    const char *const lists[] = {"", "a", "a:", ":1", "a:0", "a:65536", "a:1x", "a:1,b", ","};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        char *why = NULL;
        sl_inbox_redis_options *ro = NULL;
        SL_TEST_ERR(load((const char *[]){"redis.connection.type", "cluster", "redis.cluster.nodes",
                                          lists[i], NULL},
                         &ro, &why),
                    SL_EINVAL);
        assert_non_null(strstr(why, "REDIS_NODES"));
        assert_null(ro);
        sl_free(why);
    }
    const char *const others[][4] = {{"redis.ssl.cert-file", "/no/ca.pem", "REDIS_SSL_ENABLED"},
                                     {"cache.cache-prefix", "a}", "CACHE_PREFIX"},
                                     {"redis.username", "u", "REDIS_USERNAME"},
                                     {"redis.standalone.host", "", "redis.standalone.host"},
                                     {"redis.connection.type", "sentinel", "REDIS_SENTINELS"}};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        char *why = NULL;
        sl_inbox_redis_options *ro = NULL;
        SL_TEST_ERR(load((const char *[]){others[i][0], others[i][1], NULL}, &ro, &why), SL_EINVAL);
        assert_non_null(strstr(why, others[i][2]));
        sl_free(why);
    }
}

static void test_script_name_is_its_sha1(void **state)
{
    (void)state;
    sl_redis_script script = {.text = "return 1"};
    sl_redis_script_name(&script);
    assert_string_equal(script.sha, "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slot_is_what_a_cluster_says),
        cmocka_unit_test(test_reply_is_built_with_all_its_parts),
        cmocka_unit_test(test_reply_that_is_none_is_an_error),
        cmocka_unit_test(test_reply_has_a_largest_size),
        cmocka_unit_test(test_command_holds_any_bytes),
        cmocka_unit_test(test_keys_of_a_client_share_a_slot_and_no_other_has_them),
        cmocka_unit_test(test_settings_give_the_addresses),
        cmocka_unit_test(test_settings_that_cannot_be_are_named),
        cmocka_unit_test(test_script_name_is_its_sha1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
