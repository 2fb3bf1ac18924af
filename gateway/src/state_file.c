/* SPDX-License-Identifier: Apache-2.0
 *
 * state_file: reading and replacing the file.
 */
#include "state_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json.h"

sl_err sl_state_file_begin(sl_buf *out, sl_slice session)
{
    return sl_state_file_add(out, session);
}

sl_err sl_state_file_add(sl_buf *out, sl_slice filter)
{
    sl_err err = sl_json_write_string(out, filter);
    return err == SL_OK ? sl_buf_append_u8(out, '\n') : err;
}

static sl_err write_all(int fd, sl_slice text)
{
    while (text.len > 0) {
        ssize_t done = write(fd, text.ptr, text.len);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return sl_err_from_errno(errno);
        text = sl_slice_of(text.ptr + done, text.len - (size_t)done);
    }
    return fsync(fd) == 0 ? SL_OK : sl_err_from_errno(errno);
}

sl_err sl_state_file_save(const char *path, sl_slice text)
{
    size_t len = strlen(path) + sizeof ".new";
    char *fresh = sl_alloc(len);
    snprintf(fresh, len, "%s.new", path);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR);
    sl_err err = fd < 0 ? sl_err_from_errno(errno) : write_all(fd, text);
    if (fd >= 0 && close(fd) != 0 && err == SL_OK)
        err = sl_err_from_errno(errno);
    if (err == SL_OK && rename(fresh, path) != 0)
        err = sl_err_from_errno(errno);
    sl_free(fresh);
    return err;
}

static sl_err read_whole(const char *path, sl_buf *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return sl_err_from_errno(errno);
    sl_err err = SL_OK;
    for (;;) {
        uint8_t *room;
        err = sl_buf_reserve(out, 65536, &room);
        if (err != SL_OK)
            break;
        ssize_t got = read(fd, room, 65536);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            err = sl_err_from_errno(errno);
        if (got <= 0)
            break;
        sl_buf_commit(out, (size_t)got);
    }
    close(fd);
    return err;
}

/* One line: decoded into text. A last line without LF was cut: damaged. */
static sl_err next_line(sl_slice *left, sl_buf *text)
{
    const uint8_t *end = memchr(left->ptr, '\n', left->len);
    if (end == NULL)
        return SL_ECORRUPT;
    sl_slice line = sl_slice_of(left->ptr, (size_t)(end - left->ptr));
    *left = sl_slice_of(end + 1, left->len - line.len - 1);
    sl_buf_clear(text);
    if (!sl_json_is_valid(line) || line.len < 2 || line.ptr[0] != '"')
        return SL_ECORRUPT;
    sl_json_value value = {.kind = SL_JSON_STRING, .raw = line};
    return sl_json_decode_string(value, text) == SL_OK ? SL_OK : SL_ECORRUPT;
}

sl_err sl_state_file_load(const char *path, sl_slice session,
                          void (*fn)(void *arg, sl_slice filter), void *arg)
{
    sl_buf all, text;
    sl_buf_init(&all, SL_STATE_FILE_MAX_BYTES + 65536);
    sl_buf_init(&text, SL_STATE_FILE_MAX_BYTES);
    sl_err err = read_whole(path, &all);
    sl_slice left = sl_buf_peek(&all);
    if (err == SL_OK)
        err = next_line(&left, &text);
    if (err == SL_OK && !sl_slice_equal(sl_buf_peek(&text), session))
        err = SL_ENOTFOUND;
    while (err == SL_OK && left.len > 0) {
        err = next_line(&left, &text);
        if (err == SL_OK)
            fn(arg, sl_buf_peek(&text));
    }
    sl_buf_fini(&all);
    sl_buf_fini(&text);
    return err;
}
