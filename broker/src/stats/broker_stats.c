/* SPDX-License-Identifier: Apache-2.0
 *
 * broker_stats: the table behind broker_stats.h. Data only.
 */
#include "stats/broker_stats.h"

const sl_stat_row SL_BROKER_STAT_ROWS[SL_BS_COUNT] = {
#define SL_BROKER_STAT_ROW(id, kind, name, labels, help)                                           \
    [SL_BS_##id] = {name, labels, SL_STAT_##kind, help},
    SL_BROKER_STAT_MAP(SL_BROKER_STAT_ROW)
#undef SL_BROKER_STAT_ROW
#define SL_LOG_STAT_ROW(id, kind, name, help)                                                      \
    [SL_BS_LOG + SL_LOG_STAT_##id] = {name, NULL, SL_STAT_##kind, help},
        SL_LOG_STAT_MAP(SL_LOG_STAT_ROW)
#undef SL_LOG_STAT_ROW
#define SL_INBOX_STAT_ROW(id, kind, name, help)                                                    \
    [SL_BS_INBOX + SL_INBOX_STAT_##id] = {name, NULL, SL_STAT_##kind, help},
            SL_INBOX_STAT_MAP(SL_INBOX_STAT_ROW)
#undef SL_INBOX_STAT_ROW
#define SL_DB_STAT_ROW(id, kind, name, help)                                                       \
    [SL_BS_DB + SL_DB_STAT_##id] = {name, NULL, SL_STAT_##kind, help},
                SL_DB_STAT_MAP(SL_DB_STAT_ROW)
#undef SL_DB_STAT_ROW
};
