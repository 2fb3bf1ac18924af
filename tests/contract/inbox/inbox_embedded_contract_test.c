/* SPDX-License-Identifier: Apache-2.0
 *
 * The inbox contract on the embedded adapter.
 */
#include "inbox_embedded_store.h"

int main(void)
{
    return inbox_contract_run(&inbox_embedded_factory);
}
