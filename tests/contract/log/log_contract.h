/* SPDX-License-Identifier: Apache-2.0
 *
 * log_contract: the promises of log/log.h as tests that run on any adapter. An adapter's program
 * calls the groups with its operations; each test opens a fresh log.
 */
#ifndef SL_LOG_CONTRACT_H
#define SL_LOG_CONTRACT_H

#include "log_fixture.h"

/* The adapter under test; set once by the adapter's main. */
extern const struct sl_log_ops *log_contract_ops;

/* cmocka set-up and tear-down: *state is a log_fx. */
int log_contract_setup(void **state);
int log_contract_setup_small(void **state); /* tiny ring and queues */
int log_contract_teardown(void **state);

/* Each gives the number of failed tests. */
int log_contract_append(void);
int log_contract_consume(void);
int log_contract_group(void);
int log_contract_compacted(void);
int log_contract_derived(void);
int log_contract_qos2(void);

#define LOG_CONTRACT_TEST(fn)                                                                      \
    cmocka_unit_test_setup_teardown(fn, log_contract_setup, log_contract_teardown)
#define LOG_CONTRACT_TEST_SMALL(fn)                                                                \
    cmocka_unit_test_setup_teardown(fn, log_contract_setup_small, log_contract_teardown)

#endif
