/* SPDX-License-Identifier: Apache-2.0
 *
 * sse_int: what sse.c (connections) and sse_group.c (the way from the router) share.
 */
#ifndef SL_GATEWAY_SSE_INT_H
#define SL_GATEWAY_SSE_INT_H

#include <stdatomic.h>

#include "base/list.h"
#include "base/map.h"
#include "event.h"
#include "sse.h"

typedef struct sse_group sse_group;

/* One stream. Front's loop only. */
typedef struct sse_conn {
    sl_node node;  /* in sl_sse.list */
    sl_node gnode; /* in its group */
    sl_sse *sse;
    sse_group *group;
    sl_http_stream *st;
    sl_http_req *req; /* owned reference: roles and user, for later checks */
    uint64_t id;
    bool joined;       /* the snapshot has come; before it live messages are not for us */
    bool ended;        /* sl_http_stream_end was called */
    uint64_t from_seq; /* messages up to here were in the snapshot */
    uint64_t number;   /* of the last event */
    uint64_t gap;      /* messages lost since the last gap event */
    sl_message **ring; /* owned; holds references */
    uint32_t ring_first, ring_len, ring_cap;
    size_t ring_bytes;
    sl_message **replay; /* owned; holds references; cached values not yet sent, or NULL */
    size_t replay_at, replay_len;
    sl_event event; /* under way; rb NULL: none */
    bool id_sent;   /* of it */
    sl_mono_ms opened_at, last_write, expires_at;
    uint64_t auth_version, acl_version;
} sse_conn;

struct sl_sse {
    sl_sse_options opt;
    // front's loop
    sl_list list;   /* of sse_conn */
    sl_imap *conns; /* id -> sse_conn */
    sl_map *groups; /* filter -> sse_group that takes connections */
    sl_timer tick;
    bool ticking;
    bool warned_base64;
    uint64_t next_id;
    // router's loop
    sl_list dirty; /* groups with something in the outbox */
    // any thread
    sl_list all_groups; /* for free, front's loop */
    _Atomic bool stopping;
    _Atomic uint64_t sent, dropped, rejected, ended;
    _Atomic uint32_t open;
};

/* sse.c */
/** A live message for a connection; sse_pump follows. */
void sse_offer(sse_conn *cn, sl_message *msg);
/** count messages of its group were lost on the way. */
void sse_note_dropped(sse_conn *cn, uint64_t count);
/** The cached values (array and references are taken), and the sequence number they were read at.
 */
void sse_replay(sse_conn *cn, sl_message ***msgs, size_t count, uint64_t seq);
/** Writes what the stream takes. */
void sse_pump(sse_conn *cn);

/* sse_group.c */
void sse_group_init(sl_sse *sse);
void sse_group_fini(sl_sse *sse);
/** Puts a connection into the group of its filter; its snapshot comes in a later turn. */
void sse_group_join(sse_conn *cn, sl_slice filter, uint8_t qos);
/** Takes it out; the last one out ends the group. */
void sse_group_leave(sse_conn *cn);
/** The same when the loops are gone. */
void sse_group_forget(sse_conn *cn);
uint32_t sse_group_size(sl_sse *sse, sl_slice filter);
sl_slice sse_group_filter(const sse_group *gr);

#endif
