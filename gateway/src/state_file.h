/* SPDX-License-Identifier: Apache-2.0
 *
 * state_file: the filters that our broker session may hold, on disk, so that the next process can
 * unsubscribe those it no longer wants. Text: a first line that names the session (broker and
 * client id), then one filter a line, each as a JSON string. Written whole: temporary file, then
 * rename. A file of another session, or one that cannot be read, is as good as none.
 */
#ifndef SL_GATEWAY_STATE_FILE_H
#define SL_GATEWAY_STATE_FILE_H

#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"

#define SL_STATE_FILE_MAX_BYTES (8u << 20)

/** Appends the first line to an empty buffer. @thread any */
SL_MUST_USE sl_err sl_state_file_begin(sl_buf *out, sl_slice session);
/** Appends one filter. SL_ETOOBIG: full. @thread any */
SL_MUST_USE sl_err sl_state_file_add(sl_buf *out, sl_slice filter);
/** Replaces the file. Blocks. @thread pool */
SL_MUST_USE sl_err sl_state_file_save(const char *path, sl_slice text);
/**
 * Calls fn for each filter. Errors SL_ENOTFOUND no file or of another session; SL_ECORRUPT a line
 * that is not a JSON string (those before it were reported); SL_EIO. Blocks. @thread init
 */
SL_MUST_USE sl_err sl_state_file_load(const char *path, sl_slice session,
                                      void (*fn)(void *arg, sl_slice filter), void *arg);

#endif
