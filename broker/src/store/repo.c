/* SPDX-License-Identifier: Apache-2.0
 *
 * repo: see repo.h.
 */
#include "store/repo.h"

#include <stdio.h>
#include <sys/random.h>

#include "base/alloc.h"

void sl_repo_new_id(char out[SL_REPO_ID_BYTES])
{
    uint8_t raw[16];
    ssize_t got = getrandom(raw, sizeof(raw), 0); // 16 bytes are never given in part
    SL_ASSERT(got == (ssize_t)sizeof(raw));
    raw[6] = (uint8_t)((raw[6] & 0x0f) | 0x40); // version 4
    raw[8] = (uint8_t)((raw[8] & 0x3f) | 0x80); // variant of RFC 4122
    char *at = out;
    for (size_t i = 0; i < sizeof(raw); i++) {
        const char *dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        at += snprintf(at, (size_t)(out + SL_REPO_ID_BYTES - at), "%s%02x", dash, raw[i]);
    }
}

sl_err sl_repo_exec(sl_db *db, sl_loop *lp, const sl_db_stmt *stmts, size_t count, unsigned flags,
                    sl_db_done_f *bridge, void (*fn)(void), void *arg)
{
    sl_repo_call *call = NULL;
    if (fn != NULL) {
        call = sl_alloc(sizeof(*call));
        *call = (sl_repo_call){.fn = fn, .arg = arg};
    }
    sl_err err = sl_db_exec(db, lp, stmts, count, flags, fn == NULL ? NULL : bridge, call);
    if (err != SL_OK)
        sl_free(call);
    return err;
}

static void finish(sl_repo_call *call, sl_err err)
{
    ((sl_repo_done_f *)call->fn)(call->arg, err);
    sl_free(call);
}

void sl_repo_on_done(void *arg, const sl_db_done *done)
{
    finish(arg, done->err);
}

void sl_repo_on_changed(void *arg, const sl_db_done *done)
{
    sl_err err = done->err;
    if (err == SL_OK && done->results[done->result_count - 1].affected == 0)
        err = SL_ENOTFOUND;
    finish(arg, err);
}

char *sl_repo_like(sl_slice search)
{
    char *text = sl_alloc(search.len * 2 + 3);
    char *at = text;
    *at++ = '%';
    for (size_t i = 0; i < search.len; i++) {
        char c = (char)search.ptr[i];
        if (c == '%' || c == '_' || c == '\\')
            *at++ = '\\';
        *at++ = c;
    }
    *at++ = '%';
    *at = 0;
    return text;
}
