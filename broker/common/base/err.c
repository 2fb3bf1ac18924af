/* SPDX-License-Identifier: Apache-2.0
 *
 * err: names and texts of sl_err, and the one place where errno values become sl_err. Any thread.
 */
#include "base/err.h"

#include <errno.h>

const char *sl_err_name(sl_err err)
{
    switch (err) {
#define NAME_CASE(name, num, text)                                                                 \
    case SL_##name:                                                                                \
        return #name;
        SL_ERR_MAP(NAME_CASE)
#undef NAME_CASE
    }
    return "UNKNOWN";
}

const char *sl_err_text(sl_err err)
{
    switch (err) {
#define TEXT_CASE(name, num, text)                                                                 \
    case SL_##name:                                                                                \
        return text;
        SL_ERR_MAP(TEXT_CASE)
#undef TEXT_CASE
    }
    return "unknown error";
}

sl_err sl_err_from_errno(int errnum)
{
    switch (errnum) {
    case 0:
        return SL_OK;
    case EINVAL:
    case EBADF:
    case ENAMETOOLONG:
    case EDESTADDRREQ:
        return SL_EINVAL;
    case EAGAIN:
    case EINTR:
    case EINPROGRESS:
    case EALREADY:
        return SL_EAGAIN;
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
    case EMLINK:
        return SL_ELIMIT;
    case EFBIG:
    case E2BIG:
    case EMSGSIZE:
    case EOVERFLOW:
        return SL_ETOOBIG;
    case EPIPE:
    case ESHUTDOWN:
    case ECANCELED:
        return SL_ECLOSED;
    case ETIMEDOUT:
        return SL_ETIMEDOUT;
    case ENOSPC:
    case EDQUOT:
        return SL_ENOSPC;
    case ENOENT:
    case ESRCH:
    case ENODEV:
        return SL_ENOTFOUND;
    case EEXIST:
    case EADDRINUSE:
        return SL_EEXIST;
    case EBADMSG:
    case EILSEQ:
        return SL_ECORRUPT;
    case EPROTO:
        return SL_EPROTOCOL;
    case EACCES:
    case EPERM:
    case EROFS:
        return SL_EDENIED;
    case EBUSY:
    case ETXTBSY:
    case EDEADLK:
        return SL_ELOCKED;
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case ENOTCONN:
        return SL_ECONN;
    case ENOSYS:
    case ENOTSUP:
    case EAFNOSUPPORT:
    case EPROTONOSUPPORT:
        return SL_EUNSUPPORTED;
    default:
        return SL_EIO;
    }
}
