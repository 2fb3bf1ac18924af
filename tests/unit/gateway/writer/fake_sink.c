/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_sink: see fake_sink.h.
 */
#include "fake_sink.h"

#include "base/alloc.h"
#include "base/assert.h"

fake_sink *fake_sink_new(void)
{
    fake_sink *fs = sl_calloc(1, sizeof *fs);
    pthread_mutex_init(&fs->lock, NULL);
    pthread_cond_init(&fs->changed, NULL);
    return fs;
}

void fake_sink_free(fake_sink **fs)
{
    for (size_t i = 0; i < (*fs)->doc_count; i++) {
        fake_doc *doc = &(*fs)->docs[i];
        sl_free(doc->collection);
        sl_free(doc->key);
        sl_free(doc->topic);
        sl_free(doc->payload);
    }
    pthread_mutex_destroy(&(*fs)->lock);
    pthread_cond_destroy(&(*fs)->changed);
    sl_free(*fs);
    *fs = NULL;
}

void fake_sink_rule(fake_sink *fs, fake_rule rule)
{
    for (int i = 0; i < FAKE_MAX_RULES; i++) {
        if (fs->rules[i].from != 0)
            continue;
        fs->rules[i] = rule;
        return;
    }
    SL_ASSERT(!"too many rules");
}

void fake_sink_clear_rules(fake_sink *fs)
{
    pthread_mutex_lock(&fs->lock);
    memset(fs->rules, 0, sizeof fs->rules);
    pthread_mutex_unlock(&fs->lock);
}

const fake_doc *fake_sink_find(fake_sink *fs, const char *payload)
{
    for (size_t i = 0; i < fs->doc_count; i++)
        if (strcmp(fs->docs[i].payload, payload) == 0)
            return &fs->docs[i];
    return NULL;
}

void fake_sink_await_hang(fake_sink *fs)
{
    pthread_mutex_lock(&fs->lock);
    while (fs->hanging == 0)
        pthread_cond_wait(&fs->changed, &fs->lock);
    pthread_mutex_unlock(&fs->lock);
}

void fake_sink_let_go(fake_sink *fs)
{
    pthread_mutex_lock(&fs->lock);
    fs->hang = false;
    pthread_cond_broadcast(&fs->changed);
    pthread_mutex_unlock(&fs->lock);
}

static fake_doc *find_key(fake_sink *fs, const char *collection, const char *key)
{
    for (size_t i = 0; i < fs->doc_count; i++)
        if (strcmp(fs->docs[i].key, key) == 0 && strcmp(fs->docs[i].collection, collection) == 0)
            return &fs->docs[i];
    return NULL;
}

static sl_sink_outcome store(fake_sink *fs, const char *collection, const sl_document *doc)
{
    char *key = sl_strndup(doc->id.key.ptr, doc->id.key.len);
    fake_doc *have = find_key(fs, collection, key);
    if (have == NULL) {
        SL_ASSERT(fs->doc_count < FAKE_MAX_DOCS);
        fs->docs[fs->doc_count++] =
            (fake_doc){.collection = sl_strdup(collection),
                       .key = key,
                       .topic = sl_strndup(doc->topic.ptr, doc->topic.len),
                       .payload = sl_strndup(doc->payload.ptr, doc->payload.len),
                       .received_ms = sl_document_received_ms(doc),
                       .writes = 1};
        return SL_SINK_STORED;
    }
    sl_free(key);
    if (!sl_slice_equal(sl_slice_str(have->topic), doc->topic))
        return SL_SINK_CONFLICT;
    if (doc->mode == SL_DOC_INSERT ||
        (doc->mode == SL_DOC_REPLACE_IF_NEWER && have->received_ms > sl_document_received_ms(doc)))
        return SL_SINK_DUPLICATE;
    sl_free(have->payload);
    have->payload = sl_strndup(doc->payload.ptr, doc->payload.len);
    have->writes++;
    return SL_SINK_STORED;
}

static const fake_rule *find_rule(const fake_sink *fs, const char *collection,
                                  const sl_document *doc)
{
    for (int i = 0; i < FAKE_MAX_RULES; i++) {
        const fake_rule *rule = &fs->rules[i];
        if (rule->from == 0 || fs->calls < rule->from || (rule->to != 0 && fs->calls > rule->to))
            continue;
        if (rule->collection != NULL && strcmp(rule->collection, collection) != 0)
            continue;
        if (rule->payload_part == NULL ||
            memmem(doc->payload.ptr, doc->payload.len, rule->payload_part,
                   strlen(rule->payload_part)) != NULL)
            return rule;
    }
    return NULL;
}

static void check_identities(const sl_document *const *docs, size_t count)
{
    // the writer's promise: no two of one identity in a batch
    for (size_t i = 1; i < count && count < 300; i++)
        for (size_t j = 0; j < i; j++)
            SL_ASSERT(!sl_slice_equal(docs[i]->id.key, docs[j]->id.key) ||
                      !sl_slice_equal(docs[i]->topic, docs[j]->topic));
}

static void hang(fake_sink *fs)
{
    fs->hanging++;
    pthread_cond_broadcast(&fs->changed);
    while (fs->hang)
        pthread_cond_wait(&fs->changed, &fs->lock);
    fs->hanging--;
}

static void fake_write(void *self, const sl_sink_target *target, const sl_document *const *docs,
                       size_t count, sl_sink_result *res)
{
    fake_sink *fs = self;
    check_identities(docs, count);
    pthread_mutex_lock(&fs->lock);
    fs->calls++;
    fs->last_batch = count;
    if (fs->hang && (fs->hang_in == NULL || strcmp(fs->hang_in, target->collection) == 0))
        hang(fs);
    for (size_t i = 0; i < count; i++) {
        const fake_rule *rule = find_rule(fs, target->collection, docs[i]);
        if (rule == NULL || rule->stores) {
            sl_sink_outcome outcome = store(fs, target->collection, docs[i]);
            sl_sink_result_set(&res[i], outcome, 0, "%s", "");
        }
        if (rule != NULL)
            sl_sink_result_set(&res[i], rule->outcome, 4711, "by rule: %s",
                               sl_sink_outcome_word(rule->outcome));
    }
    pthread_mutex_unlock(&fs->lock);
}

/* Answers what the next call would be told, unless the test says that it lies. */
static void fake_probe(void *self, sl_sink_result *res)
{
    fake_sink *fs = self;
    sl_sink_result_set(res, SL_SINK_STORED, 0, "%s", "");
    pthread_mutex_lock(&fs->lock);
    fs->probes++;
    if (fs->hang)
        hang(fs);
    for (int i = 0; i < FAKE_MAX_RULES && !fs->probe_lies; i++) {
        const fake_rule *rule = &fs->rules[i];
        bool now = rule->from != 0 && rule->from <= fs->calls + 1 &&
                   (rule->to == 0 || rule->to > fs->calls);
        if (now && rule->payload_part == NULL && rule->collection == NULL)
            sl_sink_result_set(res, rule->outcome, 4711, "by rule: %s",
                               sl_sink_outcome_word(rule->outcome));
    }
    pthread_mutex_unlock(&fs->lock);
}

static sl_err fake_open(void **self, const sl_sink_conf *cf, char **why)
{
    (void)why;
    *self = (void *)(uintptr_t)cf->data_dir;
    return SL_OK;
}

static void fake_close(void *self)
{
    (void)self;
}

const sl_sink_ops fake_sink_ops = {
    .name = "fake",
    .open = fake_open,
    .write = fake_write,
    .probe = fake_probe,
    .close = fake_close,
};
