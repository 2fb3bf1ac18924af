/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_embedded_store: the factory of the embedded adapter: a log in a temporary folder.
 */
#ifndef SL_TEST_INBOX_EMBEDDED_STORE_H
#define SL_TEST_INBOX_EMBEDDED_STORE_H

#include "inbox_harness.h"

extern const inbox_factory inbox_embedded_factory;

/** Opens a log in dir (created when missing), with fsync as in production. */
sl_log *inbox_embedded_open_log(const char *dir, sl_clock *ck);
void inbox_embedded_remove_dir(const char *dir);

#endif
