/* SPDX-License-Identifier: Apache-2.0
 *
 * dead_letter: appending to the file. One lock serializes the writer threads; it is held over write
 * and fsync, because whoever waits has to wait for the disk anyway.
 */
#include "dead_letter.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/buf.h"
#include "base/logger.h"

#define DEAD_MAGIC    0x53446c74u
#define FILE_MODE     0600
#define LOG_BURST     1
#define LOG_PERIOD_MS 10000

struct sl_dead_letter {
    uint32_t magic;
    char *path;  /* owned, absolute */
    char *older; /* owned, path + ".1" */
    char *dir;   /* owned */
    int64_t max_bytes;
    pthread_mutex_t lock; /* guards everything below */
    int fd;               /* -1: to be opened */
    int64_t size;         /* bytes of the file */
    bool cut;             /* the file does not end with LF */
    sl_log_limit failures;
    /* Figures are read without the lock: it is held while the disk works. */
    _Atomic uint64_t written, write_errors, bytes, rotations;
    _Atomic bool failing;
};

static char *join(const char *left, const char *right)
{
    size_t len = strlen(left) + strlen(right) + 1;
    char *text = sl_alloc(len);
    snprintf(text, len, "%s%s", left, right);
    return text;
}

static char *make_absolute(const char *path)
{
    if (path[0] == '/')
        return sl_strdup(path);
    while (path[0] == '.' && path[1] == '/')
        path += 2;
    char *cwd = getcwd(NULL, 0);
    char *folder = join(cwd != NULL ? cwd : "", "/");
    char *whole = join(folder, path);
    sl_free(folder);
    free(cwd); // getcwd's own allocation
    return whole;
}

static void sync_folder(const sl_dead_letter *dl)
{
    int fd = open(dl->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return; // the file itself is synced; only its name may be lost with the power
    if (fsync(fd) != 0)
        sl_warn(SL_C_WRITER, "DEADLETTER-FOLDER-SYNC", SL_S("folder", dl->dir),
                SL_E(sl_err_from_errno(errno)));
    close(fd);
}

static void close_file(sl_dead_letter *dl)
{
    if (dl->fd >= 0)
        close(dl->fd);
    dl->fd = -1;
}

static sl_err open_file(sl_dead_letter *dl)
{
    dl->fd = open(dl->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, FILE_MODE);
    if (dl->fd < 0)
        return sl_err_from_errno(errno);
    struct stat st;
    if (fstat(dl->fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close_file(dl);
        return SL_EIO;
    }
    dl->size = st.st_size;
    char last = '\n';
    if (dl->size > 0 && pread(dl->fd, &last, 1, dl->size - 1) != 1) {
        close_file(dl);
        return SL_EIO;
    }
    dl->cut = last != '\n';
    if (dl->size == 0)
        sync_folder(dl);
    return SL_OK;
}

/* Opens the file unless the open one still has the name (somebody may have moved it away). */
static sl_err ensure_open(sl_dead_letter *dl)
{
    struct stat have, named;
    if (dl->fd >= 0 && (fstat(dl->fd, &have) != 0 || stat(dl->path, &named) != 0 ||
                        have.st_ino != named.st_ino || have.st_dev != named.st_dev))
        close_file(dl);
    return dl->fd >= 0 ? SL_OK : open_file(dl);
}

static sl_err rotate(sl_dead_letter *dl)
{
    struct stat st;
    bool replaces = stat(dl->older, &st) == 0;
    if (rename(dl->path, dl->older) != 0)
        return sl_err_from_errno(errno);
    dl->rotations++;
    // what falls off the end was acknowledged: that is worth a loud line
    if (replaces)
        sl_error(SL_C_WRITER, "DEADLETTER-OVERWRITTEN", SL_S("file", dl->older),
                 SL_I("lost_bytes", st.st_size));
    else
        sl_warn(SL_C_WRITER, "DEADLETTER-ROTATED", SL_S("file", dl->path), SL_S("to", dl->older));
    close_file(dl);
    return open_file(dl);
}

static sl_err write_all(int fd, sl_slice bytes)
{
    while (bytes.len > 0) {
        ssize_t put = write(fd, bytes.ptr, bytes.len);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return sl_err_from_errno(errno);
        bytes = sl_slice_of(bytes.ptr + put, bytes.len - (size_t)put);
    }
    return SL_OK;
}

/* Writes and syncs; on failure takes the bytes back, or remembers that a line is cut. */
static sl_err put_bytes(sl_dead_letter *dl, sl_slice bytes)
{
    if (bytes.len == 0)
        return SL_OK;
    sl_err err = dl->cut ? write_all(dl->fd, sl_slice_str("\n")) : SL_OK;
    if (err == SL_OK)
        err = write_all(dl->fd, bytes);
    if (err == SL_OK && fsync(dl->fd) != 0)
        err = sl_err_from_errno(errno);
    if (err == SL_OK) {
        dl->size += (int64_t)bytes.len + (dl->cut ? 1 : 0);
        dl->cut = false;
        return SL_OK;
    }
    // after a failed fsync the page cache cannot be trusted: take back, close, look again
    if (ftruncate(dl->fd, dl->size) != 0)
        sl_warn(SL_C_WRITER, "DEADLETTER-LINE-CUT", SL_S("file", dl->path));
    close_file(dl);
    return err;
}

static sl_err write_line(const sl_dead_letter_entry *entry, sl_buf *lines)
{
    sl_err err = sl_document_write_json(entry->doc, &entry->fate, lines);
    return err == SL_OK ? sl_buf_append_u8(lines, '\n') : err;
}

static size_t line_bound(const sl_dead_letter_entry *entry)
{
    size_t texts =
        strlen(entry->fate.reason) + strlen(entry->fate.database) + strlen(entry->fate.collection);
    return sl_document_json_bound(entry->doc) + 6 * texts + 1;
}

/* Lines are gathered and written at once; before a line that would pass the maximum the gathered
 * ones are written and the file is renamed. */
static sl_err append_all(sl_dead_letter *dl, const sl_dead_letter_entry *entries, size_t count)
{
    sl_err err = ensure_open(dl);
    sl_buf lines, line;
    size_t bound = 0;
    for (size_t i = 0; i < count; i++)
        bound += line_bound(&entries[i]);
    sl_buf_init(&lines, bound);
    for (size_t i = 0; err == SL_OK && i < count; i++) {
        sl_buf_init(&line, line_bound(&entries[i]));
        err = write_line(&entries[i], &line);
        size_t waiting = sl_buf_peek(&lines).len, more = sl_buf_peek(&line).len;
        int64_t sofar = dl->size + (int64_t)waiting;
        if (err == SL_OK && sofar > 0 && sofar + (int64_t)more > dl->max_bytes) {
            err = put_bytes(dl, sl_buf_peek(&lines));
            sl_buf_clear(&lines);
            if (err == SL_OK)
                err = rotate(dl);
        }
        if (err == SL_OK)
            err = sl_buf_append_slice(&lines, sl_buf_peek(&line));
        sl_buf_fini(&line);
    }
    if (err == SL_OK)
        err = put_bytes(dl, sl_buf_peek(&lines));
    sl_buf_fini(&lines);
    return err;
}

static void note_result(sl_dead_letter *dl, sl_err err)
{
    uint32_t suppressed;
    if (err != SL_OK && sl_log_limit_pass(&dl->failures, LOG_BURST, LOG_PERIOD_MS, &suppressed))
        sl_error(SL_C_WRITER, "DEADLETTER-UNWRITABLE", SL_S("file", dl->path), SL_E(err),
                 SL_S("action", "messages are held unacknowledged"),
                 SL_U("suppressed", suppressed));
    if (err == SL_OK && dl->failing)
        sl_info(SL_C_WRITER, "DEADLETTER-WRITABLE", SL_S("file", dl->path));
    dl->failing = err != SL_OK;
    dl->bytes = (uint64_t)dl->size;
}

sl_err sl_dead_letter_append(sl_dead_letter *dl, const sl_dead_letter_entry *entries, size_t count)
{
    SL_CHECK(dl, DEAD_MAGIC);
    pthread_mutex_lock(&dl->lock);
    sl_err err = append_all(dl, entries, count);
    if (err == SL_OK)
        dl->written += count;
    else
        dl->write_errors++;
    note_result(dl, err);
    pthread_mutex_unlock(&dl->lock);
    return err;
}

sl_dead_letter *sl_dead_letter_new(const char *path, int64_t max_bytes)
{
    sl_dead_letter *dl = sl_calloc(1, sizeof *dl);
    dl->magic = DEAD_MAGIC;
    dl->path = make_absolute(path);
    dl->older = join(dl->path, ".1");
    size_t folder = (size_t)(strrchr(dl->path, '/') - dl->path);
    dl->dir = sl_strndup(dl->path, folder > 0 ? folder : 1);
    dl->max_bytes = max_bytes;
    dl->fd = -1;
    pthread_mutex_init(&dl->lock, NULL);
    sl_info(SL_C_WRITER, "DEADLETTER-FILE", SL_S("file", dl->path), SL_I("max_bytes", max_bytes));
    note_result(dl, open_file(dl));
    return dl;
}

void sl_dead_letter_free(sl_dead_letter **dl)
{
    sl_dead_letter *own = *dl;
    *dl = NULL;
    if (own == NULL)
        return;
    SL_CHECK(own, DEAD_MAGIC);
    close_file(own);
    pthread_mutex_destroy(&own->lock);
    sl_free(own->path);
    sl_free(own->older);
    sl_free(own->dir);
    own->magic = 0;
    sl_free(own);
}

void sl_dead_letter_read_stats(const sl_dead_letter *dl, sl_dead_letter_stats *out)
{
    SL_CHECK(dl, DEAD_MAGIC);
    *out = (sl_dead_letter_stats){.written = dl->written,
                                  .write_errors = dl->write_errors,
                                  .bytes = dl->bytes,
                                  .rotations = dl->rotations,
                                  .failing = dl->failing};
}

const char *sl_dead_letter_path(const sl_dead_letter *dl)
{
    return dl->path;
}
