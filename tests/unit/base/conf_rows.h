/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_rows: the table that the configuration tests share: all types, sections that are not in one
 * piece, a secret, and defaults that need quoting.
 */
#ifndef SL_TEST_CONF_ROWS_H
#define SL_TEST_CONF_ROWS_H

#include "base/conf.h"

static const sl_conf_row test_rows[] = {
    {"name", "SL_TEST_NAME", SL_CONF_STRING, "node \"one\" \\ # two: 3", 0, 0, NULL, NULL, false,
     "Name of the node."},
    {"listener.tcp.enabled", "SL_TEST_TCP_ENABLED", SL_CONF_BOOL, "true", 0, 0, NULL, NULL, false,
     "Whether plain TCP is on."},
    {"listener.tcp.bind_port", "SL_TEST_TCP_PORT", SL_CONF_INT, "1883", 0, 65535, NULL, NULL, false,
     "Port of plain TCP; 0 lets the system choose. This sentence only makes the text long enough "
     "to be wrapped into more than one comment line in the file."},
    {"storage.log", "SL_TEST_LOG", SL_CONF_ENUM, "embedded", 0, 0, "embedded|kafka|off", NULL,
     false, "Which log | is used."},
    {"listener.ws.bind_port", NULL, SL_CONF_INT, "8084", 1, 65535, NULL, NULL, false,
     "Port of WebSocket."},
    {"storage.password", "SL_TEST_PASSWORD", SL_CONF_STRING, "", 0, 0, NULL, NULL, true,
     "Password of the store."},
    {"storage.retention", NULL, SL_CONF_INT, "-5", -10, INT64_MAX, NULL, "ms", false,
     "How long to keep."},
    {"listener.tcp.banner", NULL, SL_CONF_STRING, "caf\xC3\xA9\n\ttab\x7f", 0, 0, NULL, NULL, false,
     "First line."},
};

#define TEST_ROWS (sizeof(test_rows) / sizeof(test_rows[0]))

#endif
