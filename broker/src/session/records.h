/* SPDX-License-Identifier: Apache-2.0
 *
 * records: control records of the broker (proto/control.proto) to and from our own structs; the
 * only place that knows protobuf-c.
 */
#ifndef SL_SESSION_RECORDS_H
#define SL_SESSION_RECORDS_H

#include "base/buf.h"
#include "session/client.h"
#include "session/client_actor.h"
#include "session/manager.h"
#include "session/stamps.h"

/* tbmq.client.session */
SL_MUST_USE sl_err sl_record_put_session(sl_buf *out, const sl_session *ss, const char *service_id,
                                         const char *peer);
/** ss->will is the caller's to free. Errors SL_ECORRUPT undecodable, SL_EUNSUPPORTED of a newer
 * version. */
SL_MUST_USE sl_err sl_record_get_session(sl_slice value, sl_session *ss);

/* tbmq.client.subscriptions */
SL_MUST_USE sl_err sl_record_put_subs(sl_buf *out, const sl_client *cl, sl_stamps *stamps);
/** Calls fn for each subscription; the stamp is one of stamps, with a reference for it. */
SL_MUST_USE sl_err sl_record_get_subs(sl_slice value, sl_stamps *stamps,
                                      void (*fn)(void *arg, sl_slice filter,
                                                 const sl_client_sub *sub),
                                      void *arg);

/* tbmq.client.session.event.request */
SL_MUST_USE sl_err sl_record_put_request(sl_buf *out, const sl_session_request *rq,
                                         const char *service_id);
/** rq->peer: peer, at least 56 bytes of room; rq->will is the caller's to free. client_id and loop
 * are not in the value. */
SL_MUST_USE sl_err sl_record_get_request(sl_slice value, sl_session_request *rq, char *peer,
                                         size_t size);

/* tbmq.client.session.event.response.* */
SL_MUST_USE sl_err sl_record_put_answer(sl_buf *out, const sl_session_answer *answer);
SL_MUST_USE sl_err sl_record_get_answer(sl_slice value, sl_session_answer *answer);

#endif
