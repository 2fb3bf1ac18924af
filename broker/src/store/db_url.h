/* SPDX-License-Identifier: Apache-2.0
 *
 * db_url: the URL of the metadata database as TBMQ's users write it (JDBC) into one that libpq
 * takes. Text only: no connection is made, no name is looked up. URLs hold passwords: nothing here
 * puts a URL or a value of it into a message.
 */
#ifndef SL_STORE_DB_URL_H
#define SL_STORE_DB_URL_H

#include "base/err.h"

/** "jdbc:" is stripped, options of the JDBC driver are translated (ssl, currentSchema,
 * connectTimeout, socketTimeout and loginTimeout are ours to decide and dropped), options that
 * libpq does not know are dropped. *out: owned URL. *dropped: owned comma list of the names of
 * dropped options ("" mostly). Errors SL_EINVAL, *why: static text. @thread any */
SL_MUST_USE sl_err sl_db_url_translate(const char *url, char **out, char **dropped,
                                       const char **why);

#endif
