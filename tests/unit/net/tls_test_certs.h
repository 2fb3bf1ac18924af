/* SPDX-License-Identifier: Apache-2.0
 *
 * tls_test_certs: certificates for the tests of TLS, made anew in a folder of the test.
 *
 *   ca, other-ca                  trusted by those that name them
 *   server (broker.test, 127.0.0.1), expired (broker.test), client    of ca
 *   server2 (broker.test)         of other-ca
 *   locked                        of ca; the key's password is "open sesame"
 *   empty, garbage, damaged       .crt only: no certificates
 */
#ifndef SL_NET_TLS_TEST_CERTS_H
#define SL_NET_TLS_TEST_CERTS_H

/** Set-up and tear-down of a group of tests. */
int test_certs_make(void **state);
int test_certs_remove(void **state);
/** "ca.crt" with its folder; good for the next seven calls. */
const char *test_cert_path(const char *file);

#endif
