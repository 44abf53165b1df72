/* Declarations that the two sources of the module bedplate._joined share. */
#pragma once

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000 /* one module for Python 3.11 and later */
#include <Python.h>

#include "bedplate.h"

/* Functions that return an object return NULL with an exception set if they fail. */

/* ---- _joined.c ---- */

/* Raises an Error. Returns NULL. */
PyObject* fail(const char* doing, const char* answer, const char* cure);
/* Whether this process has joined and not left, and is no forked child of one that has. */
int uses_pool(void);
/* The same; else an Error is raised. */
int is_usable(const char* doing);

/* ---- _memory.c ---- */

/* A Loan, which gives `loan` back once. Runs no code of Python's. Errors: NULL; the loan is still
 * to be given back. */
PyObject* new_loan(const bp_loan* loan);
/* A Block of that many bytes, zeroed. */
PyObject* allocate(PyObject* module, PyObject* bytes);
/* Lends the Block `object`. Returns the status as an int. */
PyObject* lend_block(bp_endpoint* to, unsigned char id, const Py_buffer* header, PyObject* object);
/* Adds both types to the module. Returns -1 if it fails. */
int add_memory_types(PyObject* module);
