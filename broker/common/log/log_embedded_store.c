/* SPDX-License-Identifier: Apache-2.0
 *
 * log_embedded_store: the RocksDB instance of the embedded log: the folder's lock, options (each
 * with its reason), column families, kinds of errors. Opened and closed on the init thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/logger.h"
#include "log/bytes.h"
#include "log/elog_fn.h"

#define LOCK_FILE        "sluice.lock"
#define FORMAT_KEY       "format"
#define FORMAT_VERSION   1u
#define BLOCK_BYTES      (16u << 10)
#define CACHE_BYTES      (32u << 20)
#define HOT_MEMTABLE     (8u << 20)
#define SMALL_MEMTABLE   (8u << 20)
#define APP_MEMTABLE     (64u << 20)
#define KV_MEMTABLE      (32u << 20)
#define WAL_BYTES        (1u << 30)
#define INFO_LOG_HEADERS 5

static const char *const fixed_names[ELOG_CF_FIXED] = {"default", "log/small", "log/app",
                                                       "rows",    "qos2",      "offsets"};

typedef struct elog_cf_row {
    char *name; /* owned */
    rocksdb_column_family_handle_t *handle;
    bool used; /* somebody asked for it */
} elog_cf_row;

struct elog_cfs {
    elog_cf_row *rows; /* owned */
    size_t count;
    size_t cap;
    rocksdb_cache_t *cache; /* shared by all */
};

void elog_key(uint8_t out[ELOG_KEY_BYTES], const elog_part *part, uint64_t offset)
{
    sl_put_u32(out, part->topic->id);
    sl_put_u16(out + 4, part->partition);
    sl_put_u64(out + 6, offset);
}

/* ---- errors ---- */

sl_err elog_store_error_kind(const char *message)
{
    if (strstr(message, "Corruption") != NULL || strstr(message, "does not exist in") != NULL)
        return SL_ECORRUPT;
    if (strstr(message, "No space left") != NULL || strstr(message, "NoSpace") != NULL)
        return SL_ENOSPC;
    if (strstr(message, "lock ") != NULL && strstr(message, "LOCK") != NULL)
        return SL_ELOCKED;
    return SL_EIO;
}

sl_err elog_store_error(char *message, const char *event)
{
    sl_err err = elog_store_error_kind(message);
    sl_error(SL_C_LOG, event, SL_E(err), SL_S("reason", message));
    rocksdb_free(message);
    return err;
}

static char *format_why(const char *fmt, const char *dir, const char *detail)
{
    char *why = NULL;
    if (asprintf(&why, fmt, dir, detail) < 0)
        return sl_strdup("the log cannot be opened");
    char *out = sl_strdup(why);
    free(why);
    return out;
}

/* ---- writing ---- */

void elog_fail(elog *el, sl_err err, const char *event, const char *message)
{
    int expected = SL_OK;
    if (atomic_compare_exchange_strong(&el->failed, &expected, (int)err))
        sl_error(SL_C_LOG, event, SL_E(err), SL_S("dir", el->dir), SL_S("reason", message),
                 SL_S("action", "appends are refused until the process is restarted"));
}

/* A full disk heals when there is room again; any other fault of the store does not. */
static sl_err write_failed(elog *el, char *message)
{
    sl_err err = elog_store_error_kind(message);
    atomic_store(&el->broken, true);
    if (err == SL_ENOSPC) {
        if (!atomic_exchange(&el->low, true)) {
            sl_log_gauge(el->log, SL_LOG_STAT_LOW_SPACE, 1);
            sl_error(SL_C_LOG, "LOG-DISK-FULL", SL_S("dir", el->dir), SL_S("reason", message),
                     SL_S("action", "appends are refused until there is room; reading goes on"));
        }
    } else {
        elog_fail(el, err, "LOG-WRITE-FAILED", message);
    }
    rocksdb_free(message);
    return err;
}

sl_err elog_store_write(elog *el, rocksdb_writebatch_t *wb)
{
    sl_err failed = (sl_err)atomic_load_explicit(&el->failed, memory_order_acquire);
    if (failed != SL_OK)
        return failed;
    bool careful = atomic_load_explicit(&el->careful, memory_order_acquire);
    char *message = NULL;
    if (careful)
        pthread_mutex_lock(&el->wal_lock);
    rocksdb_write(el->db, el->wo, wb, &message);
    sl_err err = message == NULL ? SL_OK : write_failed(el, message);
    if (careful)
        pthread_mutex_unlock(&el->wal_lock);
    pthread_mutex_lock(&el->sync_lock);
    el->unsynced = true;
    pthread_mutex_unlock(&el->sync_lock);
    return err;
}

/* After a failed sync the kernel may have thrown the pages away: a later sync that succeeds would
 * prove nothing. So the log is closed to appends until the process starts again. */
static sl_err sync_failed(elog *el, char *message)
{
    sl_err err = elog_store_error_kind(message) == SL_ENOSPC ? SL_ENOSPC : SL_EIO;
    elog_fail(el, err, "LOG-SYNC-FAILED", message);
    rocksdb_free(message);
    return err;
}

sl_err elog_store_sync(elog *el)
{
    bool careful = atomic_load_explicit(&el->careful, memory_order_acquire);
    sl_err err = SL_OK;
    char *message = NULL;
    if (careful)
        pthread_mutex_lock(&el->wal_lock);
    if (atomic_load(&el->broken))
        err = SL_ENOSPC;
    else
        rocksdb_flush_wal(el->db, 1, &message);
    if (careful)
        pthread_mutex_unlock(&el->wal_lock);
    return message == NULL ? err : sync_failed(el, message);
}

/* ---- options ---- */

static void set_table(rocksdb_options_t *op, rocksdb_cache_t *cache, bool bloom)
{
    rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
    rocksdb_block_based_options_set_block_size(table, BLOCK_BYTES);
    rocksdb_block_based_options_set_block_cache(table, cache);
    rocksdb_block_based_options_set_format_version(table, 5);
    if (bloom)
        rocksdb_block_based_options_set_filter_policy(table,
                                                      rocksdb_filterpolicy_create_bloom_full(10));
    rocksdb_options_set_block_based_table_factory(op, table);
    rocksdb_block_based_options_destroy(table);
}

/* One partition of a busy topic: files never overlap, so that a compaction is a rename and
 * retention drops whole files. */
static void set_hot(rocksdb_options_t *op)
{
    rocksdb_options_set_write_buffer_size(op, HOT_MEMTABLE);
    rocksdb_options_set_target_file_size_base(op, HOT_MEMTABLE);
    rocksdb_options_set_level0_file_num_compaction_trigger(op, 1);
}

/* Batches of thousands of topics in one family: bounded space before least writing. */
static void set_app(rocksdb_options_t *op)
{
    rocksdb_options_set_compaction_style(op, rocksdb_universal_compaction);
    rocksdb_universal_compaction_options_t *uc = rocksdb_universal_compaction_options_create();
    rocksdb_universal_compaction_options_set_max_size_amplification_percent(uc, 25);
    rocksdb_options_set_universal_compaction_options(op, uc);
    rocksdb_universal_compaction_options_destroy(uc);
    rocksdb_options_set_write_buffer_size(op, APP_MEMTABLE);
    rocksdb_options_set_max_write_buffer_number(op, 4);
}

static rocksdb_options_t *cf_options(const char *name, rocksdb_cache_t *cache)
{
    rocksdb_options_t *op = rocksdb_options_create();
    rocksdb_options_set_compression(op, rocksdb_no_compression);
    bool bloom = false;
    if (strcmp(name, fixed_names[ELOG_CF_APP]) == 0) {
        set_app(op);
    } else if (strcmp(name, fixed_names[ELOG_CF_SMALL]) == 0) {
        rocksdb_options_set_write_buffer_size(op, SMALL_MEMTABLE);
    } else if (strncmp(name, "log/", 4) == 0) {
        set_hot(op);
    } else if (strcmp(name, "default") != 0) {
        rocksdb_options_set_write_buffer_size(op, KV_MEMTABLE);
        bloom = true;
    }
    set_table(op, cache, bloom);
    return op;
}

static rocksdb_options_t *db_options(rocksdb_cache_t *cache)
{
    rocksdb_options_t *op = cf_options("default", cache);
    rocksdb_options_set_create_if_missing(op, 1);
    rocksdb_options_set_max_background_jobs(op, 2);
    rocksdb_options_set_max_total_wal_size(op, WAL_BYTES);
    rocksdb_options_set_keep_log_file_num(op, 4);
    // Its text log says nothing after the start: in builds with assertions a second line that does
    // not fit on a full disk ends the process. What matters comes back as an error anyway.
    rocksdb_options_set_info_log_level(op, INFO_LOG_HEADERS);
    return op;
}

/* ---- the folder ---- */

static sl_err make_dirs(const char *dir, char **why)
{
    char *path = sl_strdup(dir);
    sl_err err = SL_OK;
    for (char *at = path + 1;; at++) {
        if (*at != '/' && *at != '\0')
            continue;
        char was = *at;
        *at = '\0';
        if (mkdir(path, 0750) != 0 && errno != EEXIST) {
            err = sl_err_from_errno(errno);
            char text[128];
            *why = format_why("cannot make the folder %s of the log: %s", path,
                              strerror_r(errno, text, sizeof text));
            break;
        }
        *at = was;
        if (was == '\0')
            break;
    }
    sl_free(path);
    return err;
}

static void name_holder(int fd, char *out, size_t cap)
{
    char pid[24];
    ssize_t len = pread(fd, pid, sizeof pid - 1, 0);
    if (len <= 0) {
        snprintf(out, cap, "another process");
        return;
    }
    pid[len] = '\0';
    pid[strcspn(pid, "\n")] = '\0';
    snprintf(out, cap, "process %s", pid);
}

static sl_err take_lock(elog *el, char **why)
{
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/" LOCK_FILE, el->dir) >= sizeof path)
        return SL_EINVAL;
    char text[160];
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0640);
    if (fd < 0) {
        sl_err err = sl_err_from_errno(errno);
        *why = format_why("cannot open %s: %s", path, strerror_r(errno, text, sizeof text));
        return err;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        name_holder(fd, text, sizeof text);
        close(fd);
        *why = format_why("the log in %s is in use by %s; stop it or choose another folder",
                          el->dir, text);
        return SL_ELOCKED;
    }
    int len = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)len, 0) != len)
        sl_warn(SL_C_LOG, "LOG-LOCK-PID", SL_S("path", path));
    el->lock_fd = fd;
    return SL_OK;
}

/* ---- column families ---- */

static void cfs_add(struct elog_cfs *cfs, const char *name, rocksdb_column_family_handle_t *handle)
{
    if (cfs->count == cfs->cap) {
        cfs->cap = cfs->cap == 0 ? 32 : cfs->cap * 2;
        cfs->rows = sl_realloc(cfs->rows, cfs->cap * sizeof *cfs->rows);
    }
    cfs->rows[cfs->count++] = (elog_cf_row){sl_strdup(name), handle, false};
}

sl_err elog_store_cf(elog *el, const char *name, rocksdb_column_family_handle_t **out)
{
    for (size_t i = 0; i < el->cfs->count; i++) {
        if (strcmp(el->cfs->rows[i].name, name) == 0) {
            el->cfs->rows[i].used = true;
            *out = el->cfs->rows[i].handle;
            return SL_OK;
        }
    }
    char *message = NULL;
    rocksdb_options_t *op = cf_options(name, el->cfs->cache);
    rocksdb_column_family_handle_t *handle =
        rocksdb_create_column_family(el->db, op, name, &message);
    rocksdb_options_destroy(op);
    if (message != NULL)
        return elog_store_error(message, "LOG-CF-FAILED");
    cfs_add(el->cfs, name, handle);
    el->cfs->rows[el->cfs->count - 1].used = true;
    *out = handle;
    return SL_OK;
}

void elog_store_drop_unused(elog *el)
{
    for (size_t i = ELOG_CF_FIXED; i < el->cfs->count; i++) {
        const elog_cf_row *row = &el->cfs->rows[i];
        if (row->used || strncmp(row->name, "log/", 4) != 0)
            continue;
        sl_info(SL_C_LOG, "LOG-FAMILY-UNUSED", SL_S("name", row->name));
        elog_store_cf_drop(el, row->handle);
    }
}

void elog_store_cf_drop(elog *el, rocksdb_column_family_handle_t *cf)
{
    for (size_t i = 0; i < el->cfs->count; i++) {
        if (el->cfs->rows[i].handle != cf)
            continue;
        char *message = NULL;
        rocksdb_drop_column_family(el->db, cf, &message);
        if (message != NULL)
            (void)elog_store_error(message, "LOG-CF-DROP-FAILED");
        // The handle lives on: a reader may just be using it. It goes at close.
        sl_free(el->cfs->rows[i].name);
        el->cfs->rows[i].name = sl_strdup("");
        return;
    }
}

/* ---- open ---- */

/* Nothing was ever put into it: its creation was cut short, or it is new. */
static bool is_unused(elog *el)
{
    rocksdb_iterator_t *it =
        rocksdb_create_iterator_cf(el->db, el->ro_point, el->cf[ELOG_CF_DEFAULT]);
    rocksdb_iter_seek_to_first(it);
    char *message = NULL;
    rocksdb_iter_get_error(it, &message);
    bool unused = !rocksdb_iter_valid(it) && message == NULL;
    if (message != NULL)
        (void)elog_store_error(message, "LOG-FORMAT-UNREAD");
    rocksdb_iter_destroy(it);
    return unused;
}

static sl_err check_format(elog *el, char **why)
{
    char *message = NULL;
    size_t len = 0;
    char *value = rocksdb_get_cf(el->db, el->ro_point, el->cf[ELOG_CF_DEFAULT], FORMAT_KEY,
                                 sizeof FORMAT_KEY - 1, &len, &message);
    if (message != NULL)
        return elog_store_error(message, "LOG-FORMAT-UNREAD");
    sl_err err = SL_OK;
    uint32_t version = value != NULL && len == 4 ? sl_get_u32((const uint8_t *)value) : 0;
    if (value == NULL && is_unused(el)) {
        uint8_t bytes[4];
        sl_put_u32(bytes, FORMAT_VERSION);
        rocksdb_writebatch_t *wb = rocksdb_writebatch_create();
        rocksdb_writebatch_put_cf(wb, el->cf[ELOG_CF_DEFAULT], FORMAT_KEY, sizeof FORMAT_KEY - 1,
                                  (const char *)bytes, sizeof bytes);
        err = elog_store_write(el, wb);
        rocksdb_writebatch_destroy(wb);
    } else if (version != FORMAT_VERSION) {
        char text[160];
        snprintf(text, sizeof text,
                 "it has format %u, this program reads format %u; use the program that wrote it or "
                 "an empty folder",
                 version, FORMAT_VERSION);
        *why = format_why("the log in %s cannot be used: %s", el->dir, text);
        err = SL_EUNSUPPORTED;
    }
    rocksdb_free(value);
    return err;
}

static sl_err open_error(elog *el, char *message, char **why)
{
    sl_err err = elog_store_error_kind(message);
    // The store is there (CURRENT is), but something that it names is not.
    if (err == SL_EIO && strstr(message, "No such file") != NULL)
        err = SL_ECORRUPT;
    const char *fmt = "the log in %s cannot be opened: %s";
    if (err == SL_ECORRUPT)
        fmt =
            "the log in %s is damaged: %s. Nothing was changed. Restore the folder from a backup, "
            "or move it away to begin with an empty log";
    else if (err == SL_ENOSPC)
        fmt = "the log in %s cannot be opened, the disk is full: %s. Make room and start again";
    *why = format_why(fmt, el->dir, message);
    rocksdb_free(message);
    return err;
}

/* Names of all families of the store, the fixed ones first. */
static sl_err list_names(elog *el, rocksdb_options_t *op, char ***names, size_t *count, char **why)
{
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/CURRENT", el->dir) >= sizeof path)
        return SL_EINVAL;
    char **listed = NULL;
    size_t listed_count = 0;
    bool is_new = access(path, F_OK) != 0 && errno == ENOENT;
    if (!is_new) {
        char *message = NULL;
        listed = rocksdb_list_column_families(op, el->dir, &listed_count, &message);
        if (message != NULL) {
            rocksdb_list_column_families_destroy(listed, listed_count);
            return open_error(el, message, why);
        }
    }
    char **out = sl_calloc(ELOG_CF_FIXED + listed_count, sizeof *out);
    size_t used = 0;
    for (size_t i = 0; i < ELOG_CF_FIXED; i++)
        out[used++] = sl_strdup(fixed_names[i]);
    for (size_t i = 0; i < listed_count; i++) {
        bool is_fixed = false;
        for (size_t k = 0; k < ELOG_CF_FIXED; k++)
            is_fixed = is_fixed || strcmp(listed[i], fixed_names[k]) == 0;
        if (!is_fixed)
            out[used++] = sl_strdup(listed[i]);
    }
    if (listed != NULL)
        rocksdb_list_column_families_destroy(listed, listed_count);
    *names = out;
    *count = used;
    return SL_OK;
}

static sl_err open_db(elog *el, char **why)
{
    rocksdb_options_t *op = db_options(el->cfs->cache);
    rocksdb_options_set_create_missing_column_families(op, 1);
    char **names = NULL;
    size_t count = 0;
    sl_err err = list_names(el, op, &names, &count, why);
    if (err != SL_OK)
        goto out;
    const rocksdb_options_t **ops = sl_calloc(count, sizeof *ops);
    rocksdb_column_family_handle_t **handles = sl_calloc(count, sizeof *handles);
    for (size_t i = 0; i < count; i++)
        ops[i] = cf_options(names[i], el->cfs->cache);
    char *message = NULL;
    el->db = rocksdb_open_column_families(op, el->dir, (int)count, (const char *const *)names, ops,
                                          handles, &message);
    if (message != NULL) {
        el->db = NULL;
        err = open_error(el, message, why);
    }
    for (size_t i = 0; i < count; i++) {
        if (err == SL_OK)
            cfs_add(el->cfs, names[i], handles[i]);
        if (err == SL_OK && i < ELOG_CF_FIXED)
            el->cf[i] = handles[i];
        rocksdb_options_destroy((rocksdb_options_t *)ops[i]);
        sl_free(names[i]);
    }
    sl_free(ops);
    sl_free(handles);
out:
    sl_free(names);
    rocksdb_options_destroy(op);
    return err;
}

sl_err elog_store_open(elog *el, char **why)
{
    if (el->dir[0] == '\0') {
        *why = sl_strdup("the log has no folder");
        return SL_EINVAL;
    }
    sl_err err = make_dirs(el->dir, why);
    if (err == SL_OK)
        err = take_lock(el, why);
    if (err != SL_OK)
        return err;
    el->cfs = sl_calloc(1, sizeof *el->cfs);
    el->cfs->cache = rocksdb_cache_create_lru(CACHE_BYTES);
    // Commits are written without a sync; the syncer's flush_wal makes them durable. The two ways
    // must never be mixed.
    el->wo = rocksdb_writeoptions_create();
    el->ro_point = rocksdb_readoptions_create();
    el->ro_fetch = rocksdb_readoptions_create();
    rocksdb_readoptions_set_fill_cache(el->ro_fetch, 0);
    el->ro_scan = rocksdb_readoptions_create();
    rocksdb_readoptions_set_fill_cache(el->ro_scan, 0);
    rocksdb_readoptions_set_readahead_size(el->ro_scan, 2u << 20);
    err = open_db(el, why);
    if (err == SL_OK)
        err = check_format(el, why);
    return err;
}

static void flush_all(elog *el)
{
    rocksdb_flushoptions_t *fo = rocksdb_flushoptions_create();
    rocksdb_flushoptions_set_wait(fo, 1);
    for (size_t i = 0; i < el->cfs->count; i++) {
        char *message = NULL;
        if (el->cfs->rows[i].name[0] == '\0')
            continue;
        rocksdb_flush_cf(el->db, fo, el->cfs->rows[i].handle, &message);
        if (message != NULL)
            (void)elog_store_error(message, "LOG-FLUSH-FAILED");
    }
    rocksdb_flushoptions_destroy(fo);
}

void elog_store_close(elog *el, bool flush)
{
    if (el->db != NULL && flush)
        flush_all(el);
    if (el->cfs != NULL) {
        for (size_t i = 0; i < el->cfs->count; i++) {
            rocksdb_column_family_handle_destroy(el->cfs->rows[i].handle);
            sl_free(el->cfs->rows[i].name);
        }
    }
    if (el->db != NULL)
        rocksdb_close(el->db);
    el->db = NULL;
    if (el->cfs != NULL) {
        rocksdb_cache_destroy(el->cfs->cache);
        sl_free(el->cfs->rows);
        sl_free(el->cfs);
        rocksdb_writeoptions_destroy(el->wo);
        rocksdb_readoptions_destroy(el->ro_point);
        rocksdb_readoptions_destroy(el->ro_fetch);
        rocksdb_readoptions_destroy(el->ro_scan);
    }
    el->cfs = NULL;
    if (el->lock_fd >= 0)
        close(el->lock_fd);
    el->lock_fd = -1;
}
