/* SPDX-License-Identifier: Apache-2.0
 *
 * log_contract: set-up shared by the groups of the contract suite.
 */
#include "log_contract.h"

#include "base/alloc.h"
#include "sl_test.h"

static void tweak_small(sl_log_options *options)
{
    options->queue_max_bytes = 64 << 10;
    options->derived_max_bytes = 64 << 10;
    options->ring_bytes = 16 << 10;
}

int log_contract_setup(void **state)
{
    log_fx *fx = sl_calloc(1, sizeof *fx);
    log_fx_init(fx, log_contract_ops, NULL);
    *state = fx;
    return 0;
}

int log_contract_setup_small(void **state)
{
    log_fx *fx = sl_calloc(1, sizeof *fx);
    log_fx_init(fx, log_contract_ops, tweak_small);
    *state = fx;
    return 0;
}

int log_contract_teardown(void **state)
{
    log_fx *fx = *state;
    log_fx_fini(fx);
    sl_free(fx);
    return 0;
}
