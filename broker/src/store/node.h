/* SPDX-License-Identifier: Apache-2.0
 *
 * node: who this node is, kept across restarts: a mark in the data folder (file "node-id", a UUID)
 * and, in the metadata, the service id that the folder was first used with. A service id must stay
 * with its data: topics, sessions and consumer groups carry it. Found otherwise it is said in the
 * log; the node still runs, since an administrator may have meant it.
 */
#ifndef SL_STORE_NODE_H
#define SL_STORE_NODE_H

#include "store/db.h"

typedef struct sl_node_identity sl_node_identity;

/** Reads or makes the mark of the folder, asks the metadata (now, or when it is there at last) and
 * logs NODE-IDENTITY, or warns NODE-RENAMED. db, lp: borrowed, live until free.
 * Errors  the mark cannot be read or written; *why: owned message. @thread init */
SL_MUST_USE sl_err sl_node_identity_new(sl_db *db, sl_loop *lp, sl_clock *ck, const char *dir,
                                        const char *service_id, sl_node_identity **out, char **why);
/** After the db is closed and the loop has stopped. Accepts NULL inside. @thread init */
void sl_node_identity_free(sl_node_identity **nd);
/** True once the metadata has answered: *known_as is the service id of the folder there (borrowed
 * until free), *created when it was first seen. @thread the loop, or after it stopped */
bool sl_node_identity_known(const sl_node_identity *nd, const char **known_as, sl_wall_ms *created);

#endif
