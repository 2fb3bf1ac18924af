/* SPDX-License-Identifier: Apache-2.0
 *
 * assert: invariants of our own code, on in release builds. Faults of peers, disks and networks are
 * sl_err, never an assertion. No side effects inside. Any thread.
 */
#ifndef SL_BASE_ASSERT_H
#define SL_BASE_ASSERT_H

/** Prints the failed expression with file and line to stderr and aborts. @thread any */
_Noreturn void sl_assert_failed(const char *expr, const char *file, int line);

#define SL_ASSERT(expr) ((expr) ? (void)0 : sl_assert_failed(#expr, __FILE__, __LINE__))

/* A costly check: on in sanitizer and debug builds only. */
#ifdef SL_DEBUG_CHECKS
#define SL_DASSERT(expr) SL_ASSERT(expr)
#else
#define SL_DASSERT(expr) ((void)0)
#endif

/* The object is there and of the type its magic number says. */
#define SL_CHECK(obj, MAGIC) SL_ASSERT((obj) != NULL && (obj)->magic == (MAGIC))

#endif
