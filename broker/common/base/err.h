/* SPDX-License-Identifier: Apache-2.0
 *
 * err: the one error type of everything that can fail for a reason outside our own code.
 * Not for wire codes: those are sl_mqtt_rc (mqtt/reason.h) and HTTP status numbers.
 * Used by every module; no state, any thread.
 */
#ifndef SL_BASE_ERR_H
#define SL_BASE_ERR_H

/* name, number, text for people */
#define SL_ERR_MAP(X)                                                                              \
    X(OK, 0, "ok")                                                                                 \
    X(EINVAL, 1, "invalid argument or input")                                                      \
    X(EAGAIN, 2, "not now, try again later")                                                       \
    X(EINCOMPLETE, 3, "more bytes are needed")                                                     \
    X(ELIMIT, 4, "a limit is reached")                                                             \
    X(ETOOBIG, 5, "too large")                                                                     \
    X(ECLOSED, 6, "closed")                                                                        \
    X(ETIMEDOUT, 7, "timed out")                                                                   \
    X(EIO, 8, "input/output error")                                                                \
    X(ENOSPC, 9, "no space left")                                                                  \
    X(ENOTFOUND, 10, "not found")                                                                  \
    X(EEXIST, 11, "exists already")                                                                \
    X(ECORRUPT, 12, "damaged data")                                                                \
    X(EMALFORMED, 13, "malformed packet")                                                          \
    X(EPROTOCOL, 14, "protocol error")                                                             \
    X(EDENIED, 15, "not allowed")                                                                  \
    X(ELOCKED, 16, "in use by another process")                                                    \
    X(ECONN, 17, "connection failed")                                                              \
    X(EUNSUPPORTED, 18, "not supported")

typedef enum sl_err {
#define SL_ERR_ENUM(name, num, text) SL_##name = (num),
    SL_ERR_MAP(SL_ERR_ENUM)
#undef SL_ERR_ENUM
} sl_err;

#define SL_MUST_USE __attribute__((warn_unused_result))

/** "EINVAL"; static text. @thread any */
const char *sl_err_name(sl_err err);
/** A sentence for people; static text. @thread any */
const char *sl_err_text(sl_err err);
/** Maps an errno value (EIO when nothing fits). @thread any */
sl_err sl_err_from_errno(int errnum);

#endif
