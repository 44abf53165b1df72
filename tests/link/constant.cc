// Linked into a program that has the pool's malloc, but uses it only if the environment says so.
extern "C" const char* const bedplate_leave_pinned;
extern "C" const char* const bedplate_leave_pinned = "no";
