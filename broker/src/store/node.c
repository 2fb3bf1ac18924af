/* SPDX-License-Identifier: Apache-2.0
 *
 * node: see node.h. The metadata may be another machine's and away for now: asked again every few
 * seconds until it has answered once.
 */
#include "store/node.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/logger.h"
#include "store/repo_settings.h"

#define FILE_NAME    "node-id"
#define FILE_MODE    0640
#define RETRY_MS     5000
#define DOCUMENT_MAX 4096
#define MARK_BYTES   (SL_REPO_ID_BYTES - 1)

struct sl_node_identity {
    sl_db *db;   /* borrowed */
    sl_loop *lp; /* borrowed */
    sl_clock *ck;
    sl_timer again;
    char mark[SL_REPO_ID_BYTES];
    char *service_id; /* owned */
    char *known_as;   /* owned; NULL until the metadata answered */
    sl_wall_ms created;
    bool warned;
};

/* ---- the mark */

static bool is_mark(const char *text)
{
    return strlen(text) == MARK_BYTES && strspn(text, "0123456789abcdef-") == MARK_BYTES;
}

static sl_err read_mark(const char *path, char mark[SL_REPO_ID_BYTES])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return sl_err_from_errno(errno);
    char text[SL_REPO_ID_BYTES + 1] = {0};
    ssize_t got = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (got < 0)
        return SL_EIO;
    text[strcspn(text, "\n")] = 0;
    if (!is_mark(text))
        return SL_ECORRUPT;
    memcpy(mark, text, SL_REPO_ID_BYTES);
    return SL_OK;
}

static bool write_whole(int fd, const char *mark)
{
    return write(fd, mark, MARK_BYTES) == MARK_BYTES && write(fd, "\n", 1) == 1 && fsync(fd) == 0;
}

// Written beside and renamed: a crash leaves the old file or the new one, never a half.
static sl_err make_mark(const char *path, char mark[SL_REPO_ID_BYTES])
{
    sl_repo_new_id(mark);
    size_t size = strlen(path) + 5;
    char *beside = sl_alloc(size);
    snprintf(beside, size, "%s.new", path);
    int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, FILE_MODE);
    bool good = fd >= 0 && write_whole(fd, mark);
    int cause = errno;
    if (fd >= 0)
        close(fd);
    if (good && rename(beside, path) != 0) {
        good = false;
        cause = errno;
    }
    sl_free(beside);
    return good ? SL_OK : sl_err_from_errno(cause);
}

static sl_err find_mark(sl_node_identity *nd, const char *dir, char **why)
{
    size_t size = strlen(dir) + sizeof(FILE_NAME) + 1;
    char *path = sl_alloc(size);
    snprintf(path, size, "%s/%s", dir, FILE_NAME);
    sl_err err = read_mark(path, nd->mark);
    if (err == SL_ECORRUPT)
        sl_warn(SL_C_BROKER, "NODE-ID-DAMAGED", SL_S("file", path),
                SL_S("what", "a new mark is made; the folder counts as new"));
    if (err == SL_ENOTFOUND || err == SL_ECORRUPT)
        err = make_mark(path, nd->mark);
    if (err != SL_OK) {
        char text[512];
        snprintf(text, sizeof(text), "%s cannot be read or written: %s", path, sl_err_text(err));
        *why = sl_strdup(text);
    }
    sl_free(path);
    return err;
}

/* ---- the metadata */

static char *name_in(sl_slice json)
{
    sl_json_value value;
    sl_buf text;
    sl_buf_init(&text, DOCUMENT_MAX);
    char *name = NULL;
    if (sl_json_find(json, "serviceId", &value) == SL_OK && value.kind == SL_JSON_STRING &&
        sl_json_decode_string(value, &text) == SL_OK) {
        sl_slice got = sl_buf_peek(&text);
        name = sl_strndup(got.ptr, got.len);
    }
    sl_buf_fini(&text);
    return name;
}

static void on_identity(void *arg, sl_err err, const sl_setting *st)
{
    sl_node_identity *nd = arg;
    char *name = err == SL_OK ? name_in(st->json) : NULL;
    if (err == SL_ECLOSED)
        return;
    if (name == NULL) {
        if (!nd->warned)
            sl_warn(SL_C_BROKER, "NODE-IDENTITY-UNKNOWN", SL_E(err == SL_OK ? SL_ECORRUPT : err),
                    SL_S("node", nd->mark));
        nd->warned = true;
        if (err != SL_OK) // a document that cannot be read will not get better
            sl_timer_start(&nd->again, RETRY_MS, 0);
        return;
    }
    nd->known_as = name;
    nd->created = st->created;
    if (strcmp(name, nd->service_id) != 0)
        sl_warn(SL_C_BROKER, "NODE-RENAMED", SL_S("service_id", nd->service_id),
                SL_S("data_belongs_to", name),
                SL_S("do", "set TB_SERVICE_ID to the old name, or use another SLUICE_DATA_DIR"));
    else
        sl_info(SL_C_BROKER, "NODE-IDENTITY", SL_S("service_id", nd->service_id),
                SL_S("node", nd->mark), SL_I("created_at_ms", nd->created));
}

static void ask(void *arg)
{
    sl_node_identity *nd = arg;
    char key[sizeof("node.") + SL_REPO_ID_BYTES];
    snprintf(key, sizeof(key), "node.%s", nd->mark);
    sl_buf json;
    sl_buf_init(&json, DOCUMENT_MAX);
    sl_err err = sl_buf_append_str(&json, "{\"serviceId\":");
    if (err == SL_OK)
        err = sl_json_write_string(&json, sl_slice_str(nd->service_id));
    if (err == SL_OK)
        err = sl_buf_append_str(&json, "}");
    if (err == SL_OK)
        err = sl_settings_ensure(nd->db, nd->lp, sl_slice_str(key), sl_buf_peek(&json),
                                 sl_clock_wall(nd->ck), on_identity, nd);
    sl_buf_fini(&json);
    if (err != SL_OK)
        on_identity(nd, err, NULL);
}

sl_err sl_node_identity_new(sl_db *db, sl_loop *lp, sl_clock *ck, const char *dir,
                            const char *service_id, sl_node_identity **out, char **why)
{
    sl_node_identity *nd = sl_calloc(1, sizeof(*nd));
    nd->db = db;
    nd->lp = lp;
    nd->ck = ck;
    nd->service_id = sl_strdup(service_id);
    sl_timer_init(&nd->again, lp, ask, nd);
    sl_err err = find_mark(nd, dir, why);
    if (err == SL_OK && !sl_loop_call(lp, ask, nd))
        err = SL_ECLOSED;
    if (err == SL_OK)
        *out = nd;
    else
        sl_node_identity_free(&nd);
    return err;
}

void sl_node_identity_free(sl_node_identity **pointer)
{
    sl_node_identity *nd = *pointer;
    *pointer = NULL;
    if (nd == NULL)
        return;
    sl_free(nd->service_id);
    sl_free(nd->known_as);
    sl_free(nd);
}

bool sl_node_identity_known(const sl_node_identity *nd, const char **known_as, sl_wall_ms *created)
{
    if (nd->known_as == NULL)
        return false;
    *known_as = nd->known_as;
    *created = nd->created;
    return true;
}
