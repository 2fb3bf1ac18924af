/* SPDX-License-Identifier: Apache-2.0
 *
 * log_contract_embedded: runs the contract suite on the embedded adapter.
 */
#include "log_contract.h"

const struct sl_log_ops *log_contract_ops = &sl_log_embedded_ops;

int main(void)
{
    int failed = log_contract_append();
    failed += log_contract_consume();
    failed += log_contract_group();
    failed += log_contract_compacted();
    failed += log_contract_derived();
    failed += log_contract_qos2();
    return failed == 0 ? 0 : 1;
}
