/* The C part of bedplate.joined: a thin layer over bedplate.h (libbedplate-join.so.0).
 *
 * The process has one member. No code of Python's runs within bp_poll: the callbacks append to
 * arrays, and poll() makes objects of them afterwards. So no handler of a signal, no collection of
 * garbage and no other thread interrupts a poll. All functions but join() keep the GIL, so one
 * thread at a time is in the member.
 *
 * A forked child shares the pool's memory with its parent, so there the functions refuse. */
#include "_joined.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { kNumberCount = 128 }; /* of messages that programs agree on; higher ones belong to names */

enum phase { kApart, kJoining, kJoined, kLeft };
static enum phase phase = kApart;
static int was_tried = 0; /* to join */
static int is_child = 0;  /* forked after that */
static int is_gone = 0;   /* the pool's owner */
static bp_member* self = NULL;
static PyObject* error_type = NULL; /* bedplate.error.Error */

/* ---- Errors ---- */

static PyObject* text_of(const char* text) {
  return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

PyObject* fail(const char* doing, const char* answer, const char* cure) {
  PyObject* error =
      PyObject_CallFunction(error_type, "NNN", text_of(doing), text_of(answer), text_of(cure));
  if (error != NULL) PyErr_SetObject(error_type, error);
  Py_XDECREF(error);
  return NULL;
}

/* Raises the last error of the C interface. */
static PyObject* fail_as_told(void) {
  return fail(bp_error_doing(), bp_error_answer(), bp_error_cure());
}

int uses_pool(void) { return phase == kJoined && !is_child; }

int is_usable(const char* doing) {
  if (is_child) {
    fail(doing, "this process was forked from one that has joined a pool, or has tried to",
         "use the pool in the parent, or join in a new process (subprocess)");
  } else if (phase == kLeft) {
    fail(doing, "this process has left the pool", "start it again to join again");
  } else if (phase != kJoined) {
    fail(doing, "this process has joined no pool", "call bedplate.joined.join first");
  } else {
    return 1;
  }
  return 0;
}

/* ---- Arrays that callbacks append to ---- */

/* Returns the place of a new element, or NULL without memory. */
static void* append(void** elements, size_t* count, size_t* capacity, size_t bytes) {
  if (*count == *capacity) {
    const size_t more = *capacity == 0 ? 64 : 2 * *capacity;
    void* grown = realloc(*elements, more * bytes);
    if (grown == NULL) return NULL;
    *elements = grown;
    *capacity = more;
  }
  return (char*)*elements + (*count)++ * bytes;
}

struct event {
  bp_peer_event kind;
  unsigned number;
};
static struct {
  void* elements;
  size_t count, capacity;
} events, messages, endpoints;

static void on_peer(void* context, bp_peer_event kind, unsigned number) {
  (void)context;
  if (kind == BP_POOL_GONE) is_gone = 1;
  struct event* event =
      append(&events.elements, &events.count, &events.capacity, sizeof(struct event));
  if (event != NULL) *event = (struct event){kind, number};
}

/* Python knows an endpoint by its index here, so no number is a wild pointer. -1: no memory. */
static Py_ssize_t index_of(bp_endpoint* endpoint) {
  for (size_t i = 0; i < endpoints.count; ++i) {
    if (((bp_endpoint**)endpoints.elements)[i] == endpoint) return (Py_ssize_t)i;
  }
  bp_endpoint** added =
      append(&endpoints.elements, &endpoints.count, &endpoints.capacity, sizeof(bp_endpoint*));
  if (added == NULL) return -1;
  *added = endpoint;
  return (Py_ssize_t)endpoints.count - 1;
}

static PyObject* told_index(bp_endpoint* endpoint) {
  if (endpoint == NULL) return fail_as_told();
  const Py_ssize_t index = index_of(endpoint);
  return index < 0 ? PyErr_NoMemory() : PyLong_FromSsize_t(index);
}

static bp_endpoint* endpoint_at(Py_ssize_t index) {
  if (index >= 0 && (size_t)index < endpoints.count) {
    return ((bp_endpoint**)endpoints.elements)[index];
  }
  PyErr_SetString(PyExc_IndexError, "there is no such endpoint");
  return NULL;
}

/* ---- Messages that have arrived ---- */

struct message {
  Py_ssize_t from;
  unsigned id;
  PyObject* payload; /* bytes */
  PyObject* loan;    /* NULL: none */
};
static int is_out_of_memory = 0; /* a message was dropped */

static void on_message(void* context, const bp_message* arrived) {
  (void)context;
  const Py_ssize_t from = index_of(arrived->from);
  PyObject* payload = PyBytes_FromStringAndSize(arrived->payload, (Py_ssize_t)arrived->bytes);
  const int has_loan = arrived->loan.provider != NULL;
  PyObject* loan = has_loan ? new_loan(&arrived->loan) : NULL;
  if (has_loan && loan == NULL) bp_release(&arrived->loan);
  struct message* message = NULL;
  if (from >= 0 && payload != NULL && (loan != NULL || !has_loan)) {
    message =
        append(&messages.elements, &messages.count, &messages.capacity, sizeof(struct message));
  }
  if (message != NULL) {
    *message = (struct message){from, arrived->id, payload, loan};
    return;
  }
  Py_XDECREF(payload);
  Py_XDECREF(loan); /* gives it back */
  PyErr_Clear();
  is_out_of_memory = 1;
}

/* Appends `told` to the list, and drops it. Without memory it is lost, and an exception is set. */
static void append_told(PyObject* list, PyObject* told) {
  if (told != NULL) PyList_Append(list, told);
  Py_XDECREF(told);
}

/* Appends the messages that have arrived to a list, as tuples: from, id, payload, loan or None. */
static void append_messages(PyObject* list) {
  const struct message* taken = messages.elements;
  const size_t count = messages.count;
  /* Python's code may run from here on, and poll: that fills a new array. */
  memset(&messages, 0, sizeof messages);
  for (size_t i = 0; i < count; ++i) {
    PyObject* loan = taken[i].loan == NULL ? Py_None : taken[i].loan;
    append_told(list, Py_BuildValue("nIOO", taken[i].from, taken[i].id, taken[i].payload, loan));
    Py_DECREF(taken[i].payload);
    Py_XDECREF(taken[i].loan);
  }
  free((void*)taken);
}

/* The same for the events, as tuples: kind, number. */
static void append_events(PyObject* list) {
  const struct event* taken = events.elements;
  const size_t count = events.count;
  memset(&events, 0, sizeof events);
  for (size_t i = 0; i < count; ++i) {
    append_told(list, Py_BuildValue("iI", (int)taken[i].kind, taken[i].number));
  }
  free((void*)taken);
}

/* Appends what has arrived to two lists: a signal's handler that raises does not lose it. */
static PyObject* poll_member(PyObject* module, PyObject* arguments) {
  (void)module;
  unsigned budget;
  PyObject *told_messages, *told_events;
  if (!PyArg_ParseTuple(arguments, "IOO", &budget, &told_messages, &told_events)) return NULL;
  if (!is_usable("receiving messages")) return NULL;
  bp_poll(self, budget);
  append_messages(told_messages);
  append_events(told_events);
  if (is_out_of_memory && !PyErr_Occurred()) PyErr_NoMemory();
  is_out_of_memory = 0;
  if (PyErr_Occurred()) return NULL;
  Py_RETURN_NONE;
}

static PyObject* owner_is_gone(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  return PyBool_FromLong(is_gone);
}

/* ---- Waiting ---- */

static PyObject* member_fd(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  if (!is_usable("waiting for messages")) return NULL;
  const int fd = bp_member_fd(self);
  return fd < 0 ? fail_as_told() : PyLong_FromLong(fd);
}

/* False: messages or events have arrived. Requires: member_fd. */
static PyObject* arm(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  if (!is_usable("waiting for messages")) return NULL;
  if (bp_member_fd(self) < 0) return fail_as_told();
  const int may_wait = bp_member_arm(self);
  return PyBool_FromLong(may_wait && messages.count == 0 && events.count == 0);
}

/* ---- Peers ---- */

static PyObject* find_member(PyObject* module, PyObject* arguments) {
  (void)module;
  const char* process;
  if (!PyArg_ParseTuple(arguments, "s", &process)) return NULL;
  if (!is_usable("looking for a member")) return NULL;
  const int number = bp_find_member(process);
  if (number < 0) Py_RETURN_NONE;
  return PyLong_FromLong(number);
}

static PyObject* connect_to(PyObject* module, PyObject* arguments) {
  (void)module;
  unsigned number;
  if (!PyArg_ParseTuple(arguments, "I", &number)) return NULL;
  if (!is_usable("connecting to a member")) return NULL;
  return told_index(bp_connect(self, number));
}

/* Returns the status. */
static PyObject* send_message(PyObject* module, PyObject* arguments) {
  (void)module;
  Py_ssize_t to;
  unsigned char id;
  Py_buffer payload;
  if (!PyArg_ParseTuple(arguments, "nby*", &to, &id, &payload)) return NULL;
  bp_endpoint* endpoint = is_usable("sending a message") ? endpoint_at(to) : NULL;
  PyObject* status = NULL;
  if (endpoint != NULL) {
    status = PyLong_FromLong(bp_am_send(endpoint, id, payload.buf, (size_t)payload.len));
  }
  PyBuffer_Release(&payload);
  return status;
}

/* Returns the status. */
static PyObject* lend(PyObject* module, PyObject* arguments) {
  (void)module;
  Py_ssize_t to;
  unsigned char id;
  Py_buffer header;
  PyObject* block;
  if (!PyArg_ParseTuple(arguments, "nby*O", &to, &id, &header, &block)) return NULL;
  bp_endpoint* endpoint = is_usable("lending a block") ? endpoint_at(to) : NULL;
  PyObject* status = endpoint == NULL ? NULL : lend_block(endpoint, id, &header, block);
  PyBuffer_Release(&header);
  return status;
}

/* ---- The number of a named message: one query at a time ---- */

static struct {
  bp_number_query query;
  enum { kNothing, kAsked, kAnswered } state;
  int number; /* -1: the peer has no such message */
} asked;

static void on_number(bp_number_query* query, int number) {
  (void)query;
  asked.state = kAnswered;
  asked.number = number;
}

/* Returns the status. Requires: no query is pending. */
static PyObject* ask_number(PyObject* module, PyObject* arguments) {
  (void)module;
  Py_ssize_t to;
  const char* name;
  if (!PyArg_ParseTuple(arguments, "ns", &to, &name)) return NULL;
  bp_endpoint* endpoint = is_usable("asking for a message's number") ? endpoint_at(to) : NULL;
  if (endpoint == NULL) return NULL;
  if (asked.state == kAsked) {
    return fail("asking for a message's number", "another thread waits for an answer",
                "let one thread at a time use the pool");
  }
  memset(&asked.query, 0, sizeof asked.query);
  asked.query.answered = on_number;
  asked.state = kNothing; /* the answer never comes within the call */
  const bp_status status = bp_ask_number(self, endpoint, name, &asked.query);
  if (status == BP_DONE) asked.state = kAsked;
  return PyLong_FromLong(status);
}

/* None: there is no answer yet. */
static PyObject* told_number(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  if (asked.state != kAnswered) Py_RETURN_NONE;
  return PyLong_FromLong(asked.number);
}

static PyObject* take_back_query(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  if (asked.state == kAsked && uses_pool()) bp_take_back_query(self, &asked.query);
  asked.state = kNothing;
  Py_RETURN_NONE;
}

/* ---- Joining and leaving ---- */

static void become_child(void) { is_child = was_tried; }

static PyObject* join(PyObject* module, PyObject* arguments) {
  (void)module;
  PyObject* path = NULL;
  const char* process;
  unsigned timeout_ms;
  if (!PyArg_ParseTuple(arguments, "O&sI", PyUnicode_FSConverter, &path, &process, &timeout_ms)) {
    return NULL;
  }
  if (is_child || phase != kApart) {
    Py_DECREF(path);
    if (phase != kJoining && !is_usable("joining a pool")) return NULL;
    return fail("joining a pool", "this process has joined one, or is about to",
                "a process joins once: start another");
  }
  phase = kJoining;
  was_tried = 1;
  bp_on_peer(on_peer, NULL);
  const char* socket = PyBytes_AsString(path);
  PyThreadState* state = PyEval_SaveThread(); /* it blocks */
  const int outcome = bp_join(socket, process, 1, timeout_ms);
  PyEval_RestoreThread(state);
  Py_DECREF(path);
  if (outcome != 0) {
    phase = kApart;
    return fail_as_told();
  }
  phase = kJoined;
  self = bp_own_member(0);
  for (unsigned id = 0; id < kNumberCount; ++id) {
    bp_set_handler(self, (unsigned char)id, on_message, NULL);
  }
  return PyLong_FromUnsignedLong(bp_member_number(self));
}

/* Does nothing the second time, and in a forked child. */
static PyObject* leave(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  if (uses_pool()) {
    bp_leave();
    phase = kLeft;
  }
  Py_RETURN_NONE;
}

/* ---- The module ---- */

static PyMethodDef functions[] = {{"join", join, METH_VARARGS, NULL},
                                  {"leave", leave, METH_NOARGS, NULL},
                                  {"poll", poll_member, METH_VARARGS, NULL},
                                  {"owner_is_gone", owner_is_gone, METH_NOARGS, NULL},
                                  {"member_fd", member_fd, METH_NOARGS, NULL},
                                  {"arm", arm, METH_NOARGS, NULL},
                                  {"find_member", find_member, METH_VARARGS, NULL},
                                  {"connect", connect_to, METH_VARARGS, NULL},
                                  {"send", send_message, METH_VARARGS, NULL},
                                  {"allocate", allocate, METH_O, NULL},
                                  {"lend", lend, METH_VARARGS, NULL},
                                  {"ask_number", ask_number, METH_VARARGS, NULL},
                                  {"told_number", told_number, METH_NOARGS, NULL},
                                  {"take_back_query", take_back_query, METH_NOARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_joined", NULL, -1, functions, NULL, NULL, NULL, NULL};

static const struct {
  const char* name;
  long value;
} constants[] = {{"DONE", BP_DONE},          {"PENDING", BP_PENDING},   {"AGAIN", BP_AGAIN},
                 {"GONE", BP_GONE},          {"TOO_LONG", BP_TOO_LONG}, {"REFUSED", BP_REFUSED},
                 {"JOINED", BP_PEER_JOINED}, {"LEFT", BP_PEER_LEFT},    {"POOL_GONE", BP_POOL_GONE},
                 {"CUT_OFF", BP_CUT_OFF}};

PyMODINIT_FUNC PyInit__joined(void) {
  PyObject* errors = PyImport_ImportModule("bedplate.error");
  if (errors == NULL) return NULL;
  error_type = PyObject_GetAttrString(errors, "Error");
  Py_DECREF(errors);
  if (error_type == NULL) return NULL;
  if (pthread_atfork(NULL, NULL, become_child) != 0) return PyErr_NoMemory();
  PyObject* module = PyModule_Create(&definition);
  if (module == NULL) return NULL;
  for (size_t i = 0; i < sizeof constants / sizeof *constants; ++i) {
    if (PyModule_AddIntConstant(module, constants[i].name, constants[i].value) != 0) return NULL;
  }
  if (add_memory_types(module) != 0) return NULL;
  return module;
}
