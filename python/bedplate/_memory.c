/* Memory of the pool that Python reaches: loans of peers, and blocks of this process.
 *
 * Both count the views (memoryview) of themselves, also those that were cut from another view. A
 * loan is given back, and a block is lent, only if there is none: so no view shows memory that the
 * process may not look at. A view keeps its object. An object that is freed gives its loan back, or
 * frees its block; in a forked child, or after leave(), it does neither. */
#include "_joined.h"

#include <string.h>

typedef struct {
  PyObject object; /* PyObject_HEAD */
  const void* memory;
  size_t bytes;
  int is_read_only;
  const char* obstacle; /* why there can be no view; NULL: there can */
  Py_ssize_t view_count;
} Memory;

static int refuse_view(Py_buffer* view, const char* why) {
  view->obj = NULL;
  PyErr_SetString(PyExc_BufferError, why);
  return -1;
}

static int begin_view(PyObject* object, Py_buffer* view, int flags) {
  static char nothing;
  Memory* seen = (Memory*)object;
  if (seen->obstacle != NULL) return refuse_view(view, seen->obstacle);
  if (!uses_pool()) return refuse_view(view, "this process does not use the pool");
  if (seen->memory == NULL && seen->bytes > 0) {
    return refuse_view(view, "this process cannot read the memory that was lent");
  }
  void* begin = seen->bytes == 0 ? &nothing : (void*)seen->memory;
  if (PyBuffer_FillInfo(view, object, begin, (Py_ssize_t)seen->bytes, seen->is_read_only, flags) !=
      0) {
    return -1;
  }
  ++seen->view_count;
  return 0;
}

static void end_view(PyObject* object, Py_buffer* view) {
  (void)view;
  --((Memory*)object)->view_count;
}

static PyObject* view_of(PyObject* object, PyObject* unused) {
  (void)unused;
  return PyMemoryView_FromObject(object);
}

static Py_ssize_t bytes_of(PyObject* object) { return (Py_ssize_t)((Memory*)object)->bytes; }

static int has_no_view(const Memory* memory, const char* doing) {
  if (memory->view_count == 0) return 1;
  fail(doing, "views of its memory are in use",
       "release each (memoryview.release), also those that were cut from another");
  return 0;
}

static void free_memory(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  PyObject_Free(object);
  Py_DECREF(type);
}

/* ---- Loan: memory that a peer has lent to this process ---- */

typedef struct {
  Memory base;
  bp_loan loan;
} Loan;
static PyTypeObject* loan_type = NULL;

PyObject* new_loan(const bp_loan* loan) {
  Loan* held = PyObject_New(Loan, loan_type);
  if (held == NULL) return NULL;
  held->base.memory = loan->memory;
  held->base.bytes = loan->bytes;
  held->base.is_read_only = 1;
  held->base.obstacle = NULL;
  held->base.view_count = 0;
  held->loan = *loan;
  return (PyObject*)held;
}

static void give_back(Loan* loan) {
  if (loan->base.obstacle == NULL && uses_pool()) bp_release(&loan->loan);
  loan->base.obstacle = "the loan was given back";
}

static void free_loan(PyObject* object) {
  give_back((Loan*)object); /* there is no view: a view keeps its object */
  free_memory(object);
}

static PyObject* release_loan(PyObject* object, PyObject* unused) {
  (void)unused;
  if (!has_no_view((Memory*)object, "giving a loan back")) return NULL;
  give_back((Loan*)object);
  Py_RETURN_NONE;
}

static PyMethodDef loan_methods[] = {{"view", view_of, METH_NOARGS, NULL},
                                     {"release", release_loan, METH_NOARGS, NULL},
                                     {NULL, NULL, 0, NULL}};
static PyType_Slot loan_slots[] = {{Py_tp_dealloc, free_loan},      {Py_tp_methods, loan_methods},
                                   {Py_sq_length, bytes_of},        {Py_bf_getbuffer, begin_view},
                                   {Py_bf_releasebuffer, end_view}, {0, NULL}};
static PyType_Spec loan_spec = {"bedplate._joined.Loan", sizeof(Loan), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, loan_slots};

/* ---- Block: memory of this process that peers can read ---- */

typedef struct {
  Memory base;
  bp_completion returned;
} Block;
static PyTypeObject* block_type = NULL;

PyObject* allocate(PyObject* module, PyObject* argument) {
  (void)module;
  const Py_ssize_t bytes = PyLong_AsSsize_t(argument);
  if (bytes < 0) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a block has 0 bytes or more");
    return NULL;
  }
  if (!is_usable("allocating memory of the pool")) return NULL;
  void* memory = bp_alloc((size_t)bytes);
  if (memory == NULL) {
    return fail("allocating memory of the pool", "the heap of this process is exhausted",
                "free blocks, or raise heap_bytes in its [[process]] of the owner's configuration");
  }
  memset(memory, 0, (size_t)bytes);
  Block* block = PyObject_New(Block, block_type);
  if (block == NULL) {
    bp_free(memory);
    return NULL;
  }
  block->base.memory = memory;
  block->base.bytes = (size_t)bytes;
  block->base.is_read_only = 0;
  block->base.obstacle = NULL;
  block->base.view_count = 0;
  return (PyObject*)block;
}

static void free_block(PyObject* object) {
  if (uses_pool()) bp_free((void*)((Memory*)object)->memory);
  free_memory(object);
}

static PyObject* block_is_lent(PyObject* object, PyObject* unused) {
  (void)unused;
  return PyBool_FromLong(((Memory*)object)->obstacle != NULL);
}

/* Drops the reference of the loan. Within a poll: freeing a block runs no code of Python's. */
static void end_loan(Block* block) {
  block->base.obstacle = NULL;
  Py_DECREF((PyObject*)block);
}

static void on_returned(bp_completion* completion, bp_outcome outcome) {
  (void)outcome;
  end_loan(completion->context);
}

PyObject* lend_block(bp_endpoint* to, unsigned char id, const Py_buffer* header, PyObject* object) {
  if (!PyObject_TypeCheck(object, block_type)) {
    PyErr_SetString(PyExc_TypeError, "only a Block can be lent");
    return NULL;
  }
  Block* block = (Block*)object;
  if (block->base.obstacle != NULL) {
    return fail("lending a block", "a peer has it", "wait until it comes back, or lend another");
  }
  if (!has_no_view(&block->base, "lending a block")) return NULL;
  Py_INCREF((PyObject*)block);
  block->base.obstacle = "the block is lent";
  block->returned = (bp_completion){NULL, on_returned, block};
  const bp_status status =
      bp_am_send_loan(to, id, header->buf, (size_t)header->len, (void*)block->base.memory,
                      block->base.bytes, &block->returned);
  if (status != BP_PENDING) end_loan(block);
  return PyLong_FromLong(status);
}

static PyMethodDef block_methods[] = {{"view", view_of, METH_NOARGS, NULL},
                                      {"is_lent", block_is_lent, METH_NOARGS, NULL},
                                      {NULL, NULL, 0, NULL}};
static PyType_Slot block_slots[] = {{Py_tp_dealloc, free_block},     {Py_tp_methods, block_methods},
                                    {Py_sq_length, bytes_of},        {Py_bf_getbuffer, begin_view},
                                    {Py_bf_releasebuffer, end_view}, {0, NULL}};
static PyType_Spec block_spec = {"bedplate._joined.Block", sizeof(Block), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                 block_slots};

int add_memory_types(PyObject* module) {
  loan_type = (PyTypeObject*)PyType_FromSpec(&loan_spec);
  block_type = (PyTypeObject*)PyType_FromSpec(&block_spec);
  if (loan_type == NULL || block_type == NULL) return -1;
  if (PyModule_AddObjectRef(module, "Loan", (PyObject*)loan_type) != 0) return -1;
  return PyModule_AddObjectRef(module, "Block", (PyObject*)block_type);
}
