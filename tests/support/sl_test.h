/* SPDX-License-Identifier: Apache-2.0
 *
 * sl_test: cmocka with its include order hidden, and checks of our own types.
 */
#ifndef SL_TEST_H
#define SL_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/slice.h"

#define SL_TEST_OK(expr)        assert_string_equal(sl_err_name(expr), "OK")
#define SL_TEST_ERR(expr, want) assert_string_equal(sl_err_name(expr), sl_err_name(want))
#define SL_TEST_SLICE(slice, text)                                                                 \
    do {                                                                                           \
        sl_slice got_ = (slice);                                                                   \
        assert_int_equal(got_.len, sizeof(text) - 1);                                              \
        assert_memory_equal(got_.ptr, text, sizeof(text) - 1);                                     \
    } while (0)

#endif
