/* SPDX-License-Identifier: Apache-2.0
 *
 * log_embedded_ops: rows that ride in a group commit beside the records: rows of embedded_kv, the
 * ledger of open QoS 2 ids, offsets committed behind a producer's writes. A producer packs them
 * into its segment; the writer unpacks them into the commit's WriteBatch. Memory only, never
 * stored, so pointers may stand in it.
 *
 *   PUT, DELETE, DELETE_RANGE  kind u8 | family pointer | key length u32 | value length u32 | bytes
 *   LEDGER_OPEN, _RELEASE      kind u8 | packet id u16 | client length u16 | client
 *   GOFF                       kind u8 | goff pointer | offset u64
 */
#include <string.h>

#include "base/assert.h"
#include "log/bytes.h"
#include "log/elog_fn.h"

#define ROW_HEAD    (1 + sizeof(void *) + 8)
#define LEDGER_HEAD 5

size_t elog_op_row_bytes(size_t key_len, size_t value_len)
{
    return ROW_HEAD + key_len + value_len;
}

uint8_t *elog_op_put_row(uint8_t *at, uint8_t kind, rocksdb_column_family_handle_t *cf,
                         sl_slice key, const sl_slice *value, size_t value_count)
{
    size_t value_len = 0;
    for (size_t i = 0; i < value_count; i++)
        value_len += value[i].len;
    *at++ = kind;
    memcpy(at, &cf, sizeof cf);
    at += sizeof cf;
    sl_put_u32(at, (uint32_t)key.len);
    sl_put_u32(at + 4, (uint32_t)value_len);
    at += 8;
    if (key.len > 0)
        memcpy(at, key.ptr, key.len);
    at += key.len;
    for (size_t i = 0; i < value_count; i++) {
        if (value[i].len > 0)
            memcpy(at, value[i].ptr, value[i].len);
        at += value[i].len;
    }
    return at;
}

size_t elog_op_ledger_bytes(sl_slice client)
{
    return LEDGER_HEAD + client.len;
}

uint8_t *elog_op_put_ledger(uint8_t *at, uint8_t kind, sl_slice client, uint16_t packet_id)
{
    *at++ = kind;
    sl_put_u16(at, packet_id);
    sl_put_u16(at + 2, (uint16_t)client.len);
    at += 4;
    if (client.len > 0)
        memcpy(at, client.ptr, client.len);
    return at + client.len;
}

uint8_t *elog_op_put_goff(uint8_t *at, elog_goff *goff, uint64_t offset)
{
    *at++ = ELOG_OP_GOFF;
    memcpy(at, &goff, sizeof goff);
    sl_put_u64(at + sizeof goff, offset);
    return at + sizeof goff + 8;
}

/* ---- unpacking ---- */

typedef struct op_view {
    uint8_t kind;
    rocksdb_column_family_handle_t *cf;
    sl_slice key; /* or the client */
    sl_slice value;
    uint16_t packet_id;
    elog_goff *goff;
    uint64_t offset;
} op_view;

static const uint8_t *read_op(const uint8_t *at, op_view *out)
{
    out->kind = *at++;
    switch (out->kind) {
    case ELOG_OP_LEDGER_OPEN:
    case ELOG_OP_LEDGER_RELEASE:
        out->packet_id = sl_get_u16(at);
        out->key = sl_slice_of(at + 4, sl_get_u16(at + 2));
        return at + 4 + out->key.len;
    case ELOG_OP_GOFF:
        memcpy(&out->goff, at, sizeof out->goff);
        out->offset = sl_get_u64(at + sizeof out->goff);
        return at + sizeof out->goff + 8;
    default:
        memcpy(&out->cf, at, sizeof out->cf);
        at += sizeof out->cf;
        out->key = sl_slice_of(at + 8, sl_get_u32(at));
        out->value = sl_slice_of(at + 8 + out->key.len, sl_get_u32(at + 4));
        return at + 8 + out->key.len + out->value.len;
    }
}

static void write_ledger(elog *el, const op_view *op, rocksdb_writebatch_t *wb)
{
    char key[2 + UINT16_MAX + 2];
    sl_put_u16((uint8_t *)key, (uint16_t)op->key.len);
    if (op->key.len > 0)
        memcpy(key + 2, op->key.ptr, op->key.len);
    sl_put_u16((uint8_t *)key + 2 + op->key.len, op->packet_id);
    size_t len = 2 + op->key.len + 2;
    if (op->kind == ELOG_OP_LEDGER_OPEN)
        rocksdb_writebatch_put_cf(wb, el->cf[ELOG_CF_QOS2], key, len, "", 0);
    else
        rocksdb_writebatch_delete_cf(wb, el->cf[ELOG_CF_QOS2], key, len);
}

static void write_op(elog *el, op_view *op, rocksdb_writebatch_t *wb)
{
    const char *key = (const char *)op->key.ptr;
    const char *value = (const char *)op->value.ptr;
    switch (op->kind) {
    case ELOG_OP_PUT:
        rocksdb_writebatch_put_cf(wb, op->cf, key, op->key.len, value, op->value.len);
        break;
    case ELOG_OP_DELETE:
        rocksdb_writebatch_delete_cf(wb, op->cf, key, op->key.len);
        break;
    case ELOG_OP_DELETE_RANGE:
        rocksdb_writebatch_delete_range_cf(wb, op->cf, key, op->key.len, value, op->value.len);
        break;
    case ELOG_OP_LEDGER_OPEN:
    case ELOG_OP_LEDGER_RELEASE:
        write_ledger(el, op, wb);
        break;
    case ELOG_OP_GOFF:
        elog_goff_write(el, op->goff, op->offset, wb);
        elog_goff_unuse(el, &op->goff);
        break;
    default:
        SL_ASSERT(!"an op of a known kind");
    }
}

void elog_ops_write(elog *el, const elog_segment *seg, rocksdb_writebatch_t *wb)
{
    const uint8_t *at = seg->ops, *end = seg->ops + seg->ops_len;
    while (at < end) {
        op_view op;
        at = read_op(at, &op);
        write_op(el, &op, wb);
    }
}

void elog_ops_undo(elog *el, const elog_segment *seg)
{
    const uint8_t *at = seg->ops, *end = seg->ops + seg->ops_len;
    while (at < end) {
        op_view op;
        at = read_op(at, &op);
        if (op.kind == ELOG_OP_LEDGER_OPEN || op.kind == ELOG_OP_LEDGER_RELEASE)
            elog_ledger_set(el, op.key, op.packet_id, op.kind == ELOG_OP_LEDGER_RELEASE);
    }
}
