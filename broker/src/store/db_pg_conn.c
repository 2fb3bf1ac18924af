/* SPDX-License-Identifier: Apache-2.0
 *
 * db_pg_conn: see db_pg_conn.h. libpq is driven without blocking: connect, send and receive wait in
 * poll with a limit, look at the port's end and let requests expire meanwhile. Only the look-up of
 * a host name blocks inside libpq.
 *
 * Parameters go as text of a type that the server infers from the statement, BYTES as binary; so
 * one SQL text needs no casts. Statements are not prepared: nothing is kept in a session, and
 * poolers in transaction mode work.
 */
#include "store/db_pg_conn.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include <libpq-fe.h>

#include "base/alloc.h"

#define SLICE_MS     100  /* between two looks at what expires */
#define GRACE_MS     2000 /* over the server's own limit, and for what runs when the port closes */
#define KEYWORD_MAX  24
#define TYPE_BOOL    16
#define TYPE_BYTEA   17
#define TYPE_INT8    20
#define TYPE_INT2    21
#define TYPE_INT4    23
#define TYPE_FLOAT4  700
#define TYPE_FLOAT8  701
#define TYPE_NUMERIC 1700
#define NUMBER_BYTES 40
#define STATE_BYTES  5
#define READ_ONLY    "25006"

/* ---- errors */

static void first_line(db_pg_conn *pc, const char *text)
{
    snprintf(pc->why, sizeof(pc->why), "%s", text == NULL ? "" : text);
    pc->why[strcspn(pc->why, "\r\n")] = 0;
}

// While a connection is made the code is in the text only: "FATAL:  28P01: password ..." (the words
// are in the server's language, the code is not).
static void state_of_text(db_pg_conn *pc, const char *text)
{
    pc->state[0] = 0;
    for (const char *at = text; (at = strstr(at, ":  ")) != NULL; at++) {
        const char *code = at + 3;
        size_t len = strspn(code, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ");
        if (len == STATE_BYTES && code[len] == ':') {
            memcpy(pc->state, code, STATE_BYTES);
            pc->state[STATE_BYTES] = 0;
            return;
        }
    }
}

static bool begins(const char *state, const char *with)
{
    return strncmp(state, with, strlen(with)) == 0;
}

static const struct {
    const char *state; /* or its beginning; the first that fits counts */
    sl_err err;
} STATES[] = {
    {"23505", SL_EEXIST},    {"23", SL_EINVAL},      {"22", SL_EINVAL},       {"42501", SL_EDENIED},
    {"42", SL_EINVAL},       {"28", SL_EDENIED},     {"3D000", SL_ENOTFOUND}, {"40", SL_EAGAIN},
    {"53100", SL_ENOSPC},    {"53", SL_EAGAIN},      {"54", SL_ETOOBIG},      {"55P03", SL_EAGAIN},
    {"57014", SL_ETIMEDOUT}, {"57", SL_ECONN},       {"08P01", SL_EINVAL},    {"08", SL_ECONN},
    {"25006", SL_ECONN},     {"XX001", SL_ECORRUPT}, {"XX002", SL_ECORRUPT},  {"58", SL_EIO},
};

static sl_err err_of_state(const char *state)
{
    for (size_t i = 0; state[0] != 0 && i < sizeof(STATES) / sizeof(STATES[0]); i++) {
        if (begins(state, STATES[i].state))
            return STATES[i].err;
    }
    return state[0] == 0 ? SL_ECONN : SL_EIO;
}

/* ---- waiting */

// Waits for the socket; false when the time is over, the port closes or poll fails.
static bool wait_socket(db_pg_conn *pc, short events, sl_mono_ms *until)
{
    struct pollfd fds[2] = {{.fd = PQsocket(pc->link), .events = events},
                            {.fd = pc->end_fd, .events = POLLIN}};
    while (fds[0].fd >= 0) {
        sl_mono_ms now = db_now(pc->db);
        if (now >= *until)
            return false;
        sl_dur_ms left = *until - now;
        int rc = poll(fds, 2, (int)(left < SLICE_MS ? left : SLICE_MS));
        if (rc < 0 && errno != EINTR)
            return false;
        if (rc > 0 && fds[0].revents != 0)
            return true;
        if (rc > 0 && fds[1].revents != 0) { // closing: what runs gets a moment
            *until = *until < now + GRACE_MS ? *until : now + GRACE_MS;
            fds[1].fd = -1;
        }
        db_queue_expire(pc->db);
    }
    return false;
}

bool db_pg_sleep(db_pg_conn *pc, sl_dur_ms ms)
{
    sl_mono_ms until = db_now(pc->db) + ms;
    struct pollfd fd = {.fd = pc->end_fd, .events = POLLIN};
    for (sl_mono_ms now; (now = db_now(pc->db)) < until;) {
        sl_dur_ms left = until - now;
        if (poll(&fd, 1, (int)(left < SLICE_MS ? left : SLICE_MS)) > 0)
            return false;
        db_queue_expire(pc->db);
    }
    return !db_queue_is_closed(&pc->db->queue);
}

/* ---- connecting */

bool db_pg_check_url(const char *url, const char **why)
{
    // libpq's message would quote the URL, password and all.
    char *message = NULL;
    PQconninfoOption *options = PQconninfoParse(url, &message);
    PQfreemem(message);
    if (options == NULL) {
        *why = "the URL cannot be read; special characters in it must be percent-encoded";
        return false;
    }
    // The port is not looked at before connecting, which would go on failing for ever.
    bool good = true;
    for (const PQconninfoOption *op = options; op->keyword != NULL; op++) {
        if (strcmp(op->keyword, "port") == 0 && op->val != NULL)
            good = op->val[strspn(op->val, "0123456789,")] == 0;
    }
    PQconninfoFree(options);
    if (!good)
        *why = "the port in the URL is no number";
    return good;
}

static void swallow_notice(void *arg, const char *message)
{
    (void)arg;
    (void)message; // "table exists, skipping" and the like; libpq would write them to stderr
}

static PGconn *begin_connect(const db_pg_target *target)
{
    // What comes before dbname is a default that the URL may override.
    const char *const keys[] = {"user",
                                "password",
                                "fallback_application_name",
                                "keepalives_idle",
                                "keepalives_interval",
                                "keepalives_count",
                                "gssencmode",
                                "target_session_attrs",
                                "dbname",
                                "tcp_user_timeout",
                                NULL};
    const char *const values[] = {
        target->user, target->password, "sluice-broker", "30",    "10", "3",
        "disable",    "read-write",     target->url,     "20000", NULL};
    _Static_assert(sizeof(keys) == sizeof(values), "a value for each key");
    PGconn *link = PQconnectStartParams(keys, values, 1);
    if (link != NULL) {
        PQsetErrorVerbosity(link, PQERRORS_VERBOSE);
        PQsetNoticeProcessor(link, swallow_notice, NULL);
    }
    return link;
}

static sl_err refused(db_pg_conn *pc, sl_err err)
{
    const char *text = pc->link == NULL ? "out of memory" : PQerrorMessage(pc->link);
    first_line(pc, text);
    state_of_text(pc, text);
    if (pc->state[0] != 0)
        err = err_of_state(pc->state);
    else if (pc->link != NULL && PQconnectionNeedsPassword(pc->link))
        err = SL_EDENIED;
    db_pg_close(pc);
    return err == SL_EDENIED || err == SL_ENOTFOUND || err == SL_ETIMEDOUT ? err : SL_ECONN;
}

// The server's own limit per statement; not as a start option, which poolers refuse.
static sl_err set_up(db_pg_conn *pc)
{
    char sql[96], text[64];
    const sl_db_options *op = &pc->db->options;
    snprintf(sql, sizeof(sql), "SET statement_timeout = %lld", (long long)op->statement_ms);
    return db_pg_text(pc, sql, op->connect_ms, text);
}

sl_err db_pg_connect(db_pg_conn *pc, const db_pg_target *target)
{
    sl_mono_ms until = db_now(pc->db) + pc->db->options.connect_ms;
    pc->link = begin_connect(target);
    if (pc->link == NULL || PQstatus(pc->link) == CONNECTION_BAD)
        return refused(pc, SL_ECONN);
    PostgresPollingStatusType step = PGRES_POLLING_WRITING;
    while (step == PGRES_POLLING_READING || step == PGRES_POLLING_WRITING) {
        // libpq closes and opens sockets while it tries addresses: asked for anew each time
        if (!wait_socket(pc, step == PGRES_POLLING_READING ? POLLIN : POLLOUT, &until)) {
            db_pg_close(pc);
            snprintf(pc->why, sizeof(pc->why), "no answer to a connection attempt");
            pc->state[0] = 0;
            return SL_ETIMEDOUT;
        }
        step = PQconnectPoll(pc->link);
    }
    if (step != PGRES_POLLING_OK || PQsetnonblocking(pc->link, 1) != 0)
        return refused(pc, SL_ECONN);
    PQsetErrorVerbosity(pc->link, PQERRORS_DEFAULT);
    pc->born = pc->used = db_now(pc->db);
    db_count(pc->db, SL_DB_STAT_CONNECTS, 1);
    sl_err err = set_up(pc);
    if (err != SL_OK)
        db_pg_close(pc);
    return err == SL_OK ? SL_OK : SL_ECONN;
}

void db_pg_close(db_pg_conn *pc)
{
    PQfinish(pc->link);
    pc->link = NULL;
}

// An idle connection has nothing to read, unless the server said goodbye or is gone.
bool db_pg_is_alive(db_pg_conn *pc)
{
    struct pollfd fd = {.fd = PQsocket(pc->link), .events = POLLIN};
    if (pc->link == NULL || fd.fd < 0)
        return false;
    return poll(&fd, 1, 0) == 0 || (PQconsumeInput(pc->link) == 1 &&
                                    PQstatus(pc->link) == CONNECTION_OK && poll(&fd, 1, 0) == 0);
}

/* ---- one statement */

/* Parameters as libpq wants them: numbers need a text. */
typedef struct pg_params {
    const char *values[SL_DB_MAX_PARAMS];
    int lengths[SL_DB_MAX_PARAMS];
    int formats[SL_DB_MAX_PARAMS];
    char numbers[SL_DB_MAX_PARAMS][NUMBER_BYTES];
    char *texts[SL_DB_MAX_PARAMS]; /* owned copies with a NUL */
} pg_params;

static void set_param(pg_params *pp, size_t i, const sl_db_value *value)
{
    pp->lengths[i] = 0;
    pp->formats[i] = 0;
    pp->texts[i] = NULL;
    pp->values[i] = pp->numbers[i];
    switch (value->type) {
    case SL_DB_INT:
        snprintf(pp->numbers[i], NUMBER_BYTES, "%lld", (long long)value->num);
        break;
    case SL_DB_BOOL:
        snprintf(pp->numbers[i], NUMBER_BYTES, "%s", value->num != 0 ? "true" : "false");
        break;
    case SL_DB_DOUBLE:
        snprintf(pp->numbers[i], NUMBER_BYTES, "%.17g", value->real);
        break;
    case SL_DB_TEXT:
        pp->texts[i] = sl_strndup(value->bytes.ptr, value->bytes.len);
        pp->values[i] = pp->texts[i];
        break;
    case SL_DB_BYTES:
        pp->values[i] = value->bytes.len == 0 ? "" : (const char *)value->bytes.ptr;
        pp->lengths[i] = (int)value->bytes.len;
        pp->formats[i] = 1;
        break;
    default:
        pp->values[i] = NULL;
        break;
    }
}

static bool send_statement(db_pg_conn *pc, const sl_db_stmt *stmt)
{
    pg_params *pp = sl_alloc(sizeof(*pp));
    for (size_t i = 0; i < stmt->param_count; i++)
        set_param(pp, i, &stmt->params[i]);
    int sent = PQsendQueryParams(pc->link, stmt->sql, (int)stmt->param_count, NULL, pp->values,
                                 pp->lengths, pp->formats, 0);
    for (size_t i = 0; i < stmt->param_count; i++)
        sl_free(pp->texts[i]);
    sl_free(pp);
    return sent == 1;
}

// Sends what is buffered, reading meanwhile: a server that wants to be read takes nothing.
static bool flush(db_pg_conn *pc, sl_mono_ms *until)
{
    int rc;
    while ((rc = PQflush(pc->link)) == 1) {
        if (!wait_socket(pc, POLLIN | POLLOUT, until) || PQconsumeInput(pc->link) != 1)
            return false;
    }
    return rc == 0;
}

// The next result of what was sent, NULL at its end. False: the connection is gone or too slow.
static bool next_result(db_pg_conn *pc, sl_mono_ms *until, PGresult **out)
{
    while (PQisBusy(pc->link)) {
        if (!wait_socket(pc, POLLIN, until) || PQconsumeInput(pc->link) != 1)
            return false;
    }
    *out = PQgetResult(pc->link);
    return true;
}

static sl_err lost(db_pg_conn *pc)
{
    pc->state[0] = 0;
    const char *text = PQerrorMessage(pc->link);
    first_line(pc, text != NULL && text[0] != 0 ? text : "no answer");
    return SL_ECONN;
}

// Sends one statement and waits for its only result (owned by the caller, NULL on error).
static sl_err ask(db_pg_conn *pc, const sl_db_stmt *stmt, sl_dur_ms limit_ms, PGresult **out)
{
    sl_mono_ms until = db_now(pc->db) + limit_ms;
    *out = NULL;
    if (!send_statement(pc, stmt) || !flush(pc, &until))
        return lost(pc);
    PGresult *result = NULL, *more = NULL;
    if (!next_result(pc, &until, &result))
        return lost(pc);
    while (next_result(pc, &until, &more) && more != NULL)
        PQclear(more);
    pc->used = db_now(pc->db);
    ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) {
        *out = result;
        return SL_OK;
    }
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    snprintf(pc->state, sizeof(pc->state), "%s", state == NULL ? "" : state);
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    first_line(pc, text != NULL ? text : PQresultErrorMessage(result));
    PQclear(result);
    sl_err err = err_of_state(pc->state);
    return PQstatus(pc->link) == CONNECTION_BAD ? SL_ECONN : err;
}

sl_err db_pg_text(db_pg_conn *pc, const char *sql, sl_dur_ms limit_ms, char text[64])
{
    text[0] = 0;
    PGresult *result;
    sl_err err = ask(pc, &(sl_db_stmt){.sql = sql}, limit_ms, &result);
    if (err == SL_OK && PQntuples(result) > 0 && PQnfields(result) > 0)
        snprintf(text, 64, "%s", PQgetvalue(result, 0, 0));
    PQclear(result);
    return err;
}

/* ---- results */

static sl_db_value number_of(const char *text)
{
    char *end;
    errno = 0;
    long long whole = strtoll(text, &end, 10);
    if (errno == 0 && *end == 0)
        return SL_DB_P_INT(whole);
    return SL_DB_P_DOUBLE(strtod(text, NULL));
}

static sl_err add_bytes(db_request *rq, size_t at, const char *text)
{
    size_t len = 0;
    unsigned char *bytes = PQunescapeBytea((const unsigned char *)text, &len);
    if (bytes == NULL)
        return SL_ETOOBIG;
    sl_db_value value = SL_DB_P_BYTES(sl_slice_of(bytes, len));
    sl_err err = db_rows_add(rq, at, &value);
    PQfreemem(bytes);
    return err;
}

static sl_err add_cell(db_request *rq, size_t at, const PGresult *result, int row, int column)
{
    sl_db_value value = {.type = SL_DB_NULL};
    const char *text = PQgetvalue(result, row, column);
    size_t len = (size_t)PQgetlength(result, row, column);
    if (PQgetisnull(result, row, column))
        return db_rows_add(rq, at, &value);
    switch (PQftype(result, column)) {
    case TYPE_BOOL:
        value = SL_DB_P_BOOL(text[0] == 't');
        break;
    case TYPE_BYTEA:
        return add_bytes(rq, at, text);
    case TYPE_INT2:
    case TYPE_INT4:
    case TYPE_INT8:
    case TYPE_NUMERIC:
        value = number_of(text);
        break;
    case TYPE_FLOAT4:
    case TYPE_FLOAT8:
        value = SL_DB_P_DOUBLE(strtod(text, NULL));
        break;
    default:
        value = SL_DB_P_TEXT(sl_slice_of(text, len));
        break;
    }
    return db_rows_add(rq, at, &value);
}

static sl_err add_rows(db_request *rq, size_t at, PGresult *result)
{
    int columns = PQnfields(result), rows = PQntuples(result);
    db_rows_begin(rq, at, (size_t)columns);
    const char *command = PQcmdStatus(result);
    if (strncmp(command, "SELECT", 6) != 0)
        rq->rows[at].res.affected = strtoll(PQcmdTuples(result), NULL, 10);
    for (int row = 0; row < rows; row++) {
        for (int column = 0; column < columns; column++) {
            sl_err err = add_cell(rq, at, result, row, column);
            if (err != SL_OK)
                return err;
        }
    }
    return SL_OK;
}

/* ---- a request */

static sl_err run_one(db_pg_conn *pc, db_request *rq, size_t at)
{
    PGresult *result;
    sl_err err = ask(pc, &rq->stmts[at], pc->db->options.statement_ms + GRACE_MS, &result);
    if (err != SL_OK && strcmp(pc->state, READ_ONLY) == 0 && (rq->flags & SL_DB_READ) != 0)
        err = SL_EDENIED; // our doing, not a standby's
    if (err == SL_OK)
        err = add_rows(rq, at, result);
    if (err == SL_ETOOBIG && pc->state[0] == 0)
        snprintf(pc->why, sizeof(pc->why), "the result is too large");
    PQclear(result);
    if (err != SL_OK)
        db_request_fail(rq, at, err, pc->why);
    return err;
}

static sl_err run_text(db_pg_conn *pc, db_request *rq, const char *sql)
{
    char text[64];
    sl_err err = db_pg_text(pc, sql, pc->db->options.statement_ms + GRACE_MS, text);
    if (err != SL_OK)
        db_request_fail(rq, 0, err, pc->why);
    return err;
}

static db_pg_outcome judge(db_pg_conn *pc, sl_err err, bool may_be_stored)
{
    if (err == SL_ECONN) {
        db_pg_close(pc);
        may_be_stored = may_be_stored && strcmp(pc->state, READ_ONLY) != 0;
        return may_be_stored ? DB_PG_LOST_MAYBE : DB_PG_LOST;
    }
    return err == SL_EAGAIN ? DB_PG_AGAIN : DB_PG_DONE;
}

static db_pg_outcome run_transaction(db_pg_conn *pc, db_request *rq)
{
    bool reads = (rq->flags & SL_DB_READ) != 0;
    sl_err err =
        run_text(pc, rq, reads ? "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" : "BEGIN");
    if (err != SL_OK)
        return judge(pc, err, false);
    for (size_t i = 0; err == SL_OK && i < rq->count; i++)
        err = run_one(pc, rq, i);
    if (err == SL_OK) {
        err = run_text(pc, rq, "COMMIT");
        if (err == SL_OK)
            db_count(pc->db, SL_DB_STAT_COMMITS, 1);
        return judge(pc, err, !reads);
    }
    db_pg_outcome outcome = judge(pc, err, false);
    char text[64];
    if (pc->link != NULL && db_pg_text(pc, "ROLLBACK", GRACE_MS, text) != SL_OK)
        db_pg_close(pc); // the server undoes it when it sees the end
    return outcome;
}

db_pg_outcome db_pg_run(db_pg_conn *pc, db_request *rq)
{
    db_request_reset(pc->db, rq);
    pc->state[0] = 0;
    bool reads = (rq->flags & SL_DB_READ) != 0;
    // Rows that come back may be too many: then the change must still be undone.
    if (rq->count > 1 || (!reads && strcasestr(rq->stmts[0].sql, "RETURNING") != NULL))
        return run_transaction(pc, rq);
    sl_err err = run_one(pc, rq, 0);
    if (err == SL_OK && !reads)
        db_count(pc->db, SL_DB_STAT_COMMITS, 1);
    return judge(pc, err, !reads);
}
